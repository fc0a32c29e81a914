"""The harness flow as a process on a real log: it works, it is killed, it is started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.timeline import Timeline, open_timeline
from tests.harness.support import append, cancelling, outcomes, queued, skills_file

pytestmark = pytest.mark.flow

MAIN = """
import os, signal, sys, threading
from pathlib import Path
from flows.harness import HarnessSettings, run_harness
from infra.harness.config import read_config

url, folder, skills = sys.argv[1:]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
settings = HarnessSettings(folder + "/blobs", Path(folder) / "work", installed_skills=False)
run_harness(url, read_config(None, os.environ, (skills,)), settings=settings, stop=stop)
"""


class Flow:
    """The log, and one harness process after another."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/log.db"
        self.log: Timeline = open_timeline(self.url)
        self.folder, self.skills = folder, skills_file(folder)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", MAIN, self.url, str(self.folder), self.skills]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(20)

    def until(self, done: Callable[[], bool], within_s: float = 40.0) -> None:
        end = time.monotonic() + within_s
        while not done():
            assert time.monotonic() < end, [(e.type, e.data) for e in outcomes(self.log)]
            time.sleep(0.05)

    def types(self, work: str) -> list[str]:
        return [e.type for e in outcomes(self.log) if e.data.work == work]


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    made = Flow(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    made.log.close()


def workers(flow: Flow) -> list[int]:
    """Its worker processes; those of the test before may still be on their way out."""
    skills = flow.skills.encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, NotADirectoryError):
            continue
        if b"infra.harness.worker" in command and any(skills in c for c in command):
            found.append(int(entry.name))
    return found


def test_killed_while_works_run_each_is_taken_up_or_lost(flow: Flow) -> None:
    flow.start()
    append(
        flow.log,
        queued("w1", "slow", {"s": 3.0}),
        queued("w2", "once", {"s": 3.0}),
        queued("w3", "echo", {"text": "done before"}),
    )
    flow.until(lambda: "work.progress" in flow.types("w1") and "work.completed" in flow.types("w3"))
    flow.end(signal.SIGKILL)
    append(flow.log, queued("w4", "echo", {"text": "asked while nobody was there"}))
    flow.start()
    flow.until(
        lambda: all(
            t in flow.types(w)
            for w, t in (("w1", "work.completed"), ("w2", "work.failed"), ("w4", "work.completed"))
        )
    )
    ends = {
        e.data.work: e.data
        for e in outcomes(flow.log)
        if e.type in ("work.completed", "work.failed")
    }
    assert ends["w1"].result == "slept" and ends["w1"].attempt == 2
    assert ends["w2"].reason == "lost"
    assert len([e for e in outcomes(flow.log) if e.type in ("work.completed", "work.failed")]) == 4
    assert len({e.id for e in outcomes(flow.log)}) == len(outcomes(flow.log))


def test_workers_do_not_outlive_a_killed_harness(flow: Flow) -> None:
    flow.start()
    append(flow.log, queued("w1", "busy", {"s": 60.0}))
    flow.until(lambda: bool(workers(flow)))
    flow.end(signal.SIGKILL)
    end = time.monotonic() + 10
    while workers(flow):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_stopped_in_order_a_work_goes_on_at_the_next_start(flow: Flow) -> None:
    flow.start()
    append(flow.log, queued("w1", "slow", {"s": 1.0}))
    flow.until(lambda: "work.progress" in flow.types("w1"))
    flow.end(signal.SIGTERM)
    assert "work.completed" not in flow.types("w1") and not workers(flow)
    append(flow.log, cancelling("w1"))
    flow.start()
    flow.until(lambda: "work.cancelled" in flow.types("w1"))


def test_killed_many_times_every_work_has_one_end(flow: Flow) -> None:
    flow.start()
    for i in range(12):
        append(
            flow.log, queued(f"w{i}", "slow" if i % 2 else "once", {"s": 0.2}, session=f"s{i % 3}")
        )
        if i % 4 == 3:
            time.sleep(0.4)
            flow.end(signal.SIGKILL)
            flow.start()
    terminal = ("work.completed", "work.failed")

    def ended() -> list[str]:
        return [e.data.work for e in outcomes(flow.log) if e.type in terminal]

    flow.until(lambda: len(set(ended())) == 12)
    assert sorted(ended()) == sorted(f"w{i}" for i in range(12))
    assert os.path.exists(flow.folder)
