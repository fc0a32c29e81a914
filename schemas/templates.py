"""Templates of words: `what is the weather [like] in {city}`. Data of a policy, parsed and matched without regular expressions.

    word           that word, lower case
    (a|b c|d)      one of the alternatives
    [a|b c]        one of them, or nothing
    {name}         up to `SLOT_WORDS` words
    {name:digits}  figures, written or spoken, joined to one number

Matching is memoised on (item, word), so its cost is at most their product, whatever a template looks like.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from schemas.errors import BadInput

SLOT_WORDS = 4
DIGIT_WORDS = 24
LONGEST = 400
"""Characters of a template."""

FIGURES = {
    "zero": "0", "oh": "0", "o": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5",
    "six": "6", "seven": "7", "eight": "8", "nine": "9",
}  # fmt: skip


class Word(NamedTuple):
    """One of several phrases; an empty phrase among them makes it optional."""

    phrases: tuple[tuple[str, ...], ...]


class Slot(NamedTuple):
    name: str
    digits: bool


Template = tuple[Word | Slot, ...]


@lru_cache(maxsize=1024)
def parse_template(text: str) -> Template:
    """The items of a template.

    Raises:
        BadInput: it is empty, too long, or has an unclosed or empty part.
    """
    if len(text) > LONGEST:
        raise BadInput(f"pattern {text[:40]!r}…: at most {LONGEST} characters")
    items: list[Word | Slot] = []
    rest = text.strip().lower()
    closing = {"(": ")", "[": "]", "{": "}"}
    while rest:
        if rest[0] not in closing:
            word = rest.split(None, 1)[0]
            cut = min((i for i in map(word.find, "([{") if i > 0), default=len(word))
            items.append(Word(((word[:cut],),)))
            rest = rest[cut:].lstrip()
            continue
        end = rest.find(closing[rest[0]])
        inner = rest[1:end].strip()
        if end < 0 or not inner:
            raise BadInput(f"pattern {text!r}: {rest[:12]!r} is not closed or empty")
        if rest[0] == "{":
            name, _, kind = inner.partition(":")
            if not name.isidentifier() or kind not in ("", "digits"):
                raise BadInput(
                    f"pattern {text!r}: write {{name}} or {{name:digits}}, not {{{inner}}}"
                )
            items.append(Slot(name, kind == "digits"))
        else:
            phrases = tuple(tuple(p.split()) for p in inner.split("|"))
            items.append(Word((*phrases, ()) if rest[0] == "[" else phrases))
        rest = rest[end + 1 :].lstrip()
    if not items:
        raise BadInput("an empty pattern matches nothing; write a few words")
    return tuple(items)


def match_template(
    template: Template, words: Sequence[str], stop: frozenset[str] = frozenset()
) -> dict[str, str] | None:
    """The slots of a template that matches all of `words`; None if it does not. A slot takes no word of `stop`."""
    dead: set[tuple[int, int]] = set()

    def follow(item: int, at: int) -> dict[str, str] | None:
        if item == len(template):
            return {} if at == len(words) else None
        if (item, at) in dead:
            return None
        part = template[item]
        for value, size in _takes(part, words, at, stop):
            found = follow(item + 1, at + size)
            if found is not None:
                return {part.name: value, **found} if isinstance(part, Slot) else found
        dead.add((item, at))
        return None

    return follow(0, 0)


def _takes(
    part: Word | Slot, words: Sequence[str], at: int, stop: frozenset[str]
) -> list[tuple[str, int]]:
    """What a part can take at `at`: (its value, how many words)."""
    if isinstance(part, Word):
        return [("", len(p)) for p in part.phrases if tuple(words[at : at + len(p)]) == p]
    out: list[tuple[str, int]] = []
    value = ""
    for size, word in enumerate(words[at : at + (DIGIT_WORDS if part.digits else SLOT_WORDS)], 1):
        if part.digits:
            figures = FIGURES.get(word, word)
            if not figures.isdecimal():
                break
            value += figures
        else:
            if word in stop:
                break
            value = f"{value} {word}".strip()
        out.append((value, size))
    return out[::-1]
