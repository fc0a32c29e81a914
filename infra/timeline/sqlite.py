"""`sqlite://`: the embedded timeline, one file, many processes at once, one partition.

One table per lane. An append is one `BEGIN IMMEDIATE` transaction that numbers its records itself from the last offset,
so that offsets start at 0 and have no holes, and the positions are known without asking back. Each reader and each scan
has a connection of its own; `wal_watch` says how a reader waits. `sqlite_file` has the file, its durability and its errors.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import orjson

from infra.clock import monotonic_s, wall_us
from infra.timeline.closing import Closing
from infra.timeline.headers import decode_headers, encode_headers, plain_prefix, split_headers
from infra.timeline.port import CHUNK_EVENTS, Place, Position
from infra.timeline.sqlite_file import TimelineFile, begin_write
from infra.timeline.url import TimelineUrl
from infra.timeline.validate import check_records, check_start
from infra.timeline.wal_watch import WalWatch
from schemas.cloudevents import JSON_TYPE, WINDOW, decode_parts, decode_window, wire_type
from schemas.envelope import Event
from schemas.errors import BadRecord, TimelineError
from schemas.record import Lane, Record, StoredRecord

_CHUNK_ROWS = 1000
_WINDOW = plain_prefix(
    (
        ("ce_specversion", b"1.0"),
        ("ce_type", wire_type(WINDOW).encode()),
        *((name, b"") for name in ("ce_id", "ce_source", "ce_mediatime", "content-type")),
    )
)
# One poll returns no more than about this much, so that big frames do not fill the memory.
_POLL_BYTES = 32 * 1024 * 1024
_STILL_THERE_S = 1.0

_Row = tuple[int, str | None, bytes, bytes, int]
"""Offset, session, headers, value, time of the append."""


def open_sqlite(url: TimelineUrl, create: bool, environ: Mapping[str, str]) -> "SqliteTimeline":
    return SqliteTimeline(TimelineFile(url, create))


class SqliteTimeline(Closing):
    partitions = 1

    def __init__(self, file: TimelineFile) -> None:
        self._file = file
        self._lock = Lock()
        self._closed = False
        self._db = file.connect()

    @property
    def url(self) -> str:
        return self._file.url

    def partition_of(self, key: str) -> int:
        return 0

    def append(
        self,
        records: Sequence[Record],
        lane: Lane = Lane.TIMELINE,
        appended_us: Sequence[int] | None = None,
    ) -> list[Position]:
        self._check_open()
        check_records(self.url, records)
        if not records:
            return []
        rows = [[0, r.key, encode_headers(r.headers), r.value, 0] for r in records]
        with self._lock:
            self._check_open()
            self._file.check_still_there()
            try:
                first = self._insert(rows, lane, appended_us)
            except sqlite3.Error as error:
                raise self._file.explain(error, "append") from error
        return [Position(0, first + index) for index in range(len(rows))]

    def _insert(self, rows: list[list[Any]], lane: Lane, appended_us: Sequence[int] | None) -> int:
        db = self._db
        begin_write(db)
        try:
            first = _end(db, lane)
            now = wall_us()
            for index, row in enumerate(rows):
                row[0], row[4] = first + index, now if appended_us is None else appended_us[index]
            db.executemany(f"INSERT INTO {lane} VALUES (?, ?, ?, ?, ?)", rows)
            db.execute("COMMIT")
        except BaseException:
            # Some errors (disk full) have rolled back already.
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return first

    def end(self, lane: Lane = Lane.TIMELINE) -> dict[int, int]:
        with self._lock:
            self._check_open()
            try:
                return {0: _end(self._db, lane)}
            except sqlite3.Error as error:
                raise self._file.explain(error, "read") from error

    def reader(self, start: Mapping[Place, int]) -> "SqliteReader":
        self._check_open()
        check_start(self, start)
        return SqliteReader(self, self._file, start)

    def scan(
        self, lane: Lane, partition: int, start: int = 0, session: str | None = None
    ) -> Iterator[StoredRecord]:
        self._check_open()
        check_start(self, {Place(lane, partition): start})
        chunks = self._chunks(lane, start, self.end(lane)[0], session)
        return (record for rows in chunks for record in _stored(lane, rows))

    def event_chunks(self, lane: Lane, session: str | None = None) -> Iterator[list[Event]]:
        """The events of a lane, as `scan` and `decode` give them, at a third of the cost; what cannot be read is left out."""
        self._check_open()
        for rows in self._chunks(lane, 0, self.end(lane)[0], session, CHUNK_EVENTS):
            yield _events(rows)

    def _chunks(
        self,
        lane: Lane,
        start: int,
        end: int,
        session: str | None,
        limit: int = _CHUNK_ROWS,
    ) -> Iterator[list[_Row]]:
        """Each a short read transaction: a long one would keep the WAL from being folded back."""
        try:
            db = self._file.connect()
        except sqlite3.Error as error:
            raise self._file.explain(error, "read") from error
        try:
            while start < end:
                self._check_open()
                try:
                    found = _rows(db, lane, start, end, limit, session)
                except sqlite3.Error as error:
                    raise self._file.explain(error, "read") from error
                if not found:
                    return
                yield found
                start = found[-1][0] + 1
        finally:
            db.close()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()


class SqliteReader:
    def __init__(
        self, timeline: SqliteTimeline, file: TimelineFile, start: Mapping[Place, int]
    ) -> None:
        self._timeline, self._file = timeline, file
        self._next = dict(start)
        self._checked_s = monotonic_s()
        self._db: sqlite3.Connection | None = None
        try:
            self._db = file.connect()
            # The first read makes the -wal file, which can be watched from then on.
            _end(self._db, Lane.TIMELINE)
        except sqlite3.Error as error:
            raise file.explain(error, "read") from error
        self._watch = WalWatch(file.path + "-wal")

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[StoredRecord]:
        deadline = monotonic_s() + timeout_s
        while True:
            self._timeline._check_open()
            if self._db is None:
                raise TimelineError(f"a reader of timeline {self._file.url} is closed")
            try:
                found = self._take(self._db, max_records)
            except sqlite3.Error as error:
                raise self._file.explain(error, "read") from error
            now = monotonic_s()
            if found:
                self._watch.found(now)
            if found or now >= deadline:
                return found
            if now - self._checked_s > _STILL_THERE_S:
                self._file.check_still_there()
                self._checked_s = now
            self._watch.wait(deadline - now, now)

    def _take(self, db: sqlite3.Connection, max_records: int) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        for place in list(self._next):
            new = _rows(db, place.lane, self._next[place], None, max_records - len(found), None)
            if new:
                # What was served goes to the back, so that a busy lane does not starve the other.
                del self._next[place]
                self._next[place] = new[-1][0] + 1
                found += _stored(place.lane, new)
            if len(found) >= max_records:
                break
        return found

    def position(self, place: Place) -> int:
        return self._next[place]

    def close(self) -> None:
        if self._db is not None:
            self._watch.close()
            self._db.close()
            self._db = None


def _end(db: sqlite3.Connection, lane: Lane) -> int:
    (last,) = db.execute(f"SELECT max(offset) FROM {lane}").fetchone()
    return 0 if last is None else last + 1


def _rows(
    db: sqlite3.Connection,
    lane: Lane,
    start: int,
    end: int | None,
    limit: int,
    session: str | None,
) -> list[_Row]:
    where, values = "offset >= ?", [start]
    if end is not None:
        where += " AND offset < ?"
        values.append(end)
    if session is not None:
        where += " AND session = ?"
        values.append(session)  # type: ignore[arg-type]
    cursor = db.execute(
        f"SELECT offset, session, headers, value, appended_us FROM {lane} WHERE {where} "
        f"ORDER BY offset LIMIT {limit}",
        values,
    )
    found: list[_Row] = []
    size = 0
    for row in cursor:
        offset, key, headers, value, appended_us = row
        if type(key) is not str or type(headers) is not bytes or type(value) is not bytes:
            row = (offset, *_foreign(key, headers, value), appended_us)
        found.append(row)
        size += len(row[3])
        if size > _POLL_BYTES:
            break
    cursor.close()
    return found


def _stored(lane: Lane, rows: list[_Row]) -> Iterator[StoredRecord]:
    for offset, key, headers, value, appended_us in rows:
        try:
            decoded = decode_headers(headers)
        except ValueError:
            # Nobody of ours wrote this; without headers it is rejected by name, and the flow goes on.
            decoded = ()
        yield StoredRecord(lane, 0, offset, appended_us, key, decoded, value)


def _events(rows: list[_Row]) -> list[Event]:
    found: list[Event] = []
    skip, loads = len(_WINDOW), orjson.loads
    for _, key, headers, value, _ in rows:
        try:
            if headers.startswith(_WINDOW):
                try:
                    id_, source, mediatime, content_type = headers[skip:].split(b"\0")
                    if content_type == JSON_TYPE:
                        data = loads(value)
                        found.append(
                            decode_window(key or "", id_.decode(), source.decode(), mediatime, data)
                        )
                        continue
                except ValueError:
                    pass
            names, values = split_headers(headers)
            found.append(decode_parts(key, names, values, value))  # type: ignore[arg-type]
        except (BadRecord, ValueError):
            continue
    return found


def _foreign(key: object, headers: object, value: object) -> tuple[str | None, bytes, bytes]:
    """What another program put into the tables with types of its own."""

    def as_bytes(thing: object) -> bytes:
        return thing if isinstance(thing, bytes) else str(thing).encode()

    return key if isinstance(key, str) else None, as_bytes(headers), as_bytes(value)
