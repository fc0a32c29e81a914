"""The pytest plugin: session files as tests, scripted sessions as fixtures; run in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.session_files import Wishes, export
from infra.timeline import open_timeline
from tests.replay.sessions import memory, records, talk
from tests.replay.test_prove import changed_text
from tests.support.sources import ROOT

pytestmark = pytest.mark.flow


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # By its module, whether or not the entry point is installed here.
    plugin = ["-p", "no:venus", "-p", "flows.testing.plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        *plugin,
        "-q",
        "--rootdir",
        str(folder),
        *arguments,
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_folder_of_sessions_becomes_tests(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    export(memory(talk("one", 10).close(), talk("two", 10).close()), sessions, Wishes())
    found = run(tmp_path, "--venus-sessions", str(sessions))
    assert found.returncode == 0 and "2 passed" in found.stdout, found.stdout + found.stderr
    log = open_timeline("memory://")
    log.append([changed_text(r) for r in records(talk("bad", 15).close())])
    export(log, sessions / "bad.mcap", Wishes())
    (sessions / "cut.mcap").write_bytes(b"no")
    found = run(tmp_path, "--venus-sessions", str(sessions))
    assert found.returncode == 1 and "2 failed, 2 passed" in found.stdout
    assert "data.text: something else → what is the weather in Paris" in found.stdout
    assert "not an MCAP file" in found.stdout and "Traceback" not in found.stdout
    assert run(tmp_path, "--venus-sessions", str(tmp_path / "nowhere")).returncode == 4


SCRIPT = """
def test_stop(venus_session, venus_prove):
    session = venus_session(transcript=lambda r: "stop" if r.data.start_us > 3e6 else "tell me", reply="long " * 60)
    session.silence(992).speak(1216).silence(2016).speak(512).silence(2000)
    assert "response.cancelled" in session.types("response.")
    venus_prove(session)
"""


def test_operators_are_driven_by_scripts(tmp_path: Path) -> None:
    (tmp_path / "test_script.py").write_text(SCRIPT)
    found = run(tmp_path)
    assert "1 passed" in found.stdout, found.stdout + found.stderr
