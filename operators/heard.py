"""What was heard of a response, as text: only words whose end had been played (law 10).

The synthesis gives no word times, so a word's end within its sentence is estimated by its share of the characters; a word
counts as heard only when its whole share was played. Scripts without spaces (Chinese, Japanese, Thai) count by character.
"""

import re
from typing import NamedTuple

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f"
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['’-][^\W_{_UNSPACED}]+)*")


class Sentence(NamedTuple):
    """A sentence of a response with the length of its speech; `duration_us` so far, `complete` once the synthesis has ended."""

    text: str
    duration_us: int
    complete: bool


def words(text: str) -> list[str]:
    """The words of a text in lower case without punctuation, script-aware (each Chinese character is one)."""
    return [w.lower() for w in _WORD.findall(text)]


def _part(text: str, played_us: int, duration_us: int) -> str:
    """The words of `text` that had ended after `played_us` of `duration_us`."""
    limit = len(text) * played_us // max(1, duration_us)
    end = 0
    for token in _TOKEN.finditer(text):
        if token.end() > limit:
            break
        end = token.end()
    return text[:end]


def heard_text(sentences: list[Sentence], played_us: int) -> str:
    """The text of the first `played_us` of a response's speech."""
    heard: list[str] = []
    left = played_us
    for text, duration, complete in sentences:
        if duration == 0:
            if complete:
                continue  # its synthesis gave no sound, so nobody has heard it
            break
        if complete and left >= duration:
            heard.append(text)
            left -= duration
            continue
        # Of an unfinished synthesis more audio is to come, so its length is only a lower bound: be careful, not generous.
        assumed = duration if complete else max(duration, len(text) * 60_000)
        part = _part(text, min(left, duration), assumed)
        if part:
            heard.append(part)
        break
    return " ".join(heard)
