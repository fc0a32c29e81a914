"""`venus capture` as a person uses it: what it prints, its exit codes, Ctrl-C."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from flows.cli import main
from flows.settings import timeline_at
from tests.capture.runtime import Runtime, logged

pytestmark = pytest.mark.flow


def quiet_file(path: Path, seconds: float) -> Path:
    soundfile.write(path, np.zeros(round(16_000 * seconds), np.int16), 16_000)
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["capture", *arguments])
    return int(str(stopped.value.code))


def test_it_prints_the_session_and_writes_the_mix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = quiet_file(tmp_path / "hello.wav", 1.0), tmp_path / "new" / "mix.wav"
    url = "memory://command"
    with timeline_at(url) as timeline, Runtime(timeline):
        code = run(str(path), "--timeline", url, "--speed", "max", "--out", str(out), "--quiet")
        name = capsys.readouterr().out.strip()
        assert code == 0 and name.startswith("hello-")
        assert next(e.type for e in logged(timeline, name)) == "session.opened"
    info = soundfile.info(out)
    assert (info.channels, info.samplerate) == (2, 24_000)


def test_without_flows_it_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.capture.CONFIGURED_WITHIN_S", 0.2)
    path = quiet_file(tmp_path / "a.wav", 0.3)
    code = run(str(path), "--timeline", f"sqlite:///{tmp_path}/t.db", "--quiet")
    printed = capsys.readouterr()
    assert code == 1 and printed.out == ""
    assert "venus run --timeline sqlite:///" in printed.err and printed.err.count("\n") == 1


def test_ctrl_c_closes_the_session_of_a_running_device(tmp_path: Path) -> None:
    path, url = quiet_file(tmp_path / "a.wav", 60), f"sqlite:///{tmp_path}/t.db"
    with timeline_at(url) as timeline, Runtime(timeline):
        command = [sys.executable, "-m", "flows", "capture", str(path), "--timeline", url]
        device = subprocess.Popen([*command, "--session", "s"], stdout=subprocess.PIPE)
        try:
            reader_end = 0
            while "perception.window" not in [e.type for e in logged(timeline, "s")]:
                assert device.poll() is None, "it ended by itself"
                reader_end += 1
                with pytest.raises(subprocess.TimeoutExpired):
                    device.wait(0.1)
                assert reader_end < 200
            device.send_signal(signal.SIGINT)
            said, _ = device.communicate(timeout=30)
        finally:
            device.kill()
        types = [e.type for e in logged(timeline, "s")]
        assert device.returncode == 0 and said == b"s\n"
        assert types.count("session.closed") == types.count("session.ended") == 1


def test_a_device_whose_session_another_takes_over_fails_with_a_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    long, short = quiet_file(tmp_path / "a.wav", 60), quiet_file(tmp_path / "b.wav", 0.3)
    command = [sys.executable, "-m", "flows", "capture", "--timeline", url, "--session", "s"]
    with timeline_at(url) as timeline, Runtime(timeline):
        first = subprocess.Popen(
            [*command, str(long), "--quiet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            for _ in range(200):
                if "perception.window" in [e.type for e in logged(timeline, "s")]:
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    first.wait(0.1)
            code = run(str(short), "--timeline", url, "--session", "s", "--tail", "1", "--quiet")
            _, said = first.communicate(timeout=30)
        finally:
            first.kill()
        assert code == 0 and first.returncode == 1
        assert said.startswith(b"venus: another device has taken over session 's' at ")
        assert said.count(b"\n") == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mix.foo", ".foo: write .wav or .flac"),
        ("mix", "no extension: write .wav or .flac"),
        ("file/mix.wav", "cannot be written"),
        ("folder.wav", "cannot be written (Is a directory)"),
    ],
)
def test_a_mix_that_cannot_be_written_is_refused_before_anything_is_said(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.wav").mkdir()
    path, log = quiet_file(tmp_path / "a.wav", 0.3), tmp_path / "t.db"
    code = run(str(path), "--timeline", f"sqlite:///{log}", "--out", str(tmp_path / name))
    said = capsys.readouterr().err
    assert code == 2 and says in said and said.count("\n") == 1
    assert not log.exists()
