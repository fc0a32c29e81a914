"""Session files on the command line: what a failed import leaves behind, folders, files as sources, output that nobody looks at."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from flows.session_files import Wishes, export
from flows.what_if import _change
from tests.replay.sessions import memory, talk

pytestmark = pytest.mark.flow


def venus(*words: object) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main([str(w) for w in words])
    return caught.value.code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = memory(talk("one", 6).close(), talk("two/2", 9).close())
    export(log, tmp_path / "files", Wishes(), "mcap")
    return tmp_path / "files"


@pytest.mark.parametrize("name", ["bad.mcap", "bad.parquet", "bad.wav", "not-there.mcap"])
def test_an_import_that_fails_leaves_no_timeline(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.startswith("bad"):
        (tmp_path / name).write_bytes(b"no")
    assert venus("import", tmp_path / name, "--timeline", f"sqlite:///{tmp_path}/new.db") == 2
    assert name in capsys.readouterr().err
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("kind", ["mcap", "jsonl", "parquet"])
def test_a_folder_is_imported_and_a_file_exported(
    tmp_path: Path, folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in sorted(folder.iterdir()):
        assert venus("export", file, "--to", tmp_path / "again" / f"{file.stem}.{kind}") == 0
    url = f"sqlite:///{tmp_path}/new.db"
    assert venus("import", tmp_path / "again", "--timeline", url) == 0
    capsys.readouterr()
    assert venus("replay", "--timeline", url) == 0
    told = capsys.readouterr().out
    assert "2 of 2 sessions the same" in told and "two/2" in told


def test_an_empty_folder_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert venus("import", tmp_path / "empty", "--timeline", f"sqlite:///{tmp_path}/new.db") == 2
    assert "empty: there are no session files in it" in capsys.readouterr().err
    assert not (tmp_path / "new.db").exists()


def test_a_replay_of_many_says_which_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert venus("replay", folder) == 0
    told = capsys.readouterr().out
    assert f"{folder / 'one.mcap'}: one: " in told


def test_a_pipe_gets_whole_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement = "select session, id, type, repeat('x', 300) as long from events limit 3"
    assert venus("sql", statement, folder / "one.mcap") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all("x" * 300 in line for line in lines[1:])
    assert venus("sql", statement, folder / "one.mcap", "--json") == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["id"] in lines[1]


def test_durations_are_told_in_seconds() -> None:
    assert _change("silence_us", 320_000, 640_000) == "silence: 0.320 s → 0.640 s"
    assert _change("heard_us", None, 1_500_000) == "heard: None → 1.500 s"
    assert _change("words", 3, 4) == "words: 3 → 4"
