"""`mcap://`: a session file as a timeline, to read. `venus export` writes such files, `venus import` puts them into a log.

The chunks of a lane are read one after the other and taken apart here rather than by the library's reader, which makes several objects
for every message. Chunks that hold nothing of a lane (or, once known, of a partition) are not decompressed. Where another
tool has rearranged the file (`mcap sort`, `mcap merge`), the records of a place are put back into the order of their offsets.
"""

import contextlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import orjson
import zstandard
from mcap.exceptions import McapError
from mcap.reader import SeekingReader
from mcap.records import Chunk, ChunkIndex
from mcap.summary import Summary

from infra.clock import sleep_s
from infra.timeline.closing import Closing
from infra.timeline.mcap_frames import JSON, BadFrame, unframe
from infra.timeline.mcap_write import FORMAT, LIBRARY, METADATA
from infra.timeline.partition import partition_of
from infra.timeline.port import CHUNK_EVENTS, Place, Position
from infra.timeline.url import TimelineUrl
from infra.timeline.validate import check_start
from schemas.cloudevents import decode, decode_plain, wire_type
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord, TimelineError
from schemas.record import Lane, Record, StoredRecord

_MAGIC = bytes((137, 77, 67, 65, 80, 48, 13, 10))
_MESSAGE = 0x05
_RECORD = struct.Struct("<BQ")
_STAMPS = struct.Struct("<HIQQ")
_CHUNK_HEAD = struct.Struct("<QQQII")


def open_mcap(url: TimelineUrl, create: bool, environ: Mapping[str, str]) -> "McapTimeline":
    url.finish()
    if url.authority or not url.path.strip("/"):
        raise url.bad("write mcap:///path.mcap, or mcap:////absolute/path.mcap")
    return McapTimeline(Path(url.path[1:]), url.shown)


