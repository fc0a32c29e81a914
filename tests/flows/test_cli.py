"""The command line as scripts see it: exit codes, one clear line for what is wrong, JSON lines; and looking at a timeline."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from flows.cli import COMMANDS
from flows.looking import follow
from flows.settings import Settings
from infra.timeline import open_timeline
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput
from schemas.record import Lane, Record
from schemas.session import SessionClosed, SessionEnded, SessionOpened
from schemas.turns import TurnEnded
from tests.support.cli import call

pytestmark = pytest.mark.flow

KEYS = ["partition", "offset", "session", "id", "type", "kind", "mediatime", "cause", "data"]


def event(session: str, data: Any, at: int, id_: str, cause: str | None = None) -> Record:
    type_ = "media.audio" if isinstance(data, Pcm) else data.TYPE
    return encode(Event(type_, session, id_, "test", data, at, cause, sequence=0))


def turn(session: str, id_: str) -> Record:
    ended = TurnEnded(turn=id_, start_us=0, end_us=900_000, text="how are you", reason="complete")
    return event(session, ended, 1_220_000, id_, cause="w1")


FOREIGN = Record(
    "b",
    (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"com.example.other"),
        ("ce_id", b"f1"),
        ("ce_source", b"elsewhere"),
    ),
    b"{}",
)
GARBAGE = Record("[red]b", (("x", b"\xff"),), b"\0\1\2")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A timeline with an ended session, an open one, a foreign record and garbage."""
    url = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(url) as timeline:
        timeline.append(
            [
                event("a", SessionOpened(device="kitchen"), 0, "a0"),
                event("b", SessionOpened(device="[bold]x"), 0, "b0"),
                turn("a", "a1"),
                FOREIGN,
                GARBAGE,
                event("a", SessionClosed(), 2_000_000, "a2"),
                event("a", SessionEnded(reason="closed", turns=1, responses=0), 2_000_000, "a3"),
            ]
        )
        timeline.append([event("a", Pcm(16_000, 1, bytes(320)), 0, "m0")], Lane.MEDIA)
    return url


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# --- wrong use


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "venus: Missing command; `venus --help` says what there is"),
        (["sing"], "No such command 'sing'"),
        (["tail", "--nope"], "No such option: --nope"),
        (["tail", "too", "much"], "unexpected extra argument"),
        (["tail", "--timeline"], "requires an argument"),
        (["tail", "--timeline", "venus.db"], "'venus.db' is not a URL; use one of memory://"),
        (["tail", "--timeline", "redis://x"], "unknown kind of timeline 'redis'"),
        (["sessions", "--timeline", "sqlite:///not/there.db"], "there is no file"),
        (["tail", "--timeline", "kafka://127.0.0.1:1/x"], "kafka://127.0.0.1:1/x"),
        (["tail", "--lane", "fast"], "--lane fast: there are timeline, media, both"),
        (["run", "--frontend", "opera"], "no frontend 'opera'"),
        (["run", "--flows", "perception,dreams"], "no flow named dreams"),
        (["run", "--timeline", "memory://x"], "memory://"),
        (["flow", "dreams"], "no flow named dreams"),
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("name", "says"),
    [("x" * 300 + ".mcap", "File name too long"), ("file/a.mcap", "File exists")],
    ids=["too long", "below a file"],
)
def test_what_the_file_system_refuses_is_one_line(
    name: str, says: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert call("export", "--timeline", url, "--to", str(tmp_path / name)) == 2
    _, err = capsys.readouterr()
    assert says in err and err.startswith("venus: ") and err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("replay", "--timeline", url, "--junit", "/dev/full") == 2
    _, err = capsys.readouterr()
    assert err.splitlines()[-1] == "venus: writing: No space left on device"


OWN_TIMELINE = {"demo", "bench"}
"""Commands that make the timelines they work on, in a folder of their own."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_a_timeline(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(name, "--help") == 0
    assert "--timeline" in capsys.readouterr().out or name in OWN_TIMELINE


def test_help_lists_the_commands_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys; from flows.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    )
    script += (
        "print(sorted(m for m in sys.modules if m.startswith(('flows.cli.', 'torch', 'bytewax'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "tail" in done.stdout
    assert "  flow" not in done.stdout


@pytest.mark.parametrize(
    ("name", "value"), [("VENUS_LOG_LEVEL", "LOUD"), ("VENUS_DEVICE", "abacus")]
)
def test_a_setting_that_does_not_fit_is_one_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert call("tail") == 2
    assert f"{name} is '{value}'; use one of" in capsys.readouterr().err


def test_settings_come_from_the_environment() -> None:
    assert Settings.read({}) == Settings()
    environ = {"VENUS_TIMELINE": "memory://x", "VENUS_DEVICE": "CUDA", "VENUS_LOG_LEVEL": "debug"}
    read = Settings.read(environ)
    assert (read.timeline, read.device, read.log_level) == ("memory://x", "cuda", "DEBUG")
    with pytest.raises(BadInput, match="VENUS_DEVICE"):
        Settings.read({"VENUS_DEVICE": "tpu"})


def test_the_timeline_comes_from_the_environment_unless_it_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VENUS_TIMELINE", url)
    assert call("sessions", "--json") == 0
    assert [line["session"] for line in lines_of(capsys.readouterr().out)][:2] == ["a", "b"]


# --- looking


def test_tail_gives_json_lines_with_the_promised_keys(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("tail", "--json", "--timeline", url) == 0
    lines = lines_of(capsys.readouterr().out)
    assert [line["offset"] for line in lines] == list(range(7))
    assert all(list(line) == KEYS for line in lines)
    opened, _, decided, foreign, garbage, *_ = lines
    assert opened["kind"] == "observation"
    assert opened["data"]["device"] == "kitchen"
    assert (decided["type"], decided["kind"]) == ("turn.ended", "decision")
    assert (decided["mediatime"], decided["cause"]) == (1_220_000, "w1")
    assert (foreign["type"], foreign["id"], foreign["kind"]) == ("com.example.other", "f1", None)
    assert garbage["type"] is None
    assert "ce_type" in garbage["data"]["error"]


def test_tail_shows_media_as_its_format_and_length(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("tail", "--json", "--lane", "media", "--timeline", url) == 0
    (line,) = lines_of(capsys.readouterr().out)
    assert line["data"] == {"rate": 16_000, "channels": 1, "bytes": 320}
    assert call("tail", "--json", "--lane", "both", "--timeline", url) == 0
    assert len(lines_of(capsys.readouterr().out)) == 8


def test_tail_of_one_session(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("tail", "--json", "--session", "b", "--timeline", url) == 0
    assert {line["session"] for line in lines_of(capsys.readouterr().out)} == {"b"}
    assert call("tail", "--session", "c", "--timeline", url) == 2
    assert "no session 'c' on sqlite://" in capsys.readouterr().err


def test_tail_for_people_has_a_line_for_each_record(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("tail", "--timeline", url) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert "turn.ended" in lines[2]
    assert "how are you" in lines[2]
    assert "0:01.2" in lines[2]
    assert "[red]b" in lines[4]
    assert "unreadable" in lines[4]


def test_sessions_are_listed_with_their_state(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("sessions", "--json", "--timeline", url) == 0
    a, b, other = lines_of(capsys.readouterr().out)
    assert (a["state"], a["device"], a["turns"], a["events"]) == ("ended", "kitchen", 1, 4)
    assert (b["state"], b["unreadable"]) == ("open", 1)
    assert other["session"] == "[red]b"
    assert call("sessions", "--timeline", url) == 0
    out = capsys.readouterr().out
    assert "kitchen" in out
    assert "[bold]x" in out
    assert "ended" in out and "ended (" not in out


def test_a_session_that_ended_in_a_fault_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    ended = SessionEnded(reason="fault", turns=0, responses=0)
    with open_timeline(url) as timeline:
        timeline.append([event("a", SessionOpened(), 0, "a0"), event("a", ended, 1, "a1")])
    assert call("sessions", "--timeline", url) == 0
    assert "ended (fault)" in capsys.readouterr().out
    assert call("sessions", "--json", "--timeline", url) == 0
    (line,) = lines_of(capsys.readouterr().out)
    assert (line["state"], line["reason"]) == ("ended", "fault")


def test_a_long_name_is_whole_in_a_pipe(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "session-" + "0123456789" * 20
    with open_timeline(url) as timeline:
        timeline.append([event(name, SessionOpened(device="kitchen"), 0, "n0")])
    assert call("sessions", "--timeline", url) == 0
    (line,) = [row for row in capsys.readouterr().out.splitlines() if name in row]
    assert "kitchen" in line


def test_following_shows_each_record_once_while_others_append(tmp_path: Path) -> None:
    with open_timeline(f"sqlite:///{tmp_path}/log.db") as timeline:
        timeline.append([turn("a", f"t{i}") for i in range(50)])

        def more() -> None:
            for i in range(50, 300):
                timeline.append([turn("a", f"t{i}")])

        writer = threading.Thread(target=more)
        seen = []
        for record in follow(timeline, (Lane.TIMELINE,), None, on=True):
            if not seen:
                writer.start()
            seen.append(record.offset)
            if len(seen) == 300:
                break
        writer.join()
    assert seen == list(range(300))


def test_places_are_shown_by_the_time_of_their_append() -> None:
    with open_timeline("memory://?partitions=4") as timeline:
        for i in range(40):
            lane = Lane.MEDIA if i % 3 == 0 else Lane.TIMELINE
            data = Pcm(16_000, 1, b"\0\0") if lane is Lane.MEDIA else SessionOpened()
            timeline.append([event(f"s{i % 7}", data, 0, f"e{i}")], lane)
        records = list(follow(timeline, tuple(Lane), None, on=False))
    assert len({r.partition for r in records}) > 1
    assert [r.appended_us for r in records] == sorted(r.appended_us for r in records)
    assert len(records) == 40


# --- as a process


def venus(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flows", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        **more,
    )


@pytest.mark.parametrize("json_", [["--json"], []], ids=["json", "person"])
def test_a_reader_that_closes_early_is_no_error(tmp_path: Path, json_: list[str]) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(url) as timeline:
        timeline.append([turn("a", f"t{i}") for i in range(3000)])
    process = venus("tail", "--timeline", url, *json_)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_following_ends_quietly_at_ctrl_c(url: str) -> None:
    process = venus("tail", "--follow", "--json", "--timeline", url)
    assert process.stdout is not None
    for _ in range(7):
        process.stdout.readline()
    with open_timeline(url) as timeline:
        timeline.append([turn("c", "c1")])
    assert json.loads(process.stdout.readline())["session"] == "c"
    process.send_signal(2)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == ""


# --- doctor


def test_the_doctor_names_what_is_missing_and_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--timeline", "kafka://127.0.0.1:1/x", "--triton", "grpc://127.0.0.1:1"]
    assert call("doctor", "--json", *arguments) == 1
    found = {line["name"]: line for line in lines_of(capsys.readouterr().out)}
    assert not found["timeline"]["well"]
    assert not found["triton"]["well"]
    assert found["triton"]["mend"]
    assert found["python"]["well"]


def test_the_doctor_accepts_a_timeline_that_is_yet_to_be_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("doctor", "--json", "--timeline", f"sqlite:///{tmp_path}/new.db")
    found = {line["name"]: line for line in lines_of(capsys.readouterr().out)}
    assert found["timeline"]["well"]
    assert not (tmp_path / "new.db").exists()
