"""Writes a session file: an MCAP file with one channel per event type, opened by Foxglove and every MCAP tool.

Topic = wire type, log time = time of the append, publish time = media time, sequence = offset (its low 32 bits); `mcap_frames` has the
messages. The timeline lane comes first, place by place in offset order, then the media lane: a replay reads the first part and
never touches the media. The file's metadata record `venus` says what it is: its format, the places and where they end, and whatever
the exporter adds (what was redacted, what can no longer be run again).
"""

from collections.abc import Iterable, Mapping
from typing import IO

import orjson
from mcap.writer import CompressionType, Writer

from infra.timeline.mcap_frames import AUDIO, JSON, audio_schema, encoding_of, frame
from schemas.asyncapi import json_schemas
from schemas.record import Lane, StoredRecord

FORMAT = 1
"""Of the file; raised when an older reader would misread it."""

METADATA = "venus"
PROFILE = LIBRARY = "venus"
CHUNK_BYTES = 4 * 1024 * 1024
UNTYPED = "venus.untyped"
"""The topic of records without a type."""


class McapSink:
    """Takes records in file order and writes them to an open binary file; `finish` completes it."""

    def __init__(self, file: IO[bytes], partitions: int, notes: Mapping[str, str] | None = None):
        self._partitions = partitions
        self._notes = dict(notes or {})
        self._writer = Writer(file, chunk_size=CHUNK_BYTES, compression=CompressionType.ZSTD)
        self._writer.start(profile=PROFILE, library=LIBRARY)
        self._schemas: dict[str, int] = {}
        self._json_schemas: dict[str, dict[str, object]] | None = None
        self._channels: dict[tuple[bytes, str, Lane], int] = {}
        self._ends: dict[str, int] = {}

    def add(self, record: StoredRecord) -> None:
        type_, mediatime = b"", 0
        for name, value in record.headers:
            lower = name.lower()
            if lower == "ce_type":
                type_ = value
            elif lower == "ce_mediatime" and value.isdigit() and len(value) < 20:
                mediatime = int(value)
        encoding = encoding_of(record)
        key = (type_, encoding, record.lane)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._register(*key)
        self._writer.add_message(
            channel,
            log_time=record.appended_us * 1000,
            publish_time=min(mediatime * 1000, 2**64 - 1),
            sequence=record.offset & 0xFFFFFFFF,
            data=frame(record, encoding),
        )
        place = f"{record.lane}.{record.partition}"
        self._ends[place] = max(self._ends.get(place, 0), record.offset + 1)

    def add_all(self, records: Iterable[StoredRecord]) -> None:
        for record in records:
            self.add(record)

    def note(self, name: str, value: str) -> None:
        """Add to the file's metadata."""
        self._notes[name] = value

    def finish(self) -> None:
        about = {
            "format": str(FORMAT),
            "partitions": str(self._partitions),
            "ends": orjson.dumps(self._ends).decode(),
        }
        self._writer.add_metadata(METADATA, about | self._notes)
        self._writer.finish()  # type: ignore[no-untyped-call]

    def _register(self, type_: bytes, encoding: str, lane: Lane) -> int:
        topic = type_.decode(errors="replace") or UNTYPED
        schema = 0
        if encoding == AUDIO:
            schema = self._schema("foxglove.RawAudio", "protobuf", audio_schema)
        elif encoding == JSON:
            schema = self._schema(topic, "jsonschema", lambda: self._message_schema(topic))
        return self._writer.register_channel(topic, encoding, schema, {"lane": str(lane)})

    def _schema(self, name: str, encoding: str, data: object) -> int:
        if name not in self._schemas:
            made = data() if callable(data) else b""
            self._schemas[name] = self._writer.register_schema(name, encoding, made)
        return self._schemas[name]

    def _message_schema(self, topic: str) -> bytes:
        """The JSON Schema of the message: place and attributes around the data's own schema."""
        if self._json_schemas is None:
            self._json_schemas = json_schemas()
        known = self._json_schemas.get(topic.removeprefix("venus.").rpartition(".v")[0], {})
        data = {k: v for k, v in known.items() if k not in ("$schema", "$id", "$defs")}
        return orjson.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "title": topic,
                "type": "object",
                "properties": {
                    "session": {"type": "string"},
                    "partition": {"type": "integer"},
                    "offset": {"type": "integer"},
                    "headers": {"type": "object", "additionalProperties": {"type": "string"}},
                    "data": data or {},
                },
                "$defs": known.get("$defs", {}),
            }
        )
