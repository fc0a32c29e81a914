"""What a user's turn means for delegated work: the small explicit rule beside a language model's tool calls (pure, data from the policy).

A turn is read sentence by sentence; fillers around a sentence are left out, conjunctions end what a slot may take. In this order:
1. it begins like a correction ("no,", "I mean") and names a new argument or another task: correct (that work is replaced);
2. it asks to cancel: cancel; a bare "stop" is about speech and not about work;
3. it begins with "and", "what about", and names a new argument: delegate, continuing the work before;
4. a rule's pattern matches: delegate;
5. it asks how far things are, or for the result, while there is something to tell: progress, recall.
Anything else means nothing here and is the language model's business.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from operators.heard import words
from operators.words import lists_for
from operators.works import Work, WorkBook
from schemas.delegation import Fitting
from schemas.policy_work import IntentRule, WorkPolicy
from schemas.templates import FIGURES, match_template, parse_template

MeaningKind = Literal["delegate", "correct", "cancel", "progress", "recall"]

_SENTENCE = re.compile(r"[^.!?;。！？；]+")


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEFORE = _listed(
    "hey hi hello please okay ok so well now um uh erm oh and also then can could would will you i d like to "
    "know tell me just let us lets quickly wait yes yeah"
)
_AFTER = _listed("please now today right then thanks thank you for me again quickly")
_BREAKS = _listed("and but or then because while if")
_CONTINUES = (("and",), ("what", "about"), ("how", "about"), ("and", "what", "about"))
NOT_A_NAME = _BREAKS | _listed(
    "a an the it its it's that that's this is are was be been i me my you your we he she they no not yes yeah "
    "yep okay ok fine good great thanks thank please sorry stop wait well now then what when who why how which "
    "there here so just really need want mean problem do does did don't can could would will to in at on of "
    "with about from too also again never mind hold like way one more much"
)
"""Words that no slot takes: "no, thanks" names no city."""
LOOKED_AT = 60
"""Words of a sentence that are read."""


class Meaning(NamedTuple):
    """`work` is the one that is meant; None with `cancel` means all."""

    kind: MeaningKind
    query: str
    rule: IntentRule | None = None
    arguments: dict[str, Any] = {}  # noqa: RUF012 - never changed
    work: str | None = None


def read_turn(policy: WorkPolicy, language: str, text: str, book: WorkBook) -> tuple[Meaning, ...]:
    """What a turn means for works, in the order in which it was said; empty: nothing."""
    found: list[Meaning] = []
    repairs = lists_for(language).repairs
    carried: list[str] = []
    for sentence in _SENTENCE.findall(text):
        said = [*carried, *_words(sentence)[:LOOKED_AT]]
        # "No. To Rome." is one correction, whatever the transcript makes of the pause.
        carried = said if tuple(said) in repairs else []
        if not said or carried:
            continue
        meaning = _read(policy, said, _tidy(text), book, repairs, not found)
        if meaning is not None:
            found += meaning
    return tuple(found)


def read_request(
    policy: WorkPolicy, language: str, text: str, before: Work | None
) -> Fitting | None:
    """The one call that the rules make of a request in words, if exactly one. `before` is the work that it continues."""
    found: list[Fitting] = []
    for said in map(_words, _SENTENCE.findall(text)):
        said = said[:LOOKED_AT]
        matched = _match_rules(policy, said)
        onward = _without(said, _CONTINUES)
        if matched is None and before is not None and len(onward) < len(said):
            rule, changed = _rule(policy, before), _arguments(policy, before, onward)
            matched = None if rule is None or changed is None else (rule, changed)
        if matched is not None:
            rule, arguments = _repaired(matched, said, lists_for(language).repairs)
            found.append(Fitting(rule=rule.name, skill=rule.skill, arguments=arguments))
    return found[0] if len(found) == 1 else None


def asks_progress(policy: WorkPolicy, text: str) -> bool:
    """Whether a request in words only asks how far things are."""
    sentences = [_words(s)[:LOOKED_AT] for s in _SENTENCE.findall(text) if _words(s)]
    return bool(sentences) and all(_any(policy.progress_phrases, s) for s in sentences)


def _read(
    policy: WorkPolicy,
    said: list[str],
    text: str,
    book: WorkBook,
    repairs: tuple[tuple[str, ...], ...],
    first: bool,
) -> list[Meaning] | None:
    target = book.latest_pending()
    rest = _without(said, repairs)
    if target is not None and len(rest) < len(said) and first:
        changed = _arguments(policy, target, rest)
        if changed is not None:
            return [Meaning("correct", text, _rule(policy, target), changed, target.work)]
        matched = _match_rules(policy, rest)
        if matched is not None:
            return [Meaning("correct", text, *matched, target.work)]
    if book.running or target is not None:
        cancel = _cancel(policy, said, text, book)
        if cancel is not None:
            return [cancel]
    before = next(reversed(book.works.values()), None)
    onward = _without(said, _CONTINUES)
    if before is not None and len(onward) < len(said):
        changed = _arguments(policy, before, onward)
        if changed is not None:
            return [Meaning("delegate", text, _rule(policy, before), changed, before.work)]
    matched = _match_rules(policy, said)
    if matched is not None:
        return [Meaning("delegate", text, *_repaired(matched, said, repairs))]
    if book.running and _any(policy.progress_phrases, said):
        return [Meaning("progress", text, work=book.running[-1].work)]
    if book.works and _any(policy.recall_phrases, said):
        told = book.latest_result()
        return [Meaning("recall", text, work=None if told is None else told.work)]
    return None


def _match_rules(policy: WorkPolicy, said: list[str]) -> tuple[IntentRule, dict[str, Any]] | None:
    for part in _parts(said):
        for rule in policy.intents:
            for template in rule.templates():
                slots = match_template(template, part, NOT_A_NAME)
                if slots is not None:
                    return rule, {**rule.arguments, **slots}
    return None


def _repaired(
    matched: tuple[IntentRule, dict[str, Any]],
    said: list[str],
    repairs: tuple[tuple[str, ...], ...],
) -> tuple[IntentRule, dict[str, Any]]:
    """A correction within the same breath: "the weather in Paris, no, in Rome"."""
    rule, arguments = matched
    for at in range(1, len(said)):
        rest = _without(said[at:], repairs)
        if len(rest) < len(said) - at:
            slots = _slots(rule.correction_templates(), rest)
            if slots:
                return rule, {**arguments, **slots}
    return rule, arguments


def _arguments(policy: WorkPolicy, work: Work, said: list[str]) -> dict[str, Any] | None:
    """The work's arguments with what the words change of them."""
    rule = _rule(policy, work)
    if rule is None or not said:
        return None
    slots = _slots(rule.correction_templates(), said)
    return {**work.arguments, **slots} if slots else None