class McapTimeline(Closing):
    def __init__(self, path: Path, url: str | None = None) -> None:
        self.path = path
        self._url = url or f"mcap:///{path}"
        self._file, self._summary, about, library = _look(path)
        self._ours = library == LIBRARY
        """Whether the records lie as `mcap_write` puts them."""
        self.about: dict[str, str] = about
        """The exporter's notes: what was redacted and the like."""
        self.partitions = int(about["partitions"])
        self._ends: dict[str, int] = orjson.loads(about["ends"])
        self._lanes = {
            id_: (Lane(channel.metadata.get("lane", "timeline")), channel.message_encoding)
            for id_, channel in self._summary.channels.items()
        }
        self._holds: dict[int, frozenset[int]] = {}
        """Chunk offset → its partitions, once it has been read."""
        self._closed = False

    @property
    def url(self) -> str:
        return self._url

    @property
    def types(self) -> frozenset[str]:
        """The wire types of all that is in it."""
        return frozenset(channel.topic for channel in self._summary.channels.values())

    def partition_of(self, key: str) -> int:
        return partition_of(key, self.partitions)

    def append(
        self,
        records: Sequence[Record],
        lane: Lane = Lane.TIMELINE,
        appended_us: Sequence[int] | None = None,
    ) -> list[Position]:
        raise TimelineError(
            f"timeline {self.url} is a file to read; `venus import` puts it into a log"
        )

    def end(self, lane: Lane = Lane.TIMELINE) -> dict[int, int]:
        self._check_open()
        return {p: self._ends.get(f"{lane}.{p}", 0) for p in range(self.partitions)}

    def reader(self, start: Mapping[Place, int]) -> "McapReader":
        self._check_open()
        check_start(self, start)
        return McapReader(self, start)

    def scan(
        self, lane: Lane, partition: int, start: int = 0, session: str | None = None
    ) -> Iterator[StoredRecord]:
        self._check_open()
        check_start(self, {Place(lane, partition): start})
        return self._scan(lane, partition, start, session)

    def _scan(
        self, lane: Lane, partition: int, start: int, session: str | None
    ) -> Iterator[StoredRecord]:
        records = self._records(lane, partition)
        if not self._ours:
            records = iter(sorted(records, key=lambda record: record.offset))
        last = -1
        for record in records:
            if record.offset <= last:
                raise TimelineError(
                    f"{self.path}: damaged: offset {record.offset} comes after {last}"
                )
            last = record.offset
            if last >= start and (session is None or record.key == session):
                yield record

    def event_chunks(self, lane: Lane, session: str | None = None) -> Iterator[list[Event]]:
        """The events of a lane, place by place, as `scan` and `decode` give them, at half the cost; what cannot be read is left out."""
        events = (event for _, event in self.stamped(lane, session))
        while chunk := list(islice(events, CHUNK_EVENTS)):
            yield chunk

    def stamped(
        self, lane: Lane, session: str | None = None, without: frozenset[str] = frozenset()
    ) -> Iterator[tuple[int, Event]]:
        """`events` with the time of their append in µs, those of some wire types left out unread."""
        if not self._ours:
            for partition in range(self.partitions):
                found = self.scan(lane, partition, 0, session)
                yield from (
                    pair for pair in _decoded(found) if wire_type(pair[1].type) not in without
                )
            return
        for index in sorted(self._summary.chunk_indexes, key=lambda c: c.chunk_start_offset):
            channels = self._channels_in(index, lane)
            topics = {i: self._summary.channels[i].topic for i in channels}
            wanted = {i: e for i, e in channels.items() if topics[i] not in without}
            if wanted:
                yield from self._events_of(index, lane, wanted, topics, session)

    def _events_of(
        self,
        index: ChunkIndex,
        lane: Lane,
        channels: dict[int, str],
        topics: dict[int, str],
        session: str | None,
    ) -> Iterator[tuple[int, Event]]:
        wires = {i: topic.encode() for i, topic in topics.items()}
        loads = orjson.loads
        for channel, log_time, message in self._messages(index, channels):
            if channels[channel] == JSON:
                try:
                    parsed = loads(message)
                    headers = parsed["headers"]
                    if session is not None and parsed["session"] != session:
                        continue
                    if headers["ce_type"] == topics[channel]:
                        event = decode_plain(
                            wires[channel], parsed["session"], headers, parsed["data"]
                        )
                        if event is not None:
                            yield log_time // 1000, event
                            continue
                except (ValueError, KeyError, TypeError):
                    pass
            record = unframe(message, channels[channel], lane, log_time // 1000)
            if session is None or record.key == session:
                yield from _decoded((record,))

    def _records(self, lane: Lane, partition: int) -> Iterator[StoredRecord]:
        for index in sorted(self._summary.chunk_indexes, key=lambda c: c.chunk_start_offset):
            held = self._holds.get(index.chunk_start_offset)
            if held is not None and partition not in held:
                continue
            channels = self._channels_in(index, lane)
            if channels:
                yield from self._of_chunk(index, lane, channels, partition)

    def _channels_in(self, index: ChunkIndex, lane: Lane) -> dict[int, str]:
        # A file without message indexes says nothing about its chunks' channels.
        ids = index.message_index_offsets or self._lanes
        return {i: self._lanes[i][1] for i in ids if i in self._lanes and self._lanes[i][0] == lane}

    def _of_chunk(
        self, index: ChunkIndex, lane: Lane, channels: dict[int, str], partition: int
    ) -> Iterator[StoredRecord]:
        held: set[int] = set()
        for channel, log_time, message in self._messages(index, channels):
            record = unframe(message, channels[channel], lane, log_time // 1000)
            held.add(record.partition)
            if record.partition == partition:
                yield record
        if len(channels) == len(index.message_index_offsets):
            self._holds[index.chunk_start_offset] = frozenset(held)

    def _messages(
        self, index: ChunkIndex, channels: dict[int, str]
    ) -> Iterator[tuple[int, int, bytes]]:
        """(channel, log time, message) of the given channels in a chunk."""
        data = self._chunk(index)
        at, size = 0, len(data)
        next_record, next_stamps = _RECORD.unpack_from, _STAMPS.unpack_from
        try:
            while at < size:
                opcode, length = next_record(data, at)
                at += 9
                if opcode == _MESSAGE:
                    channel, _, log_time, _ = next_stamps(data, at)
                    if channel in channels:
                        yield channel, log_time, data[at + 22 : at + length]
                at += length
        except (struct.error, BadFrame, UnicodeDecodeError) as error:
            raise TimelineError(f"{self.path}: not a readable session file: {error}") from None

    def _chunk(self, index: ChunkIndex) -> bytes:
        """The decompressed content of a chunk."""
        try:
            self._file.seek(index.chunk_start_offset + 9)
            raw = self._file.read(index.chunk_length - 9)
            start, end, size, crc, _ = _CHUNK_HEAD.unpack_from(raw)
            (named,) = struct.unpack_from("<I", raw, 28)
            compression = raw[32 : 32 + named].decode()
            data = raw[40 + named :]
            if compression == "zstd":
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
            elif compression:
                from mcap.stream_reader import get_chunk_data_stream

                chunk = Chunk(compression, data, end, start, crc, size)
                data = get_chunk_data_stream(chunk)[0].read(size)
        except (OSError, struct.error, McapError, zstandard.ZstdError, UnicodeDecodeError) as error:
            raise TimelineError(
                f"{self.path}: damaged at byte {index.chunk_start_offset}: {error}"
            ) from None
        if len(data) != size or (crc and zlib.crc32(data) != crc):
            raise TimelineError(
                f"{self.path}: damaged at byte {index.chunk_start_offset}: a chunk is not what was written"
            )
        return data

    def close(self) -> None:
        self._closed = True
        self._file.close()


class McapReader:
    """Reads the places one after the other; at the end there is nothing to wait for."""

    def __init__(self, timeline: McapTimeline, start: Mapping[Place, int]) -> None:
        self._timeline = timeline
        self._next = dict(start)
        self._scans = {p: timeline.scan(p.lane, p.partition, at) for p, at in start.items()}

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[StoredRecord]:
        self._timeline._check_open()
        found: list[StoredRecord] = []
        for place, scan in list(self._scans.items()):
            for record in scan:
                found.append(record)
                self._next[place] = record.offset + 1
                if len(found) >= max_records:
                    return found
            del self._scans[place]
        if not found:
            sleep_s(timeout_s)
        return found

    def position(self, place: Place) -> int:
        return self._next[place]

    def close(self) -> None:
        self._scans.clear()


def _decoded(records: Iterable[StoredRecord]) -> Iterator[tuple[int, Event]]:
    for record in records:
        if record.key:
            with contextlib.suppress(BadRecord):
                yield record.appended_us, decode(record)


def _look(path: Path) -> tuple[IO[bytes], Summary, dict[str, str], str]:
    """Open the file and read its summary and our metadata; every way to fail in one clear line."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    file = path.open("rb")
    try:
        if file.read(8) != _MAGIC:
            raise BadInput(f"{path}: not an MCAP file")
        file.seek(-8, 2)
        if file.tell() < 8 or file.read(8) != _MAGIC:
            raise BadInput(
                f"{path}: truncated: its end is missing; `mcap recover` saves what is left"
            )
        file.seek(0)
        reader = SeekingReader(file)
        library = reader.get_header().library
        summary = reader.get_summary()
        found = [m.metadata for m in reader.iter_metadata() if m.name == METADATA]
    except BadInput:
        file.close()
        raise
    except (McapError, OSError, ValueError, struct.error, KeyError, EOFError) as error:
        file.close()
        raise BadInput(f"{path}: damaged: {error or type(error).__name__}") from None
    if summary is None or not found:
        file.close()
        raise BadInput(
            f"{path}: an MCAP file, but not a session file of venus (no metadata {METADATA!r})"
        )
    about = found[-1]
    try:
        version, _, _ = int(about["format"]), int(about["partitions"]), orjson.loads(about["ends"])
    except (KeyError, ValueError) as error:
        file.close()
        raise BadInput(f"{path}: its metadata {METADATA!r} is incomplete: {error}") from None
    if version > FORMAT:
        file.close()
        raise BadInput(
            f"{path}: written by a newer venus (file format {version}); this one reads {FORMAT}"
        )
    return file, summary, about, library
