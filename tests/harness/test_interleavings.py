"""Random interleavings of two conversations, their works, and harness processes that crash: what must hold whatever happens.

The conversations are real folds, the harness a real `EffectDesk` on a memory timeline that both share; executors are played by the
machine: they report, complete, fail, answer twice, answer after a cancel, or never. A crash loses what was decided and not written.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infra.timeline import open_timeline
from operators.fold import SessionFold
from schemas.cloudevents import decode, encode
from schemas.record import Lane
from schemas.work import (
    WorkCancelRequested,
    WorkCompleted,
    WorkFailed,
    WorkProgress,
    WorkRequested,
)
from tests.harness.support import Process
from tests.support.works import WorkSession

pytestmark = [pytest.mark.flow, pytest.mark.pure]

NAMES = ("a", "b")
names = st.sampled_from(NAMES)
LINES = (
    "What is the weather in Paris?",
    "No, to Rome.",
    "I mean Oslo.",
    "Cancel that.",
    "What was the result?",
    "How far are you?",
    "Tell me a joke.",
    "Stop.",
    "Mhm.",
    "",
)
END_OF_RESPONSE = ("response.ended", "response.failed", "response.cancelled")


class Interleavings(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.log = open_timeline("memory://")
        self.sessions = {n: WorkSession(n) for n in NAMES}
        self.synced = dict.fromkeys(NAMES, 0)
        self.fed = 0
        self.process = Process(self.log, "p0", ("weather",))
        self.processes = 1
        self.old: list[Process] = []
        for session in self.sessions.values():
            session.silence(480)
        self.sync()

    def sync(self) -> None:
        """The conversations' events into the log, the harness' outcomes to the conversations."""
        again = True
        while again:
            again = False
            for name, session in self.sessions.items():
                new = session.events[self.synced[name] :]
                self.synced[name] = len(session.events)
                own = [
                    e
                    for e in new
                    if e.type.startswith(("work.", "session."))
                    and not e.source.startswith("harness/")
                ]
                if own:
                    self.log.append([encode(e) for e in own])
            for record in list(self.log.scan(Lane.TIMELINE, 0, self.fed)):
                self.fed = record.offset + 1
                event = decode(record)
                if event.source.startswith("harness/"):
                    self.sessions[event.session].feed(event)
                    again = True

    def started(self) -> list[str]:
        """Requests that any process has ever begun."""
        return [r for p in (*self.old, self.process) for r in p.runner.started]

    def request(self, id_: str) -> Any:
        return next(e for s in self.sessions.values() for e in s.of("work.queued") if e.id == id_)

    # --- the users

    @rule(name=names, text=st.sampled_from(LINES), ms=st.integers(1, 15))
    def says(self, name: str, text: str, ms: int) -> None:
        session = self.sessions[name]
        session.transcript = text
        session.speak(ms * 96).silence(480)
        self.sync()

    @rule(name=names, ms=st.integers(1, 12))
    def speaks_on(self, name: str, ms: int) -> None:
        self.sessions[name].speak(ms * 96)
        self.sync()

    @rule(name=names, ms=st.sampled_from((96, 480, 960, 3072, 9600, 33_600)))
    def is_silent(self, name: str, ms: int) -> None:
        self.sessions[name].silence(ms)
        self.sync()

    @rule(name=names, number=st.integers(0, 3))
    def asks_by_program(self, name: str, number: int) -> None:
        self.sessions[name].observe(WorkRequested(query=f"task {number}", route="general"))
        self.sync()

    @rule(name=names, work=st.sampled_from((None, "work-1", "work-2")))
    def cancels_by_program(self, name: str, work: str | None) -> None:
        self.sessions[name].observe(WorkCancelRequested(work=work))
        self.sync()

    @rule(name=names, deaf=st.booleans())
    def acknowledges(self, name: str, deaf: bool) -> None:
        session = self.sessions[name]
        if deaf:
            session.acknowledge = lambda until: None  # type: ignore[method-assign]
        else:
            session.__dict__.pop("acknowledge", None)

    # --- the harness

    @rule(most=st.integers(1, 6), write=st.booleans())
    def harness_reads(self, most: int, write: bool) -> None:
        self.process.read(most)
        if write:
            self.process.write()
            self.sync()

    @rule()
    def harness_works_on(self) -> None:
        self.process.turn()
        self.sync()

    @precondition(lambda self: self.started())
    @rule(data=st.data(), what=st.sampled_from(("complete", "fail", "progress", "twice", "forget")))
    def executor_answers(self, data: st.DataObject, what: str) -> None:
        id_ = data.draw(st.sampled_from(self.started()))
        event = self.request(id_)
        work, text = event.data.work, f"Result {event.session} of {event.data.work}."
        for process in (
            *self.old,
            self.process,
        ):  # an executor of a dead process is heard by nobody
            if id_ not in process.runner.started:
                continue
            if what in ("complete", "twice"):
                process.produce(id_, WorkCompleted(work=work, result=text))
            if what in ("fail", "twice"):
                process.produce(id_, WorkFailed(work=work, reason="error", message="boom"))
            if what == "progress":
                process.produce(id_, WorkProgress(work=work, text=f"Half {event.session}."))
        self.process.write()
        self.sync()

    @rule(half=st.booleans())
    def harness_crashes(self, half: bool) -> None:
        if half and self.process.unwritten:
            self.process.timeline.append(self.process.unwritten[:1])
            self.sync()
        self.old.append(self.process)
        self.process = Process(self.log, f"p{self.processes}", ("weather",))
        self.processes += 1

    # --- what must hold

    @invariant()
    def holds(self) -> None:
        for name, session in getattr(self, "sessions", {}).items():
            check(name, session)

    def teardown(self) -> None:
        for name, session in getattr(self, "sessions", {}).items():
            session.__dict__.pop("acknowledge", None)
            self.process.turn()
            session.close(ticks=8)
            self.sync()
            self.process.turn()
            self.sync()
            check(name, session)
            assert session.fold.ended
            for queued in session.works():
                assert len(session.ends_of(queued.work)) == 1, session.text()
            for response in {e.data.response for e in session.of("response.started")}:
                ends = [
                    e
                    for e in session.events
                    if e.type in END_OF_RESPONSE and e.data.response == response
                ]
                assert len(ends) == 1
            again = SessionFold(name)
            derived = [
                d.id for i in session.inputs for step in again.feed(i) for d in step.decisions
            ]
            assert derived == [e.id for e in session.events if e.source.startswith("conversation/")]
        assert self.process.desk.open == 0 if hasattr(self, "process") else True


def check(name: str, session: WorkSession) -> None:
    ended: set[str] = set()
    cancelled: set[str] = set()
    told: dict[str, int] = {}
    asked = turn = 0
    for event in session.events:
        data = event.data
        match event.type:
            case "work.completed" | "work.failed" | "work.cancelled" | "work.expired":
                assert data.work not in ended, f"{data.work} ended twice"
                ended.add(data.work)
            case "work.cancelling":
                cancelled.add(data.work)
            case "work.delivering":
                assert not cancelled & set(data.works), "a cancelled work is told"
            case "work.delivered":
                told[data.work] = told.get(data.work, 0) + 1
            case "turn.started":
                turn += 1
            case "turn.ended":
                turn -= 1
                asked += data.text == "What was the result?"
            case "response.started":
                assert turn == 0, "spoken over the user"
            case "speech.requested":
                other = next(n for n in NAMES if n != name)
                assert f"Result {other}" not in data.text and f"Half {other}" not in data.text
    assert all(count <= 1 + asked for count in told.values()), "delivered twice"


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=40, stateful_step_count=30)
