"""Timelines as Bytewax sources and sinks: the only place where the two meet.

- One reader a worker for all its places, one timeline a worker to write with (a request costs the same whatever it carries).
- A worker takes the partitions whose number is its index modulo the number of workers; order within a partition is kept.
- Reads are paced by load: with few records they are handed over at once, with many they are gathered for a few milliseconds, because
  batches are what saves (model calls, transactions, requests).
- No recovery: where to start is the flow's own business (`start` looks through the log).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, Protocol

from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from tenacity import (
    Retrying,
    before_sleep_log,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from infra.clock import monotonic_s, sleep_s
from infra.timeline.port import Place, Reader, Timeline
from schemas.cloudevents import wire_type
from schemas.errors import VenusError
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import MEDIA_TYPES

log = logging.getLogger(__name__)

Start = Callable[[Timeline, Sequence[int]], tuple[dict[Place, int], Sequence[Any]]]
"""Given a worker's timeline and partitions: where to begin, and what to send before anything else."""

READY = "reads the timeline"
"""What a worker's log says once it has looked through the log and begins to follow it; `venus run` waits for this line."""

EPOCH = timedelta(seconds=10)
"""Long epochs: nothing is snapshotted, and an epoch's end makes all workers wait for each other."""

POLL_S = 0.25
POLL_WITH_EXTRA_S = 0.01
"""How long a poll may wait; shorter where results come from elsewhere too."""

PACE_S = 0.02
BUSY_PER_S = 500.0
"""Records a second from which reads are paced by `PACE_S`, and by up to twice that with more of them."""

SELDOM_S = 0.05
SELDOM_POLL_S = 0.001
"""How often lanes named `seldom` are looked at, and for how long (a Kafka poll of 0 returns only what was fetched before)."""

_SMOOTHING_S = 1.0
_RETRY_S = 60.0
_MEDIA = frozenset(wire_type(name).encode() for name in MEDIA_TYPES)


class Flag(Protocol):
    """What ends a source: a `threading.Event`."""

    def is_set(self) -> bool: ...


def _retrying() -> Retrying:
    """Ride out a log that cannot be reached for a while; everything else is raised at once."""
    return Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, VenusError) and e.retryable),
        wait=wait_random_exponential(multiplier=0.1, max=5),
        stop=stop_after_delay(_RETRY_S),
        before_sleep=before_sleep_log(log, logging.WARNING),
        reraise=True,
    )


