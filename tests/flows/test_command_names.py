"""What users call things, on the command line: names that look like markup, that no file may have, that are no text; what was there."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from flows.session_files import Wishes, export
from flows.session_import import import_file
from infra.atomic import LONGEST_NAME, file_stem
from infra.timeline import open_timeline
from tests.replay.sessions import memory, talk
from tests.support.cli import call

pytestmark = pytest.mark.flow

LONG = "é[/]" * 75
MARKUP = "[bold]x[/bold][/]"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A timeline with names of both kinds, and two long ones that differ only at their end."""
    folder = tmp_path_factory.mktemp("names")
    export(
        memory(*(talk(n, 12).close() for n in (MARKUP, LONG + "1", LONG + "2"))),
        folder / "x.mcap",
        Wishes(),
    )
    with open_timeline(f"sqlite:///{folder}/log.db") as log:
        import_file(folder / "x.mcap", log)
    return f"sqlite:///{folder}/log.db"


def test_a_long_name_is_cut_and_stays_apart_from_others() -> None:
    assert file_stem("a/b.c") == "a%2Fb.c" and file_stem("..") == "%2E%2E"
    assert file_stem(".hid.x") == "%2Ehid.x"
    stems = [file_stem(name) for name in (LONG + "1", LONG + "2", "x" * 300, "ü" * 34)]
    assert len(set(stems)) == 4 and max(map(len, stems)) <= LONGEST_NAME
    assert all("%" not in stem[:-17][-2:] for stem in stems)
    assert file_stem("x" * LONGEST_NAME) == "x" * LONGEST_NAME


@pytest.mark.parametrize("format_", ["mcap", "jsonl", "parquet"])
def test_every_session_gets_its_file_whatever_its_name(
    url: str, tmp_path: Path, format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("export", "--to", str(tmp_path / "s"), "--format", format_, "--timeline", url) == 0
    files = [p for p in (tmp_path / "s").rglob("*") if p.is_file()]
    assert len(files) == 3 == len(capsys.readouterr().out.splitlines())


def test_every_session_gets_its_page_whatever_its_name(url: str, tmp_path: Path) -> None:
    assert call("report", url, "--out", str(tmp_path), "--no-sound", "-j", "1") == 0
    assert len(list(tmp_path.glob("*.html"))) == 4


def test_an_export_says_that_it_has_replaced_a_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", "--to", str(tmp_path / "x.mcap"), "--timeline", url]
    for again in (False, True):
        assert call(*arguments) == 0
        assert ("x.mcap (replaced): 3 sessions" in capsys.readouterr().out) is again
    assert call(*arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out)["replaced"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay"],
        ["replay", "--set", "turn.end_silence=400ms"],
        ["state", "--at", "2s"],
        ["tail"],
        ["sessions"],
        ["stats", "--each"],
    ],
    ids=" ".join,
)
def test_a_name_is_never_read_as_markup(
    url: str,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command, *rest = arguments
    session = [] if command == "sessions" else ["--session", MARKUP]
    assert call(command, *rest, *session, "--timeline", url) in (0, 1)
    assert MARKUP in capsys.readouterr().out


def test_a_timeline_without_sessions_has_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    open_timeline(url).close()
    assert call("report", url, "--out", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err == f"venus report: there is no session in {url}\n"


@pytest.mark.parametrize("command", ["report", "stats"])
def test_sound_of_one_channel_is_told_what_it_lacks(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile.write(tmp_path / "mono.wav", np.zeros(16_000, np.int16), 16_000)
    assert call(command, str(tmp_path / "mono.wav")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "two are needed" in line


def test_an_argument_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("send", "text", os.fsdecode(b"a\xff")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "venus: b'a\\xff': arguments are text in UTF-8"
