"""The port to the causal timeline: what every log (memory, SQLite, Kafka, …) offers, and nothing more.

A timeline has two lanes (`Lane.TIMELINE`, `Lane.MEDIA`) with the same number of partitions. A session lives in exactly one
partition, the one that `partition_of` names (Kafka's murmur2 of the key, so that any Kafka client agrees); the offset order
of a partition of the timeline lane is the causal order of its sessions. Offsets rise strictly; they may have holes.
`infra.timeline.open_timeline` opens one by URL.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from schemas.record import Lane, Record, StoredRecord

CHUNK_EVENTS = 64
"""Events that are read at once: so few that they are still in the processor's cache when they are used. A thousand cost a quarter more."""


class Place(NamedTuple):
    """A partition of a lane."""

    lane: Lane
    partition: int


class Position(NamedTuple):
    """Where a record was stored."""

    partition: int
    offset: int


class Reader(Protocol):
    """Follows one or more places. Not thread-safe: one reader a thread."""

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[StoredRecord]:
        """Return the next records, in offset order within each place, at most `max_records`.

        Returns as soon as there is at least one; an empty list after `timeout_s` seconds without any. A timeout of 0 looks
        once and returns.

        Raises:
            TimelineUnavailable: the log cannot be reached (trying again makes sense).
            TimelineError: the log cannot be read.
        """
        ...

    def position(self, place: Place) -> int:
        """The offset that the next record of this place will have at least."""
        ...

    def close(self) -> None: ...


class Timeline(Protocol):
    """An open log. Appends are durable when `append` returns."""

    @property
    def url(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    def partition_of(self, key: str) -> int:
        """The partition in which the session `key` lives."""
        ...

    def append(
        self,
        records: Sequence[Record],
        lane: Lane = Lane.TIMELINE,
        appended_us: Sequence[int] | None = None,
    ) -> list[Position]:
        """Append a batch in order and return the positions; records of one key keep their order and are never interleaved
        with a repeat of themselves. When it raises, a prefix of each partition's records may have been stored.

        appended_us: for a copy from another log, when each was appended there. Kafka stamps its records itself.

        Raises:
            TimelineUnavailable: nothing more could be written now (trying again makes sense).
            TimelineError: it can never be written (too large, disk full, no such topic, …).
        """
        ...

    def end(self, lane: Lane = Lane.TIMELINE) -> dict[int, int]:
        """Partition → the offset after the last record there now (0 for an empty one)."""
        ...

    def reader(self, start: Mapping[Place, int]) -> Reader:
        """A reader over the given places, each from the given offset (a place not named is not read)."""
        ...

    def scan(
        self, lane: Lane, partition: int, start: int = 0, session: str | None = None
    ) -> Iterator[StoredRecord]:
        """The records from `start` to the end as it is now, then stop; of one session where `session` is given."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
