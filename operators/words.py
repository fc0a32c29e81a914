"""Word lists by language: acknowledgements, words that stop, words that correct. Data, not logic; extend freely."""

from typing import NamedTuple

from operators.heard import words


class WordLists(NamedTuple):
    """Each entry is a phrase as the words that `operators.heard.words` gives."""

    acknowledgements: frozenset[str]
    """Single words which, alone or together, only say "I am listening"."""
    stops: tuple[tuple[str, ...], ...]
    """Phrases that, at the beginning, mean: be quiet."""
    repairs: tuple[tuple[str, ...], ...]
    """Phrases that, at the beginning, correct what was said."""


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(words(phrase)) for phrase in text.split("|"))


ENGLISH = WordLists(
    acknowledgements=frozenset(
        word
        for phrase in _phrases(
            "mhm|mm|mmm|mmhmm|hmm|hm|uh|huh|uhhuh|um|yeah|yep|yes|yup|ok|okay|right|sure|aha|ah|oh|i see|wow|good|great|cool"
        )
        for word in phrase
    ),
    stops=_phrases(
        "stop|wait|hold on|be quiet|quiet|shut up|enough|pause|one moment|hang on|never mind|cancel"
    ),
    repairs=_phrases("no|actually|i mean|i meant|sorry|not that|wrong|rather"),
)
CHINESE = WordLists(
    acknowledgements=frozenset("嗯哦啊对是好的呢哈喔行"),
    stops=_phrases("停|等一下|等等|别说了|安静|够了|打住"),
    repairs=_phrases("不是|不对|不|我是说|错了"),
)
LISTS = {"en": ENGLISH, "zh": CHINESE}


def lists_for(language: str) -> WordLists:
    """The lists of a language by its first two letters; English where there are none."""
    return LISTS.get(language[:2].lower(), ENGLISH)


def starts_with(said: list[str], phrases: tuple[tuple[str, ...], ...]) -> bool:
    """Whether what was said begins with one of the phrases."""
    return any(tuple(said[: len(phrase)]) == phrase for phrase in phrases)


def is_only(said: list[str], phrases: tuple[tuple[str, ...], ...]) -> bool:
    """Whether what was said is nothing but such phrases, one after the other."""
    rest = said
    while rest:
        length = max((len(p) for p in phrases if tuple(rest[: len(p)]) == p), default=0)
        if length == 0:
            return False
        rest = rest[length:]
    return bool(said)
