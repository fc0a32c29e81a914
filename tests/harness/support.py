"""What the tests of the Harness share: works in a log, a desk on a memory timeline, skills in a file of their own."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from flows.effects import EffectDesk
from flows.work_effects import Executors, work_effects
from infra.blobs import BlobStore
from infra.harness.port import Task
from infra.harness.toolbox import Toolbox
from infra.timeline import Timeline
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.record import Lane
from schemas.registry import TERMINALS
from schemas.session import SessionEnded
from schemas.work import WorkCancelling, WorkExpired, WorkQueued

SKILLS = """
import os, time
from pathlib import Path
from pydantic import BaseModel
from infra.harness.skills import skill, SkillContext

class Nothing(BaseModel):
    pass

class Seconds(BaseModel):
    s: float = 0.0

class Text(BaseModel):
    text: str

@skill("echo", "Says it again.", idempotent=True)
def echo(arguments: Text, context: SkillContext) -> str:
    return arguments.text

@skill("slow", "Takes its time.", idempotent=True, timeout=60)
def slow(arguments: Seconds, context: SkillContext) -> str:
    context.progress("begun")
    time.sleep(arguments.s)
    return "slept"

@skill("once", "May not run twice.", timeout=60)
def once(arguments: Seconds, context: SkillContext) -> str:
    time.sleep(arguments.s)
    return "slept"

@skill("late", "Takes longer than it may.", timeout=0.5)
def late(arguments: Nothing) -> str:
    time.sleep(60)
    return "never"

@skill("busy", "Computes.", idempotent=True, timeout=60)
def busy(arguments: Seconds) -> str:
    end = time.monotonic() + arguments.s
    while time.monotonic() < end:
        sum(range(1000))
    return "computed"

@skill("raises", "Fails.")
def raises(arguments: Nothing) -> str:
    raise ValueError("no luck")

@skill("dies", "Kills its process.")
def dies(arguments: Nothing) -> str:
    os._exit(3)

@skill("prints", "Talks to standard output.")
async def prints(arguments: Nothing) -> dict:
    print('{"result": "not this"}', flush=True)
    return {"answer": 42}

@skill("huge", "Returns a megabyte.")
def huge(arguments: Nothing) -> str:
    return "<delegate>x</delegate>" + "y" * 1_000_000

@skill("files", "Writes a file, and tries to give away another.")
def files(arguments: Text, context: SkillContext) -> str:
    (context.workspace / "note.txt").write_text(arguments.text)
    context.artifact("note.txt")
    context.artifact("/etc/passwd")
    context.artifact("../../escape.txt")
    (context.workspace / "link").symlink_to("/etc/passwd")
    context.artifact("link")
    return str(sorted(p.name for p in context.workspace.iterdir()))

@skill("env", "Shows its environment.")
def env(arguments: Nothing) -> str:
    return " ".join(sorted(os.environ))
