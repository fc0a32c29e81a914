"""A tool's JSON in words (pure): by the sentence that its intent rule has for it, else name by name.

Tools that a phrase calls answer without a language model in between, and many answer in JSON. Read out as it stands that is quotes and
braces; here it becomes `Timezone Europe/Paris, datetime 2 December 2026, 16:27.`.
"""

import re
from typing import Any

import orjson

from schemas.base import too_deep

VALUES = 40
"""Of a longer answer only so many values are put into words: more than anybody would listen to."""

_FIELD = re.compile(r"\{([^{}]+)\}")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.S)
_WHEN = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])-([0-3][0-9])(?:[T ]([0-2][0-9]):([0-5][0-9])\S*)?")
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MARKS = re.compile(r"[{}\[\]\"]+")


def in_words(result: str, answer: str = "") -> str:
    """What to say of a result; text that is no JSON stays as it is.

    `answer` is a sentence whose `{name}`, `{items.0.title}` are looked up in the result. It is left aside where one of them is missing.
    """
    text = result.strip(" \t\r\n\ufeff")
    fenced = _FENCE.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    if not text.startswith(("{", "[", '"')):
        return result
    try:
        # It refuses what is no JSON though Python reads it (NaN), and text that no record could hold (half a surrogate pair).
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    if value is None or too_deep({"": value}):
        # Cut short, as long results are, or only like JSON.
        return _MARKS.sub(" ", text) if text.startswith(('{"', '[{"', '["')) else result
    filled = _filled(answer, value)
    return filled if re.search(r"\w", filled) else ". ".join(_sentences(value))


def _filled(answer: str, value: Any) -> str:
    missing = False

    def look_up(match: re.Match[str]) -> str:
        nonlocal missing
        found = _at(value, match[1].split("."))
        said = "" if found is None else _flat(found)
        missing = missing or not said
        return said

    sentence = _FIELD.sub(look_up, answer)
    return "" if missing else sentence


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            return None
    return value


def _sentences(value: Any) -> list[str]:
    """One for each thing of a list, else one for all."""
    things = value if isinstance(value, list) and any(map(_compound, value)) else [value]
    said = [_flat(thing) for thing in things[:VALUES]]
    return [sentence[:1].upper() + sentence[1:] for sentence in said if sentence]


def _compound(value: Any) -> bool:
    return isinstance(value, (dict, list))


def _flat(value: Any) -> str:
    """A value in words, without an end."""
    words: list[str] = []
    _add(words, "", value)
    return ", ".join(words[:VALUES])


def _add(words: list[str], name: str, value: Any) -> None:
    if len(words) > VALUES or value is None or value == "":
        return
    if isinstance(value, dict):
        # The only thing in a wrapper needs no name.
        alone = len(value) == 1 and not name
        for key, inner in value.items():
            own = "" if alone else _CAMEL.sub(" ", key).replace("_", " ").replace("-", " ").lower()
            _add(words, f"{name} {own}".strip(), inner)
    elif isinstance(value, list):
        if not any(map(_compound, value)):
            listed = " and ".join(_word(v) for v in value[:VALUES] if v is not None)
            if listed:
                words.append(f"{name} {listed}".strip())
            return
        for inner in value:
            _add(words, name, inner)
    else:
        words.append(f"{name} {_word(value)}".strip())


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _WHEN.sub(_when, str(value))


def _when(match: re.Match[str]) -> str:
    year, month, day, hour, minute = match.groups()
    date = f"{int(day)} {_MONTHS[int(month) - 1]} {year}"
    return date if hour is None else f"{date}, {hour}:{minute}"
