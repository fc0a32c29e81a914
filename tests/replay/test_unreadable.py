"""Session files that are damaged, cut short, foreign or of a newer version: one clear line each, and the others are read all the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mcap.writer import Writer

from flows.cli import main
from flows.session_files import Wishes, export
from flows.session_import import import_file
from infra.timeline import open_timeline
from schemas.record import Record
from schemas.upcast import is_newer
from tests.replay.sessions import records, talk

pytestmark = pytest.mark.flow

Change = Callable[[Record], Record]


def newer_type(*named: bytes) -> Change:
    def change(record: Record) -> Record:
        headers = tuple(
            (n, v[:-1] + b"2" if n == "ce_type" and v[6:-3] in named else v)
            for n, v in record.headers
        )
        return Record(record.key, headers, record.value)

    return change


def newer_policy(record: Record) -> Record:
    if (b"venus.session.configured.v1") not in dict(record.headers).values():
        return record
    data = orjson.loads(record.value)
    data["policy"]["turn"]["end_silence"] = {"adaptive": True}
    return Record(record.key, record.headers, orjson.dumps(data))


def write(path: Path, change: Change = lambda record: record) -> bytes:
    log = open_timeline("memory://")
    log.append([change(r) for r in records(talk("s", 10).close())])
    export(log, path, Wishes())
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One good file of each format, and many bad ones."""
    folder = tmp_path_factory.mktemp("files")
    mcap, lines, parquet = (write(folder / f"good.{e}") for e in ("mcap", "jsonl", "parquet"))
    middle = len(mcap) // 2
    contents = {
        "cut.mcap": mcap[:middle],
        "end.mcap": mcap[:-20],
        "hole.mcap": mcap[:1000] + bytes(500) + mcap[1500:],
        "empty.mcap": b"",
        "noise.mcap": mcap[:8] + bytes(range(256)) * 9 + mcap[-8:],
        "text.mcap": b"this is no such file",
        "cut.jsonl": lines[: len(lines) // 2],
        "foreign.jsonl": b'{"a": 1}\n',
        "binary.jsonl": b"\xff\xfe\x00\n",
        "cut.parquet": parquet[: len(parquet) // 2],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    pq.write_table(pa.table({"x": [1]}), folder / "foreign.parquet")
    with (folder / "foreign.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start("ros2", "another tool")
        channel = writer.register_channel("/x", "json", writer.register_schema("x", "", b""))
        writer.add_message(channel, 0, b"{}", 0)
        writer.finish()
    write(folder / "newer-input.mcap", newer_type(b"transcript.final"))
    write(folder / "newer-decision.jsonl", newer_type(b"turn.ended"))
    write(folder / "newer-policy.mcap", newer_policy)
    return folder


EXPECTED = {
    "cut.mcap": "truncated",
    "end.mcap": "truncated",
    "hole.mcap": "damaged",
    "empty.mcap": "not an MCAP file",
    "noise.mcap": "damaged",
    "text.mcap": "not an MCAP file",
    "foreign.mcap": "not a session file of venus",
    "cut.jsonl": "cut short",
    "foreign.jsonl": "not a session file of venus",
    "binary.jsonl": "not a line of a session file",
    "cut.parquet": "not a readable Parquet file",
    "foreign.parquet": "not a session file of venus",
    "newer-input.mcap": "newer venus, whose venus.transcript.final.v2",
    "newer-decision.jsonl": "newer venus, whose venus.turn.ended.v2",
    "newer-policy.mcap": "session.configured that can be read; was it written by a newer venus?",
}


@pytest.mark.parametrize("command", ["replay", "stats"])
def test_each_is_one_clear_line_and_the_others_are_read(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, str(folder), "--json", "-j", "1"])
    said = capsys.readouterr()
    assert caught.value.code == 2
    lines = said.err.splitlines()
    assert len(lines) == len(EXPECTED), said.err
    for name, expected in EXPECTED.items():
        (line,) = [one for one in lines if f"/{name}:" in one]
        assert expected in line and len(line) < 300 and "Traceback" not in line
    read: list[Any] = [json.loads(line) for line in said.out.splitlines()]
    names = [Path(one["where"]).name for one in read if "where" in one]
    assert sorted(names) == ["good.jsonl", "good.mcap", "good.parquet"]
    if command == "replay":
        assert all(one["same"] for one in read)
    else:
        assert read[-1]["pooled"]["sessions"] == 3


def test_what_is_newer_can_be_moved_all_the_same(folder: Path) -> None:
    """Types that are not understood pass through, unharmed."""
    log = open_timeline("memory://")
    assert import_file(folder / "newer-input.mcap", log)[0] == ["s"]


@pytest.mark.parametrize(
    ("wire", "newer"),
    [
        ("venus.turn.ended.v1", False),
        ("venus.turn.ended.v2", True),
        ("venus.turn.ended.vx", False),
        ("venus.no.such.type.v9", False),
        ("other", False),
    ],
)
def test_a_newer_version_is_one_of_a_type_that_is_known(wire: str, newer: bool) -> None:
    assert is_newer(wire) is newer
