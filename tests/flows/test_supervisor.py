"""Supervision with real processes and signals: restart, giving up, one run a timeline, idleness, stopping with nothing lost."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.bytewax_io import READY
from flows.replay import prove
from flows.supervisor import (
    DEATHS,
    Child,
    Deaths,
    IdleWatch,
    KeepsDying,
    Model,
    OneRun,
    Supervisor,
)
from infra.timeline import Timeline, open_timeline
from infra.triton.server import TritonStartError
from schemas.cloudevents import encode
from schemas.errors import BadInput, TimelineError, VenusError
from schemas.record import Record
from schemas.registry import REQUESTS
from schemas.work import WorkRequested
from tests.support.script import Session
from tests.support.works import WorkSession

pytestmark = pytest.mark.flow

PATIENCE_S = 30.0


def eventually(what: Callable[[], Any], within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def a_child(folder: Path, script: str) -> Iterator[Child]:
    said: list[str] = []
    child = Child("test", [sys.executable, "-u", "-c", script], folder / "test.log", said.append)
    child.start()
    try:
        yield child
    finally:
        if child.process is not None:
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
            child.process.wait()


SLEEPER = f"import time\nprint('worker 1 of 1 {READY}')\ntime.sleep(100)"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Child]:
    yield from a_child(tmp_path, SLEEPER)


@pytest.fixture
def fainter(tmp_path: Path) -> Iterator[Child]:
    yield from a_child(tmp_path, "print('cannot bear it')\nraise SystemExit(3)")


def test_a_child_that_is_killed_is_started_again(sleeper: Child) -> None:
    eventually(sleeper.ready.is_set)
    assert sleeper.process is not None
    first = sleeper.process.pid
    os.kill(first, signal.SIGKILL)

    def again() -> bool:
        sleeper.watch()
        return sleeper.restarts == 1

    eventually(again)
    eventually(sleeper.ready.is_set)
    assert sleeper.process.pid != first


def test_a_child_that_keeps_dying_is_given_up_with_its_last_words(fainter: Child) -> None:
    def given_up() -> bool:
        try:
            fainter.watch()
        except KeepsDying as error:
            assert "the test flow keeps dying: cannot bear it" in str(error)
            assert str(fainter.log) in str(error)
            return True
        return False

    eventually(given_up)
    assert fainter.restarts == DEATHS - 1


def test_the_waits_before_restarts_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("flows.supervisor.monotonic_s", lambda: now[0])
    deaths = Deaths()
    waits = []
    for _ in range(DEATHS - 1):
        waits.append(deaths.another())
        now[0] += 1
    assert waits == [0.2, 0.4, 0.8, 1.6]
    assert deaths.another() is None
    now[0] += 3600
    assert deaths.another() == 0.2


# --- Triton


class FakeTriton:
    """Stands in for `LocalTriton`; `starts` says how each start after the first ends."""

    def __init__(self, starts: list[bool]) -> None:
        self._starts = starts
        self._alive = False
        self.pid, self.url, self.log_path = 1, "grpc://x:1", Path("triton.log")
        self.stopped = 0

    def start(self, progress: object = None) -> None:
        if self._starts and not self._starts.pop(0):
            raise TritonStartError("no memory left")
        self._alive = True

    def alive(self) -> bool:
        return self._alive

    def die(self) -> None:
        self._alive = False

    def stop(self) -> None:
        self.stopped += 1
        self._alive = False


def test_triton_is_started_again_and_flows_are_watched_meanwhile() -> None:
    said: list[str] = []
    fake = FakeTriton([True, False, True])
    model = Model(fake, said.append)  # type: ignore[arg-type]
    assert model.start(None) == "grpc://x:1"
    fake.die()

    def back() -> bool:
        model.watch()
        return fake.alive()

    eventually(back)
    model.stop()
    assert said[-1] == "Triton is back"
    assert not fake.alive()


def test_a_triton_that_does_not_come_back_ends_the_run() -> None:
    fake = FakeTriton([True] + [False] * 20)
    model = Model(fake, lambda _: None)  # type: ignore[arg-type]
    model.start(None)
    fake.die()

    def given_up() -> bool:
        try:
            model.watch()
        except KeepsDying as error:
            return "Triton keeps dying: no memory left" in str(error)
        return False

    eventually(given_up)


# --- idleness


def played(name: str = "s") -> list[Record]:
    """A whole session's inputs and decisions, in causal order."""
    session = Session(name, playback="assumed").silence(300).speak(900).silence(9000).close()
    assert "session.ended" in session.types()
    assert set(session.types()) & set(REQUESTS)
    return [encode(event) for event in session.events]


def idle_after(records: list[Record]) -> bool:
    with open_timeline("memory://?partitions=2") as timeline:
        if records:
            timeline.append(records)
        watch = IdleWatch(timeline)
        try:
            return watch.idle()
        finally:
            watch.close()


def test_idle_is_when_sessions_have_ended_and_requests_are_answered() -> None:
    records = played()
    types = [dict(r.headers)["ce_type"].decode() for r in records]
    last_answer = max(
        types.index(f"venus.{t}.v1")
        for t in ("transcript.final", "endpoint.predicted", "speech.completed")
    )
    assert idle_after([])
    assert idle_after(records)
    assert idle_after(played("a") + played("b"))
    assert not idle_after(records[:-1])
    assert not idle_after(records[:1])
    assert not idle_after(records[:last_answer] + records[last_answer + 1 :])


