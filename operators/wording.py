"""Whether words can stand as they are or break off: the transcript's part in the end of a turn (pure).

The endpoint model hears whether a voice has come to rest; it does not know that nobody stops after "a flight from". Sentences end in
content words, and a small closed class of words (articles, conjunctions, auxiliaries, most prepositions) cannot end one, but for a few
patterns: "Where are you from?", "Yes, I am." Recognition adds a sign of its own: it writes "…" where the voice trails off.

Numbers said digit by digit are a case for themselves: any group may be the last, so they are merely waited for a little.
"""

import re
from typing import Literal, NamedTuple

from operators.heard import words

Wording = Literal["whole", "number", "broken"]


class Endings(NamedTuple):
    """What tells the end of a sentence from a break in a language. Words are as `operators.heard.words` gives them."""

    never: frozenset[str]
    """Words that no sentence ends with, …"""
    unasked: frozenset[str]
    """… these only one that begins with a question word, …"""
    after_subject: frozenset[str]
    """… and these only after a pronoun: "Yes, I am." """
    subjects: frozenset[str]
    questions: frozenset[str]
    openings: tuple[tuple[str, ...], ...]
    """Clauses that announce another one: a sentence that is nothing else breaks off."""
    before: frozenset[str]
    """Words before such a clause that add nothing."""
    digits: frozenset[str]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(words(phrase)) for phrase in text.split("|"))


ENGLISH = Endings(
    never=_set(
        "a an the my your our their its every and or but because if whether although unless while than um uh er erm uhm hmm"
    ),
    unasked=_set(
        "to from for of with at into onto between without until near towards during against who which whose where"
    ),
    after_subject=_set(
        "is are was were am be been being have has had will would can could should must may might i'm we're they're you're it's that's"
    ),
    subjects=_set("i you he she it we they this that there here"),
    questions=_set("who what where when which how why whose"),
    openings=_phrases(
        "i was wondering|i wonder|i wanted to ask|could you tell me|can you tell me|do you know|let me think|let me see|let's see"
        "|the thing is|the problem is|what i mean is|i think|i guess|i mean|so|well|i would like|i'd like|i want|i need"
    ),
    before=_set("well so and but oh ah hi hello hey okay ok yes no um uh er"),
    digits=_set("zero oh one two three four five six seven eight nine double triple"),
)
CHINESE = Endings(
    never=_set("和 跟 把 被 在 从 向 给 对 而 或 呃 嗯"),
    unasked=frozenset(),
    after_subject=frozenset(),
    subjects=frozenset(),
    questions=frozenset(),
    openings=_phrases("因为|所以|但是|如果|而且|或者|就是|那个|我想|我要|我想问"),
    before=_set("嗯 呃 好 那 啊"),
    digits=_set("零 一 二 三 四 五 六 七 八 九 幺"),
)
ENDINGS = {"en": ENGLISH, "zh": CHINESE}

_SENTENCE_END = re.compile(r"[.!?。！？]\s+|[。！？]")
_TRAILS_OFF = re.compile(r"(\.\.\.|…|,|，|、|—|–|-)\s*$")
GROUPS = 2
"""So many groups of digits in a row are spelt; one may be any number."""


def wording(text: str, language: str) -> Wording:
    """What the words of a turn say about its end; without lists for its language they stand as they are."""
    endings = ENDINGS.get(language[:2].lower())
    said = words(text)
    if endings is None or not said:
        return "whole"
    if _TRAILS_OFF.search(text) or _breaks_off(said, endings) or _announces(text, endings):
        return "broken"
    return "number" if _is_spelt(text, said, endings) else "whole"


def _breaks_off(said: list[str], endings: Endings) -> bool:
    last = said[-1]
    # "What do you need?" asks; "What I need …" does not.
    asks = said[0] in endings.questions and said[1:2] and said[1] not in endings.subjects
    if last in endings.never:
        return True
    if last in endings.unasked and not asks:
        return len(said) > 1
    if last in endings.after_subject and not asks:
        return len(said) > 1 and said[-2] not in endings.subjects
    return False


def _announces(text: str, endings: Endings) -> bool:
    """Whether its last sentence only announces what is to be said."""
    sentences = [w for part in _SENTENCE_END.split(text) if (w := words(part))]
    last = sentences[-1]
    while last:
        if tuple(last) in endings.openings:
            return True
        if last[0] not in endings.before:
            return False
        last = last[1:]
    return False


def _is_spelt(text: str, said: list[str], endings: Endings) -> bool:
    """Whether it ends in digits said one by one or in groups."""
    if text.rstrip().endswith(("?", "？")):
        return False
    run = 0
    for part in reversed("-".join(said).split("-")):
        if not (part.isdigit() or part in endings.digits):
            break
        run += 1
    return run >= GROUPS
