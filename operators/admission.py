"""Which record of a source is new, which a repeat, which too late (law 4): a pure watermark per source.

A source that numbers its records is known by the numbers: what is not above the watermark is a repeat, unless it fills a gap that
was declared when a later number came; then it is late. One that does not number them is known by their ids.
"""

from typing import Literal

Admission = Literal["new", "repeat", "late"]

GAPS_KEPT = 4096
"""Declared missing numbers remembered per source; older ones count as repeats."""


class SourceWatermark:
    """What one source has sent so far."""

    __slots__ = ("ids", "last", "missing")

    def __init__(self) -> None:
        self.last: int | None = None
        self.missing: set[int] = set()
        self.ids: set[str] = set()

    def admit(self, id_: str, sequence: int | None) -> Admission:
        """Judge the next record of this source and take note of it."""
        if sequence is None:
            if id_ in self.ids:
                return "repeat"
            self.ids.add(id_)
            return "new"
        if self.last is None or sequence == self.last + 1:
            self.last = sequence
            return "new"
        if sequence > self.last:
            if len(self.missing) < GAPS_KEPT:
                self.missing.update(range(self.last + 1, min(sequence, self.last + 1 + GAPS_KEPT)))
            self.last = sequence
            return "new"
        return "late" if sequence in self.missing else "repeat"


class Watermarks:
    """The watermarks of all sources of a session."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[str, SourceWatermark] = {}

    def admit(self, source: str, id_: str, sequence: int | None) -> Admission:
        mark = self._sources.get(source)
        if mark is None:
            mark = self._sources[source] = SourceWatermark()
        return mark.admit(id_, sequence)
