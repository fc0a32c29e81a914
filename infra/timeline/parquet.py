"""Session files as Parquet: a table of events for DuckDB, pandas and Polars that still holds every record exactly.

| column | holds |
| --- | --- |
| lane, session, partition, offset, appended_us | where and when the record lies in its log |
| type, kind, id, source, mediatime_us, cause, correlation, sequence | CloudEvents attributes; `type` is the short name (`turn.ended`) |
| data | the data as JSON text (`data->>'$.text'` in DuckDB); null for audio |
| value | the bytes where they are no JSON text; null else |
| headers | the attributes as they were: a list of (name, value) |
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import BadInput
from schemas.record import Lane, StoredRecord
from schemas.registry import KINDS

ROWS = 20_000
FORMAT = 1

SCHEMA = pa.schema(
    [
        ("lane", pa.string()),
        ("session", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("appended_us", pa.int64()),
        ("type", pa.string()),
        ("kind", pa.string()),
        ("id", pa.string()),
        ("source", pa.string()),
        ("mediatime_us", pa.int64()),
        ("cause", pa.string()),
        ("correlation", pa.string()),
        ("sequence", pa.int64()),
        ("data", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))),
    ]
)
_TEXTS = {
    "id": "ce_id",
    "source": "ce_source",
    "cause": "ce_causationid",
    "correlation": "ce_correlationid",
}
_NUMBERS = {"mediatime_us": "ce_mediatime", "sequence": "ce_sequence"}


def row_of(record: StoredRecord) -> dict[str, Any]:
    """A record as a row of the table."""
    named = {name.lower(): value for name, value in record.headers}
    wire = named.get("ce_type", b"").decode(errors="replace")
    type_ = wire.removeprefix("venus.").rpartition(".v")[0] or wire
    kind = KINDS.get(type_)
    row: dict[str, Any] = {
        "lane": str(record.lane),
        "session": record.key,
        "partition": record.partition,
        "offset": record.offset,
        "appended_us": record.appended_us,
        "type": type_,
        "kind": None if kind is None else kind.value,
        "headers": [{"name": n, "value": v} for n, v in record.headers],
    }
    for column, header in _TEXTS.items():
        text = named.get(header)
        row[column] = None if text is None else text.decode(errors="replace")
    for column, header in _NUMBERS.items():
        number = named.get(header, b"")
        fits = number.isdigit() and len(number) <= 20 and int(number) < 2**63
        row[column] = int(number) if fits else None
    is_text = named.get("content-type", b"application/json").startswith(b"application/json")
    row |= _data(record.value) if is_text else {"data": None, "value": record.value}
    return row


def _data(value: bytes) -> dict[str, Any]:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return {"data": None, "value": value}
    return {"data": value.decode(), "value": None}


class ParquetSink:
    """Takes records and writes them in row groups."""

    def __init__(self, file: IO[bytes], partitions: int, notes: Mapping[str, str] | None = None):
        self._notes = {"venus.format": str(FORMAT), **(notes or {})}
        self._writer = pq.ParquetWriter(file, SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, record: StoredRecord) -> None:
        self._rows.append(row_of(record))
        self._bytes += len(record.value)
        if len(self._rows) >= ROWS or self._bytes > 32_000_000:
            self._flush()

    def note(self, name: str, value: str) -> None:
        self._notes[name] = value

    def finish(self) -> None:
        self._flush()
        self._writer.add_key_value_metadata(self._notes)
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA))
            self._rows, self._bytes = [], 0


def read_parquet(path: Path) -> Iterator[StoredRecord]:
    """The records of a file.

    Raises:
        BadInput: no Parquet, or not a table that `ParquetSink` wrote.
    """
    try:
        file = pq.ParquetFile(path)
        format_ = int((file.metadata.metadata or {}).get(b"venus.format", b"0"))
        if missing := [name for name in SCHEMA.names if name not in file.schema_arrow.names]:
            raise BadInput(
                f"{path}: Parquet, but not a session file of venus (no column {missing[0]!r})"
            )
        if format_ > FORMAT:
            raise BadInput(
                f"{path}: written by a newer venus (format {format_}); this one reads {FORMAT}"
            )
        for batch in file.iter_batches(batch_size=2000):
            yield from map(_record, batch.to_pylist())
    except (pa.ArrowException, ValueError, OSError) as error:
        raise BadInput(
            f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}"
        ) from None


def _record(row: dict[str, Any]) -> StoredRecord:
    headers = tuple((h["name"], h["value"]) for h in row["headers"])
    value = row["value"] if row["data"] is None else row["data"].encode()
    place = (Lane(row["lane"]), row["partition"], row["offset"])
    return StoredRecord(*place, row["appended_us"], row["session"], headers, value or b"")
