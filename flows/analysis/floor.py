"""The floor from speech activity alone: inter-pausal units, gaps, overlaps, pauses, floor-transfer offsets.

Works on any conversation of which is known who spoke when. After Heldner and Edlund (2010, "Pauses, gaps and overlaps in
conversations"): activity is merged into inter-pausal units (IPUs, silences of less than 200 ms bridged); between two IPUs of different
speakers lies a gap or an overlap, between two of one speaker a pause; an IPU inside another's is an overlap within, and moves no floor.
The floor-transfer offset (FTO) is positive for a gap, negative for an overlap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

IPU_US = 200_000

Span = tuple[int, int]
"""From µs to µs."""


class Transfer(NamedTuple):
    """The floor goes from one speaker to another; `offset_us` is its FTO."""

    at_us: int
    giver: str
    taker: str
    offset_us: int


@dataclass(slots=True)
class Floor:
    """What the activity of a conversation's speakers makes."""

    ipus: dict[str, list[Span]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    within: list[Span] = field(default_factory=list)
    """Overlaps that moved no floor."""
    pauses: list[tuple[str, Span]] = field(default_factory=list)

    @property
    def gaps(self) -> list[int]:
        return [t.offset_us for t in self.transfers if t.offset_us >= 0]

    @property
    def overlaps(self) -> list[int]:
        """Durations of overlaps between turns, positive."""
        return [-t.offset_us for t in self.transfers if t.offset_us < 0]


def merge(spans: Iterable[Span], bridge_us: int = IPU_US) -> list[Span]:
    """Spans of one speaker in order, silences of less than `bridge_us` bridged."""
    out: list[Span] = []
    for start, end in sorted(s for s in spans if s[1] > s[0]):
        if out and start - out[-1][1] < bridge_us:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def floor(activity: Mapping[str, Iterable[Span]]) -> Floor:
    """The floor of a conversation."""
    found = Floor({speaker: merge(spans) for speaker, spans in activity.items()})
    units = sorted(
        (start, end, speaker) for speaker, ipus in found.ipus.items() for start, end in ipus
    )
    if not units:
        return found
    _, end, holder = units[0]
    for start, until, speaker in units[1:]:
        if speaker == holder:
            found.pauses.append((speaker, (end, start)))
            end = until
        elif start < end and until <= end:
            found.within.append((start, until))
        else:
            found.transfers.append(Transfer(start, holder, speaker, start - end))
            end, holder = until, speaker
    return found