def _slots(templates: Iterable[Any], said: list[str]) -> dict[str, str] | None:
    part = _after_fillers(said)
    for template in templates:
        slots = match_template(template, part, NOT_A_NAME)
        if slots:
            return slots
    return None


def _rule(policy: WorkPolicy, work: Work) -> IntentRule | None:
    return next((r for r in policy.intents if r.name == work.rule), None)


def _cancel(policy: WorkPolicy, said: list[str], text: str, book: WorkBook) -> Meaning | None:
    for part in _without_fillers(said):
        for phrase in policy.cancel_phrases:
            slots = match_template(parse_template(phrase), part)
            if slots is None:
                continue
            meaning = _cancelled(set(slots.get("what", "").split()), part, text, book)
            if meaning is not None:
                return meaning
    return None


def _cancelled(what: set[str], part: list[str], text: str, book: WorkBook) -> Meaning | None:
    if not what:
        if "everything" in part:
            return Meaning("cancel", text)
        meant = book.running[-1] if book.running else book.latest_pending()
        return None if meant is None else Meaning("cancel", text, work=meant.work)
    for work in reversed(book.works.values()):
        about = f"{work.query} {work.skill or ''} {work.rule or ''}".replace("_", " ")
        if work.pending and what & set(words(about)):
            return Meaning("cancel", text, work=work.work)
    return None


def _any(phrases: tuple[str, ...], said: list[str]) -> bool:
    return any(
        match_template(parse_template(p), part) is not None
        for part in _without_fillers(said)
        for p in phrases
    )


# --- words


def _words(sentence: str) -> list[str]:
    """The sentence's words; figures that a transcript has tied together (`1-2-3`) are apart."""
    return [part for word in words(sentence) for part in _figures(word)]


def _figures(word: str) -> list[str]:
    parts = word.replace("’", "-").split("-")
    return parts if len(parts) > 1 and all(FIGURES.get(p, p).isdecimal() for p in parts) else [word]


def _parts(said: list[str]) -> Iterator[list[str]]:
    """The sentence from each of its words on, to its end or to a conjunction."""
    ends = [
        i for i, word in enumerate(said) if word in _BREAKS or word in ("no", "sorry", "actually")
    ] + [len(said)]
    for start in range(len(said)):
        for end in ends:
            if end > start:
                part = _after_fillers(said[start:end])
                if part:
                    yield part


def _after_fillers(said: list[str]) -> list[str]:
    end = len(said)
    while end > 1 and said[end - 1] in _AFTER:
        end -= 1
    return said[:end]


def _without_fillers(said: list[str]) -> Iterator[list[str]]:
    """The sentence with fewer and fewer fillers around it."""
    end = len(said)
    while True:
        start = 0
        while True:
            yield said[start:end]
            if start >= end - 1 or said[start] not in _BEFORE:
                break
            start += 1
        if end <= 1 or said[end - 1] not in _AFTER:
            return
        end -= 1


def _without(said: list[str], beginnings: tuple[tuple[str, ...], ...]) -> list[str]:
    """What follows one or more of the phrases at the beginning."""
    found = True
    while found:
        found = False
        for phrase in sorted(beginnings, key=len, reverse=True):
            if len(said) > len(phrase) and tuple(said[: len(phrase)]) == phrase:
                said, found = said[len(phrase) :], True
                break
    return said


def _tidy(text: str) -> str:
    return " ".join(text.split())
