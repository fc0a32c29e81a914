"""The metrics of Full-Duplex-Bench v1 (Lin et al. 2025, arXiv:2503.04721), on the words that the assistant spoke.

- takeover: of what is said in answer to a turn, 0 if there are no words, or if they last less than 1 s and are at most 3; else 1. (A short
  acknowledgement takes no floor.)
- latency: where the floor was taken, from the reference to the first word; negative ones count as 0. The reference is the end of the
  user's speech in the turn, which the benchmark takes from its data sets and we from the log (`turn.ended`'s `end_us`).
- backchannel frequency: stretches of speech (words with less than 200 ms between them) that are no takeover, per second of the recording.
- backchannel distance: Jensen-Shannon distance between the times of backchannels here and in a reference, as distributions over bins of
  200 ms, each counted in all bins that it touches (natural logarithm: 0 for equal ones, √ln 2 ≈ .833 for disjoint ones; 1 by
  convention if only the reference has any). The reference is the recording of the same name below `venus stats --reference`.

In our own sessions, turns with words are counted; the words of its responses that were heard are spread evenly over the time in which they
were. In a recording from elsewhere that has words and a speaker named `assistant`, each stretch for which somebody else holds the floor is
a turn, and what the assistant says until it loses the floor again is its answer.
"""

from collections.abc import Iterable, Sequence
from math import log, sqrt
from typing import NamedTuple

from flows.analysis.floor import IPU_US, Floor, Span

ASSISTANT = "assistant"
BIN_US = 200_000
SHORT_US = 1_000_000
FEW_WORDS = 3
NONE_HERE = 1.0
"""The distance where nobody made a backchannel, but somebody did in the reference."""


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


def stretches(words: Iterable[Spoken]) -> list[list[Spoken]]:
    """Words that follow each other without a pause."""
    found: list[list[Spoken]] = []
    for word in sorted(words, key=lambda w: w.start_us):
        if found and word.start_us - found[-1][-1].end_us < IPU_US:
            found[-1].append(word)
        else:
            found.append([word])
    return found


def backchannels(words: Iterable[Spoken]) -> list[Span]:
    """From when to when there were stretches that take no floor."""
    return [(s[0].start_us, s[-1].end_us) for s in stretches(words) if not takeover(s)]


def jensen_shannon(
    times: Sequence[Span], reference: Sequence[Span], duration_us: int
) -> float | None:
    """The distance between two sets of stretches; None where the reference is empty."""
    if not reference:
        return None
    if not times:
        return NONE_HERE
    bins = max(1, -(-duration_us // BIN_US))
    p, q = _distribution(times, bins), _distribution(reference, bins)
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += (a * log(a / middle) if a else 0.0) + (b * log(b / middle) if b else 0.0)
    return sqrt(max(0.0, total / 2))


def _distribution(times: Sequence[Span], bins: int) -> list[float]:
    counts = [0] * bins
    for start, end in times:
        last = min(bins - 1, end // BIN_US)
        for index in range(min(start // BIN_US, last), last + 1):
            counts[index] += 1
    return [count / sum(counts) for count in counts]


def spread(texts: Sequence[str], played: Sequence[Span]) -> list[Spoken]:
    """Words without times, evenly over the stretches in which they were heard; no word lies in two stretches."""
    total = sum(end - start for start, end in played)
    found: list[Spoken] = []
    done = 0
    for start, end in played:
        # The words whose middle falls into this stretch.
        before = done
        done += end - start
        here = [
            w
            for i, w in enumerate(texts)
            if before * 2 * len(texts) <= (2 * i + 1) * total < done * 2 * len(texts)
        ]
        for i, word in enumerate(here):
            length = end - start
            found.append(
                Spoken(word, start + i * length // len(here), start + (i + 1) * length // len(here))
            )
    return found


def answers(floor: Floor, words: Sequence[Spoken]) -> list[tuple[int, list[Spoken]]]:
    """(reference, what the assistant said) for each stretch for which another speaker holds the floor.

    Whoever has the last word was not answered.
    """
    found: list[tuple[int, list[Spoken]]] = []
    for index, one in enumerate(floor.transfers):
        if one.taker == ASSISTANT:
            after = floor.transfers[index + 1 :]
            until = after[0].at_us if after else 1 << 62
            said = [w for w in words if one.at_us <= w.start_us < until]
            found.append((one.at_us - one.offset_us, said))
    first = min((ipus[0][0], speaker) for speaker, ipus in floor.ipus.items() if ipus)[1]
    holder = floor.transfers[-1].taker if floor.transfers else first
    if holder != ASSISTANT:
        found.append((floor.ipus[holder][-1][1], []))
    return found
