"""Generated text, cut into sentences for the synthesis while the rest is still being generated."""

import re

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])")
_SHORTEST = 12
"""Characters below which a sentence is spoken together with the next one."""


def split_sentences(text: str, all_of_it: bool) -> tuple[list[str], str]:
    """The sentences of `text` that are complete, and the rest; with `all_of_it` the rest is one, too."""
    parts = _SENTENCE_END.split(text)
    ready: list[str] = []
    pending = ""
    for part in parts[:-1]:
        pending = f"{pending} {part}".strip()
        if len(pending) >= _SHORTEST:
            ready.append(pending)
            pending = ""
    rest = f"{pending} {parts[-1]}".strip() if pending else parts[-1]
    if all_of_it:
        return ([*ready, rest.strip()] if rest.strip() else ready), ""
    return ready, rest
