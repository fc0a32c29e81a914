"""`memory://`: the reference timeline. It is what the port says, in as few lines as possible; the others are tested
against the same suite.

One lock and one condition guard a log; `append` wakes every waiting reader. Nothing survives the process. A named log
lives as long as the process, so that a flow and a test that open the same name meet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, Lock

from infra.clock import monotonic_s, wall_us
from infra.timeline.closing import Closing
from infra.timeline.partition import partition_of
from infra.timeline.port import Place, Position
from infra.timeline.url import TimelineUrl
from infra.timeline.validate import check_records, check_start
from schemas.errors import TimelineError
from schemas.record import Lane, Record, StoredRecord


@dataclass
class _Log:
    partitions: int
    changed: Condition = field(default_factory=Condition)
    places: dict[Place, list[StoredRecord]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {Place(lane, p): [] for lane in Lane for p in range(self.partitions)}


_named: dict[str, _Log] = {}
_named_lock = Lock()


def open_memory(url: TimelineUrl, create: bool, environ: Mapping[str, str]) -> "MemoryTimeline":
    partitions = url.take_partitions()
    url.finish()
    if url.path not in ("", "/"):
        raise url.bad("memory:// takes a name and no path")
    if not url.authority:
        return MemoryTimeline(url.shown, _Log(partitions or 1))
    with _named_lock:
        log = _named.get(url.authority)
        if log is None:
            if not create:
                raise TimelineError(
                    f"timeline {url.shown}: this process has no such log; "
                    "a memory log lives only in the process that made it"
                )
            log = _named[url.authority] = _Log(partitions or 1)
    if partitions is not None and partitions != log.partitions:
        raise url.bad(f"it exists with {log.partitions} partitions, not {partitions}")
    return MemoryTimeline(url.shown, log)


class MemoryTimeline(Closing):
    def __init__(self, url: str, log: _Log) -> None:
        self._url, self._log, self._closed = url, log, False

    @property
    def url(self) -> str:
        return self._url

    @property
    def partitions(self) -> int:
        return self._log.partitions

    def partition_of(self, key: str) -> int:
        return partition_of(key, self._log.partitions)

    def append(
        self,
        records: Sequence[Record],
        lane: Lane = Lane.TIMELINE,
        appended_us: Sequence[int] | None = None,
    ) -> list[Position]:
        self._check_open()
        check_records(self._url, records)
        where = [self.partition_of(record.key) for record in records]
        positions = []
        with self._log.changed:
            now = wall_us()
            times = [now] * len(records) if appended_us is None else appended_us
            for record, partition, at in zip(records, where, times, strict=True):
                held = self._log.places[Place(lane, partition)]
                positions.append(Position(partition, len(held)))
                held.append(
                    StoredRecord(
                        lane, partition, len(held), at, record.key, record.headers, record.value
                    )
                )
            self._log.changed.notify_all()
        return positions

    def end(self, lane: Lane = Lane.TIMELINE) -> dict[int, int]:
        self._check_open()
        with self._log.changed:
            return {p: len(self._log.places[Place(lane, p)]) for p in range(self.partitions)}

    def reader(self, start: Mapping[Place, int]) -> "MemoryReader":
        self._check_open()
        check_start(self, start)
        return MemoryReader(self, self._log, start)

    def scan(
        self, lane: Lane, partition: int, start: int = 0, session: str | None = None
    ) -> Iterator[StoredRecord]:
        self._check_open()
        check_start(self, {Place(lane, partition): start})
        with self._log.changed:
            held = self._log.places[Place(lane, partition)][start:]
        return (record for record in held if session is None or record.key == session)

    def close(self) -> None:
        self._closed = True
        with self._log.changed:
            self._log.changed.notify_all()


class MemoryReader:
    def __init__(self, timeline: MemoryTimeline, log: _Log, start: Mapping[Place, int]) -> None:
        self._timeline, self._log = timeline, log
        self._next = dict(start)
        self._closed = False

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[StoredRecord]:
        deadline = monotonic_s() + timeout_s
        with self._log.changed:
            while True:
                if self._closed:
                    raise TimelineError(f"a reader of timeline {self._timeline.url} is closed")
                self._timeline._check_open()
                found = self._take(max_records)
                left = deadline - monotonic_s()
                if found or left <= 0:
                    return found
                self._log.changed.wait(left)

    def _take(self, max_records: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        for place in list(self._next):
            at = self._next.pop(place)
            new = self._log.places[place][at : at + max_records - len(found)]
            found += new
            # What was served goes to the back, so that a busy place does not starve the others.
            self._next[place] = at + len(new)
            if len(found) >= max_records:
                break
        return found

    def position(self, place: Place) -> int:
        return self._next[place]

    def close(self) -> None:
        self._closed = True
