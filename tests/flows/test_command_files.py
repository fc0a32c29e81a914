"""Session files on the command line: what a failed import leaves behind, folders, files as sources, output that nobody looks at."""

import json
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flows.cli import main
from flows.session_files import Wishes, copy, export, open_file
from flows.session_import import import_file
from flows.supervisor import OneRun
from flows.what_if import _change
from infra.timeline import open_timeline
from schemas.errors import BadInput
from schemas.record import Lane
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


def test_a_copy_keeps_the_times_at_which_things_were_appended(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else every latency of a model would be 0 after an import."""
    url = f"sqlite:///{tmp_path}/new.db"
    statement = 'select type, appended_us from events order by "offset"'
    rows = []
    assert venus("export", folder / "one.mcap", "--to", tmp_path / "one.jsonl") == 0
    assert venus("import", tmp_path / "one.jsonl", "--timeline", url) == 0
    for where in (folder / "one.mcap", tmp_path / "one.jsonl", url):
        capsys.readouterr()
        assert venus("sql", statement, where, "--json") == 0
        rows.append(capsys.readouterr().out)
    assert rows[0] == rows[1] == rows[2] and rows[0].count("\n") > 50


@pytest.mark.parametrize(("media", "events"), [(0, 0), (7, 0), (40, 0), (60, 1), (60, 50)])
def test_an_import_that_was_killed_goes_on_where_it_stopped(
    tmp_path: Path, media: int, events: int
) -> None:
    log = memory(talk("one", 6).close(), talk("two", 6).close())
    export(log, tmp_path / "both.mcap", Wishes())
    with open_file(tmp_path / "both.mcap") as source, open_timeline("memory://") as into:
        for lane, count in ((Lane.MEDIA, media), (Lane.TIMELINE, events)):
            copy(islice(source.scan(lane, 0), count), into)
        names, added = import_file(tmp_path / "both.mcap", into)
        assert names == ["one", "two"]
        for lane in Lane:
            for name in names:
                a, b = (list(t.scan(lane, 0, 0, name)) for t in (source, into))
                assert [r[3:] for r in a] == [r[3:] for r in b]
        whole = sum(len(list(source.scan(lane, 0))) for lane in Lane)
        there = min(media, len(list(source.scan(Lane.MEDIA, 0)))) + events
        assert added == whole - there
        with pytest.raises(BadInput, match="already"):
            import_file(tmp_path / "both.mcap", into)


def test_another_session_of_the_name_is_left_alone(tmp_path: Path) -> None:
    export(memory(talk("one", 12).close()), tmp_path / "one.mcap", Wishes())
    into = memory(talk("one", 6).close())
    before = list(into.scan(Lane.TIMELINE, 0))
    with pytest.raises(BadInput, match="already, and goes another way"):
        import_file(tmp_path / "one.mcap", into)
    assert list(into.scan(Lane.TIMELINE, 0)) == before


def test_one_import_at_a_time(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with OneRun(url, "import"):
        assert venus("import", folder, "--timeline", url) == 2
    assert "another `venus import` works on" in capsys.readouterr().err
    assert venus("import", folder, "--timeline", url) == 0


def test_names_that_a_folder_would_hide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = (".hid", "../../evil", "index", "..", "\x01")
    export(memory(*(talk(n, 6).close() for n in names)), tmp_path / "files", Wishes(), "mcap")
    report = tmp_path / "junit.xml"
    assert venus("replay", tmp_path / "files", "--junit", report) == 0
    assert f"{len(names)} of {len(names)} sessions the same" in capsys.readouterr().out
    assert len(list(ElementTree.parse(report).getroot().iter("testcase"))) == len(names)
    assert venus("report", tmp_path / "files", "--out", tmp_path / "pages", "--jobs", "1") == 0
    assert len(list((tmp_path / "pages").glob("*.html"))) == len(names) + 1


def test_sessions_of_one_name_do_not_hide_one_another(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(memory(talk("one", 12).close()), tmp_path / "other.mcap", Wishes())
    assert venus("sql", "select 1", folder / "one.mcap", tmp_path / "other.mcap") == 2
    assert "session 'one' is in" in capsys.readouterr().err


def test_only_a_wav_is_given_a_name(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    assert venus("import", folder / "one.mcap", "--session", "x", "--timeline", url) == 2
    assert "--session names the session of a .wav" in capsys.readouterr().err
