"""Small records, whole reads, and a writer that runs in a process of its own."""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess

from infra.clock import monotonic_s
from infra.timeline import Place, Reader, Timeline, open_timeline
from schemas.record import Lane, Record, StoredRecord

# Starting processes by fork would copy the Kafka client's threads half alive.
_processes = multiprocessing.get_context("spawn")


def numbered(key: str, count: int, start: int = 0) -> list[Record]:
    return [Record(key, (("ce_id", b"%d" % n),), b"v%d" % n) for n in range(start, start + count)]


def places(timeline: Timeline, *lanes: Lane) -> dict[Place, int]:
    """All places of the lanes (default: the timeline lane), from their start."""
    return {
        Place(lane, p): 0 for lane in lanes or (Lane.TIMELINE,) for p in range(timeline.partitions)
    }


def take(reader: Reader, count: int, within_s: float = 15.0) -> list[StoredRecord]:
    """Poll until `count` records are there; fewer after `within_s` is a failure."""
    found: list[StoredRecord] = []
    deadline = monotonic_s() + within_s
    while len(found) < count and (left := deadline - monotonic_s()) > 0:
        found += reader.poll(left)
    assert len(found) == count, f"{len(found)} of {count} records came within {within_s} s"
    return found


def plain(records: Sequence[StoredRecord]) -> list[Record]:
    return [Record(r.key or "", r.headers, r.value) for r in records]


def by_key(records: Sequence[Record]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    return groups


def start_writer(url: str, key: str, batches: int, size: int) -> SpawnProcess:
    process = _processes.Process(target=_write, args=(url, key, batches, size))
    process.start()
    return process


def _write(url: str, key: str, batches: int, size: int) -> None:
    with open_timeline(url) as timeline:
        for batch in range(batches):
            timeline.append(numbered(key, size, start=batch * size))


def join(process: SpawnProcess) -> None:
    process.join(60)
    assert process.exitcode == 0, f"a writer ended with {process.exitcode}"
