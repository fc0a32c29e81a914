"""A result as it can be spoken: at most a few sentences of plain words (pure).

Removed, repeatedly until nothing changes: protocol tokens and any other `<…|…>` marker, code blocks, tags, list and heading marks,
link targets and bare addresses, emphasis. What is left is cut to whole sentences; text without any end is cut at a word.
"""

import re

from operators.spans import without_tokens

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.S)
_MARKER = re.compile(r"<\|[^<>]{0,60}\|>|</?[A-Za-z][^<>]{0,80}>|<!--.*?-->", re.S)
_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,500}\)")
_ADDRESS = re.compile(r"\b(?:https?|ftp|file)://\S+")
_LIST = re.compile(r"^[ \t]*(?:[-*+•‣]|\d{1,3}[.)]|#{1,6}|>+)[ \t]+", re.M)
_RULE = re.compile(r"^[ \t]*(?:[-=_*|:]\s*){3,}$", re.M)
_EMPHASIS = re.compile(r"[*_`~|<>]+|\\(?=\W)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_SENTENCE = re.compile(r".+?(?:[.!?](?=\s|$)|[。！？]|\n|$)", re.S)

_WHY = {
    "timed_out": "it took too long",
    "unavailable": "the service cannot be reached",
    "rejected": "the request could not be understood",
    "lost": "it was interrupted",
    "not_allowed": "that is not allowed here",
    "too_many": "too much is going on already",
}
_OTHERWISE = "something went wrong"
"""Why there is no result, in words for the ear; what a tool said of its failure is for the log."""

READ_CHARS = 20_000
"""Of a longer text only the beginning is looked at."""


def polish(text: str, sentences: int = 3, chars: int = 600) -> str:
    """At most so many sentences and characters of speakable text; empty if nothing is left."""
    text = _CONTROL.sub(" ", text[:READ_CHARS].replace("\r\n", "\n"))
    while True:
        shorter = without_tokens(text)
        for pattern, by in (
            (_FENCE, " "),
            (_MARKER, ""),
            (_LINK, r"\1"),
            (_ADDRESS, ""),
            (_RULE, ""),
            (_LIST, ""),
        ):
            shorter = pattern.sub(by, shorter)
        if shorter == text:
            break
        text = shorter
    text = _EMPHASIS.sub(" ", text)
    parts = [re.sub(r"\s+([,.:;!?])", r"\1", " ".join(s.split())) for s in _SENTENCE.findall(text)]
    parts = [_ended(p) for p in parts if re.search(r"\w", p)]
    kept = ""
    for part in parts[:sentences]:
        if len(kept) + len(part) + 1 > chars:
            break
        kept = f"{kept} {part}".strip()
    if not kept and parts:
        kept = _ended(parts[0][: chars - 1].rsplit(" ", 1)[0])
    return kept


def _ended(sentence: str) -> str:
    sentence = sentence.rstrip(" ,;:-")
    return sentence if sentence.endswith((".", "!", "?", "。", "！", "？")) else f"{sentence}."


def apology(sentence: str, reason: str) -> str:
    """`sentence` with its `{why}` filled in."""
    return sentence.replace("{why}", _WHY.get(reason, _OTHERWISE))
