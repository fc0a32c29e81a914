"""Session files as JSON lines: one line a record, for `jq` and every language.

`{"lane","session","partition","offset","appended_us","headers":{name: text},"data": …}`. A value that is not JSON stands in `data_base64`
(as in CloudEvents' JSON format), one that is JSON but not as orjson writes it in both, so that the bytes come back exactly. A header
that is no UTF-8, or comes twice, puts all of them into `headers_base64`, a list of pairs. The first line says what the file is.
"""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from schemas.errors import BadInput
from schemas.record import Lane, StoredRecord

FORMAT = 1


class JsonlSink:
    """Takes records and writes their lines."""

    def __init__(self, file: IO[bytes], partitions: int, notes: Mapping[str, str] | None = None):
        self._file = file
        head = {"venus": "session file", "format": FORMAT, "partitions": partitions}
        self._line(head | dict(notes or {}))

    def add(self, record: StoredRecord) -> None:
        line: dict[str, Any] = {
            "lane": str(record.lane),
            "session": record.key,
            "partition": record.partition,
            "offset": record.offset,
            "appended_us": record.appended_us,
        }
        try:
            headers = {name: value.decode() for name, value in record.headers}
        except UnicodeDecodeError:
            headers = {}
        if len(headers) == len(record.headers):
            line["headers"] = headers
        else:
            line["headers_base64"] = [[n, base64.b64encode(v).decode()] for n, v in record.headers]
        self._line(line | _data(record.value))

    def note(self, name: str, value: str) -> None:
        self._line({"venus": "note", name: value})

    def finish(self) -> None:
        """Nothing is left to write."""

    def _line(self, line: dict[str, Any]) -> None:
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def _data(value: bytes) -> dict[str, Any]:
    try:
        data = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {"data_base64": base64.b64encode(value).decode()}
    if orjson.dumps(data) == value:
        return {"data": data}
    return {"data": data, "data_base64": base64.b64encode(value).decode()}


def read_jsonl(path: Path) -> Iterator[StoredRecord]:
    """The records of a file.

    Raises:
        BadInput: the file, or a line of it, is not what `JsonlSink` writes.
    """
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                line = orjson.loads(text)
                if number == 1:
                    _check_head(path, line)
                if "venus" in line:
                    continue
                yield _record(line)
            except (
                orjson.JSONDecodeError,
                KeyError,
                TypeError,
                ValueError,
                AttributeError,
            ) as error:
                cut = "" if text.endswith(b"\n") else " (the file is cut short there)"
                raise BadInput(
                    f"{path}:{number}: not a line of a session file: {error}{cut}"
                ) from None


def _check_head(path: Path, line: Any) -> None:
    if not isinstance(line, dict) or line.get("venus") != "session file":
        raise BadInput(f"{path}: JSON lines, but not a session file of venus")
    if line.get("format", 0) > FORMAT:
        raise BadInput(
            f"{path}: written by a newer venus (format {line['format']}); this one reads {FORMAT}"
        )


def _record(line: dict[str, Any]) -> StoredRecord:
    if "headers" in line:
        headers = tuple((name, value.encode()) for name, value in line["headers"].items())
    else:
        headers = tuple((n, base64.b64decode(v)) for n, v in line["headers_base64"])
    if "data_base64" in line:
        value = base64.b64decode(line["data_base64"])
    else:
        value = orjson.dumps(line["data"])
    place = (Lane(line["lane"]), int(line["partition"]), int(line["offset"]))
    return StoredRecord(*place, int(line["appended_us"]), line["session"], headers, value)