def test_a_work_that_nobody_took_up_has_expired_and_is_not_waited_for() -> None:
    session = WorkSession("s").silence(960)
    session.observe(WorkRequested(query="Read the news", route="general"))
    session.silence(2016).close()
    types = [e.type for e in session.events]
    assert types.count("work.expired") == 1 and "work.running" not in types
    records = [encode(event) for event in session.events]
    assert idle_after(records)
    assert not idle_after([r for r, t in zip(records, types, strict=True) if t != "work.expired"])


def test_a_repeat_that_a_crash_left_does_not_matter() -> None:
    records = played()
    garbage = Record("s", (("x", b""),), b"\xff")
    assert idle_after([*records, garbage, *records])


# --- one run a timeline


def test_a_second_run_on_a_sqlite_timeline_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    first = OneRun(url)
    with pytest.raises(BadInput, match="another `venus run`"):
        OneRun(url)
    first.release()
    OneRun(url).release()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("memory://x", BadInput),
        ("redis://x", BadInput),
        ("kafka://127.0.0.1:1/x", TimelineError),
    ],
)
def test_a_timeline_that_cannot_be_used_is_refused_before_anything_starts(
    url: str, error: type[VenusError], tmp_path: Path
) -> None:
    with pytest.raises(error), Supervisor(url, "grpc://127.0.0.1:1", log_dir=tmp_path):
        pass


# --- real flows


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Timeline]:
    with open_timeline(f"sqlite:///{tmp_path}/log.db") as timeline:
        yield timeline


def inputs(name: str) -> list[Record]:
    """What devices and models append; the decisions are left to the flow."""
    session = Session(name, playback="assumed").silence(300).speak(900).silence(9000).close()
    return [encode(event) for event in session.inputs]


def test_a_run_ends_when_it_is_idle_and_a_killed_flow_misses_nothing(
    log: Timeline, tmp_path: Path
) -> None:
    said: list[str] = []
    records = inputs("a")
    log.append(records[: len(records) // 2])
    supervisor = Supervisor(
        log.url,
        "grpc://127.0.0.1:1",
        flows=["conversation"],
        log_dir=tmp_path / "log",
        say=said.append,
    )
    with supervisor:
        run = threading.Thread(
            target=supervisor.run, args=(threading.Event(),), kwargs={"until_idle": True}
        )
        eventually(lambda: supervisor.ready)
        process = supervisor.children[0].process
        assert process is not None
        process.kill()
        run.start()
        log.append(records[len(records) // 2 :])
        run.join(PATIENCE_S)
        assert not run.is_alive()
        assert supervisor.children[0].restarts == 1
    assert any("conversation flow died" in line for line in said)
    proof = prove(log, "a")["a"]
    assert (proof.difference, proof.pending, proof.repeats, proof.ended) == (None, 0, 0, True)


def venus_run(log: Timeline, folder: Path, *more: str) -> subprocess.Popen[str]:
    # As the console script: without the current folder in front.
    command = [sys.executable, "-P", "-m", "flows", "run", "--timeline", log.url]
    command += ["--flows", "conversation", "--log-dir", str(folder / "log"), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


def wait_for(process: subprocess.Popen[str], what: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(what):
            return
    pytest.fail(f"it ended (exit code {process.wait()}) without saying {what!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_with_everything_written(
    number: signal.Signals, log: Timeline, tmp_path: Path
) -> None:
    log.append(inputs("a"))
    process = venus_run(log, tmp_path)
    wait_for(process, "ready")
    children = psutil.Process(process.pid).children()
    assert len(children) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (0, "stopping\n")
    assert not any(child.is_running() for child in children)
    # What was read has been decided and written, however far it had come.
    assert prove(log, "a")["a"].difference is None


def test_flows_do_not_outlive_a_run_that_is_killed(log: Timeline, tmp_path: Path) -> None:
    process = venus_run(log, tmp_path)
    wait_for(process, "ready")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    _, alive = psutil.wait_procs(children, PATIENCE_S)
    assert not alive


def test_an_idle_run_ends_with_0_and_a_second_one_is_refused(log: Timeline, tmp_path: Path) -> None:
    first = venus_run(log, tmp_path)
    wait_for(first, "ready")
    second = venus_run(log, tmp_path, "--until-idle")
    _, err = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 2
    assert "another `venus run`" in err
    assert err.count("\n") == 1
    first.terminate()
    first.communicate(timeout=PATIENCE_S)
    third = venus_run(log, tmp_path, "--until-idle")
    _, err = third.communicate(timeout=PATIENCE_S)
    assert third.returncode == 0
    assert "idle" in err


def test_files_in_the_current_folder_do_not_pass_for_modules_of_python(
    log: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skills lie there, under whatever name their writer likes."""
    for name in ("json", "queue", "logging"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the one of Python')")
    monkeypatch.chdir(tmp_path)
    run = venus_run(log, tmp_path, "--until-idle")
    _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0 and "idle" in err, err