"""


_FILES = count()


def skills_file(folder: Path) -> str:
    # A process has one module of a name.
    path = folder / f"skills_for_tests_{next(_FILES)}.py"
    path.write_text(SKILLS)
    return str(path)


def queued(
    work: str = "work-1",
    skill: str | None = "echo",
    arguments: dict[str, Any] | None = None,
    *,
    session: str = "s",
    route: Any = "skill",
    limit_s: float = 30.0,
    **more: Any,
) -> Event:
    data = WorkQueued(
        work=work,
        delegate="delegate-1",
        route=route,
        query=more.pop("query", "a task"),
        skill=skill,
        arguments={} if arguments is None else arguments,
        limit_us=round(limit_s * 1e6),
        result_chars=3_000,
        **more,
    )
    return Event(
        data.TYPE, session, f"{session}/{work}", "conversation/dispatch", data, 0, "c", work
    )


def cancelling(work: str = "work-1", session: str = "s") -> Event:
    data = WorkCancelling(work=work, reason="user")
    return Event(
        data.TYPE, session, f"{session}/c/{work}", "conversation/dispatch", data, 0, "c", work
    )


def expired(work: str = "work-1", session: str = "s") -> Event:
    data = WorkExpired(work=work, request=f"{session}/{work}", reason="timed_out")
    return Event(
        data.TYPE, session, f"{session}/x/{work}", "conversation/dispatch", data, 0, "c", work
    )


def session_ended(session: str = "s") -> Event:
    data = SessionEnded(reason="closed", turns=0, responses=0)
    return Event(data.TYPE, session, f"{session}/ended", "conversation/lifecycle", data, 0)


def outcomes(timeline: Timeline, session: str | None = None) -> list[Event]:
    """What harness processes have written, in log order."""
    events = [decode(r) for r in timeline.scan(Lane.TIMELINE, 0) if session in (None, r.key)]
    return [e for e in events if e.source.startswith("harness/")]


def append(timeline: Timeline, *events: Event) -> None:
    timeline.append([encode(e) for e in events])


class NoTools:
    """A source without tools; `idempotent` names count as such."""

    def __init__(self, *idempotent: str) -> None:
        self._idempotent = idempotent

    async def tools(self) -> list[Any]:
        return []

    async def find(self, name: str) -> None:
        return None

    def idempotent(self, name: str) -> bool:
        return name in self._idempotent

    async def close(self) -> None:
        return None


class FakeRunner:
    """Notes what it is told to run."""

    def __init__(self) -> None:
        self.running: dict[str, Event] = {}
        self.started: list[str] = []

    def submit(self, request: Event, effect: Any) -> None:
        self.running[request.id] = request
        self.started.append(request.id)

    def cancel(self, request: str) -> None:
        self.running.pop(request, None)


class Process:
    """A harness process without executors: a desk, its place in the log, and what it would run."""

    def __init__(
        self, timeline: Timeline, name: str, idempotent: tuple[str, ...] = ("echo",)
    ) -> None:
        self.timeline, self.name = timeline, name
        self.runner = FakeRunner()
        executors = Executors(
            Toolbox([NoTools(*idempotent)]), None, BlobStore("memory://blobs"), Path("none")
        )
        self.desk = EffectDesk(work_effects(executors), self.runner, f"harness/{name}")
        held = list(timeline.scan(Lane.TIMELINE, 0))
        self.desk.restore(held)
        self.read_to = held[-1].offset + 1 if held else 0
        self.unwritten: list[Any] = self.desk.resume()

    def write(self) -> None:
        """Append what it has decided."""
        records, self.unwritten = self.unwritten, []
        if records:
            self.timeline.append(records)

    def read(self, most: int = 1_000_000) -> None:
        for record in list(self.timeline.scan(Lane.TIMELINE, 0, self.read_to))[:most]:
            self.read_to = record.offset + 1
            self.unwritten += self.desk.read(record)

    def turn(self) -> None:
        """Write and read until nothing is new."""
        while True:
            self.write()
            before = self.read_to
            self.read()
            if self.read_to == before and not self.unwritten:
                return

    def produce(self, request: str, result: Any) -> None:
        from flows.effects import Produced

        self.unwritten += self.desk.take(Produced(request, result))
        if result.TYPE in TERMINALS:
            self.runner.running.pop(request, None)


def task_of(event: Event, workspace: Path) -> Task:
    data = event.data
    return Task(
        event.session,
        data.work,
        data.query,
        data.route,
        data.skill,
        data.arguments,
        tuple((e.role, e.text) for e in data.evidence),
        data.earlier,
        data.allow,
        data.language,
        data.limit_us / 1e6,
        workspace,
    )


@contextmanager
def nothing_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is done inside has closed what it opened, and no finalizer finds its loop closed."""
    gc.collect()
    found: list[str] = []
    with monkeypatch.context() as patched, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        patched.setattr("sys.unraisablehook", lambda one: found.append(repr(one.exc_value)))
        yield
        gc.collect()
        found += [str(w.message) for w in warned if w.category is ResourceWarning]
    assert not found, found