def _ride_out(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call; where the log cannot be reached now, again and again for a while."""
    # First without tenacity, whose bookkeeping costs a quarter of a millisecond, more than most polls.
    try:
        return call(*arguments)
    except VenusError as error:
        if not error.retryable:
            raise
        log.warning("%s; trying again", error)
    return _retrying()(call, *arguments)


class _Partition(StatelessSourcePartition[Any]):
    def __init__(self, source: "TimelineSource", worker: int, workers: int) -> None:
        self._source = source
        self._timeline = source.open_timeline()
        mine = [p for p in range(self._timeline.partitions) if p % workers == worker]
        starts, first = self._begin(mine)
        self._reader = self._reader_of(starts, lambda lane: lane not in source.seldom)
        self._seldom = self._reader_of(starts, lambda lane: lane in source.seldom)
        self._looked = 0.0
        self._first = list(first)
        log.info("worker %d of %d %s", worker + 1, workers, READY)
        self._rate = 0.0
        self._last = monotonic_s()

    def _begin(self, mine: Sequence[int]) -> tuple[dict[Place, int], Sequence[Any]]:
        if self._source.start is not None:
            return self._source.start(self._timeline, mine)
        return {Place(lane, p): 0 for lane in self._source.lanes for p in mine}, ()

    def _reader_of(self, starts: dict[Place, int], wanted: Callable[[Lane], bool]) -> Reader | None:
        chosen = {place: offset for place, offset in starts.items() if wanted(place.lane)}
        return self._timeline.reader(chosen) if chosen else None

    def next_batch(self) -> list[Any]:
        source = self._source
        if source.stop.is_set():
            raise StopIteration
        self._pace()
        items, self._first = self._first, []
        if source.extra is not None:
            items += source.extra()
        records = self._read(0.0 if items else source.poll_s)
        if source.extra is not None and not items:
            items += source.extra()
        self._count(len(records))
        items += records
        return items

    def _read(self, timeout_s: float) -> list[StoredRecord]:
        if self._reader is None:
            sleep_s(timeout_s)
            return []
        found: list[StoredRecord] = []
        if self._seldom is not None and self._last - self._looked >= SELDOM_S:
            self._looked = self._last
            found = _ride_out(self._seldom.poll, SELDOM_POLL_S)
        found += _ride_out(self._reader.poll, 0.0 if found else timeout_s)
        return found

    def _pace(self) -> None:
        """Let records gather. Before the read: what was read is handed over at once."""
        pace = self._source.pace_s
        if pace is None:
            load = self._rate / self._source.busy_per_s
            pace = PACE_S * min(load, 2.0) if load > 1.0 else 0.0
        passed = monotonic_s() - self._last
        if passed < pace:
            sleep_s(pace - passed)

    def _count(self, count: int) -> None:
        now = monotonic_s()
        passed = max(1e-6, now - self._last)
        keep = max(0.0, 1.0 - passed / _SMOOTHING_S)
        self._rate = self._rate * keep + (1.0 - keep) * (count / passed)
        self._last = now

    def close(self) -> None:
        for reader in (self._reader, self._seldom):
            if reader is not None:
                reader.close()
        self._timeline.close()


class TimelineSource(DynamicSource[Any]):
    """Follows the lanes of a timeline: emits what `start` says first, then `StoredRecord`s and whatever `extra` returns.

    Args:
        open_timeline: opens a timeline of the worker's own.
        lanes: what to read from offset 0 where there is no `start`.
        start: see `Start`.
        extra: asked for further items at every turn (finished work, ticks); must not wait.
        stop: ends the dataflow once set, with everything written.
        pace_s: gather reads for so long whatever the load; None: by load.
        busy_per_s: the load from which reads are paced.
        seldom: lanes that are only looked at every `SELDOM_S`: a flow is not woken by what it does not wait for.
        poll_s: how long a poll may wait for records, and `extra` with it; None: the usual.
    """

    def __init__(
        self,
        open_timeline: Callable[[], Timeline],
        lanes: Sequence[Lane],
        *,
        stop: Flag,
        start: Start | None = None,
        extra: Callable[[], Iterable[Any]] | None = None,
        pace_s: float | None = None,
        busy_per_s: float = BUSY_PER_S,
        poll_s: float | None = None,
        seldom: Sequence[Lane] = (),
    ) -> None:
        self.seldom = tuple(seldom)
        self.open_timeline, self.lanes, self.start, self.stop = open_timeline, lanes, start, stop
        self.extra, self.pace_s, self.busy_per_s = extra, pace_s, busy_per_s
        self.poll_s = poll_s or (POLL_S if extra is None else POLL_WITH_EXTRA_S)

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Partition:
        return _Partition(self, worker_index, worker_count)


class _Writer(StatelessSinkPartition[Record]):
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def write_batch(self, items: list[Record]) -> None:
        events = [r for r in items if not _is_media(r)]
        media = [r for r in items if _is_media(r)] if len(events) < len(items) else []
        for lane, records in ((Lane.MEDIA, media), (Lane.TIMELINE, events)):
            if records:
                _ride_out(self._timeline.append, records, lane)

    def close(self) -> None:
        self._timeline.close()


def _is_media(record: Record) -> bool:
    return any(name == "ce_type" and value in _MEDIA for name, value in record.headers)


class TimelineSink(DynamicSink[Record]):
    """Appends records, each batch at once and in order."""

    def __init__(self, open_timeline: Callable[[], Timeline]) -> None:
        self._open = open_timeline

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Writer:
        return _Writer(self._open())


# --- recordings


class _Recorded(StatelessSourcePartition[StoredRecord]):
    BATCH = 500

    def __init__(self, records: Iterator[StoredRecord]) -> None:
        self._records = records

    def next_batch(self) -> list[StoredRecord]:
        batch = list(islice(self._records, self.BATCH))
        if not batch:
            raise StopIteration
        return batch


class RecordedSource(DynamicSource[StoredRecord]):
    """The records of a recording, once, in order; the first worker reads them all."""

    def __init__(self, records: Callable[[], Iterator[StoredRecord]]) -> None:
        self._records = records

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Recorded:
        return _Recorded(self._records() if worker_index == 0 else iter(()))


class _Collector(StatelessSinkPartition[Any]):
    def __init__(self, collect: Callable[[Any], None]) -> None:
        self._collect = collect

    def write_batch(self, items: list[Any]) -> None:
        for item in items:
            self._collect(item)


class CollectSink(DynamicSink[Any]):
    """Hands every item to a function of this process."""

    def __init__(self, collect: Callable[[Any], None]) -> None:
        self._collect = collect

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Collector:
        return _Collector(self._collect)
