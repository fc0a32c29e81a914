"""The metrics of Full-Duplex-Bench v1 (Lin et al. 2025, arXiv:2503.04721), on the words that the assistant spoke.

- takeover: 0 if there are no words, or if they last less than 1 s and are at most 3; else 1. (A short acknowledgement takes no floor.)
- latency: from the reference (the end of the user's turn) to the first word; negative ones count as 0.
- backchannel frequency: stretches of speech that are no takeover, per second.
- Jensen-Shannon distance between the times of backchannels here and in a reference, as distributions over bins of 200 ms (natural
  logarithm: 0 for equal ones, √ln 2 ≈ .833 for disjoint ones).
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

BIN_US = 200_000
SHORT_US = 1_000_000
FEW_WORDS = 3


class Spoken(NamedTuple):
    """A word that was spoken."""

    text: str
    start_us: int
    end_us: int


def takeover(words: Sequence[Spoken]) -> int:
    """Whether the words take the floor."""
    if not words:
        return 0
    lasted = max(w.end_us for w in words) - min(w.start_us for w in words)
    return 0 if lasted < SHORT_US and len(words) <= FEW_WORDS else 1


def latency_us(words: Sequence[Spoken], reference_us: int) -> int | None:
    """None where nothing was said."""
    if not words:
        return None
    return max(0, min(w.start_us for w in words) - reference_us)


def backchannel_frequency(stretches: Sequence[Sequence[Spoken]], duration_us: int) -> float | None:
    """Per second; a stretch is what was spoken without a pause."""
    if duration_us <= 0:
        return None
    return sum(1 for words in stretches if words and not takeover(words)) / (duration_us / 1e6)


def jensen_shannon(
    times: Sequence[int], reference: Sequence[int], duration_us: int
) -> float | None:
    """The distance between two sets of times; None where one of them is empty."""
    if not times or not reference:
        return None
    bins = max(1, -(-duration_us // BIN_US))
    p, q = _distribution(times, bins), _distribution(reference, bins)
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += (a * log(a / middle) if a else 0.0) + (b * log(b / middle) if b else 0.0)
    return sqrt(max(0.0, total / 2))


def _distribution(times: Sequence[int], bins: int) -> list[float]:
    counts = [0.0] * bins
    for at in times:
        counts[min(bins - 1, max(0, at // BIN_US))] += 1 / len(times)
    return counts
