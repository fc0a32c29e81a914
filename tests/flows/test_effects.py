"""The desk: one terminal outcome per request, whatever races or crashes; directed, and as a
property over any interleaving with crashes at any point.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.effects import (
    ENDED_SESSIONS_KEPT,
    Produced,
    one_line,
)
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.ids import outcome_id
from schemas.record import Lane, Record
from schemas.responses import (
    ResponseCancelled,
)
from tests.flows.effects_support import (
    OUTCOMES,
    Bench,
    cancelled,
    completed,
    ended,
    request,
    superseded,
    text,
)

pytestmark = pytest.mark.pure


def test_an_outcome_names_its_request_and_its_id_is_derived() -> None:
    bench = Bench()
    bench.log(request(attempt=2))
    bench.read()
    bench.take(text("a"))
    bench.take(text("b"))
    bench.take(completed("ab"))
    first, second, last = bench.outcomes()
    assert [first.id, second.id] == [outcome_id("q", 2, "response.text", i) for i in (0, 1)]
    assert last.id == outcome_id("q", 2, "generation.completed", 0)
    assert [e.sequence for e in (first, second, last)] == [0, 1, None]
    assert {
        (e.cause, e.correlation, e.source, e.mediatime, e.session) for e in bench.outcomes()
    } == {("q", "r", "inference", None, "s")}


def test_a_request_seen_twice_runs_once_also_after_its_end_and_its_sessions() -> None:
    bench = Bench()
    bench.log(request(), request())
    bench.read()
    bench.take(completed())
    bench.log(request())
    bench.read()
    bench.log(ended(), request(), ended())
    bench.read()
    assert bench.runner.submitted == ["q"]
    assert bench.types() == ["generation.completed"]


@pytest.mark.parametrize("cancel", [superseded(), cancelled(), ended()], ids=lambda e: e.type)
def test_a_cancel_ends_the_request_at_once_and_drops_what_still_comes(cancel: Event) -> None:
    bench = Bench()
    bench.log(request())
    bench.read()
    bench.take(text("a"))
    bench.log(cancel)
    bench.read()
    bench.take(text("b"))
    bench.take(completed())
    assert bench.types() == ["response.text", "generation.failed cancelled"]
    assert not bench.runner.running and bench.desk.open == 0


@pytest.mark.parametrize("cancel", [superseded(), cancelled(), ended()], ids=lambda e: e.type)
def test_a_cancel_after_the_terminal_changes_nothing(cancel: Event) -> None:
    bench = Bench()
    bench.log(request(), cancel)
    bench.read(1)
    bench.take(completed())
    bench.read()
    assert bench.types() == ["generation.completed"]


def test_a_request_of_what_is_cancelled_already_never_runs() -> None:
    bench = Bench()
    bench.log(cancelled(), request(), request("p", response="other"))
    bench.read()
    assert bench.runner.submitted == ["p"]
    assert bench.types() == ["generation.failed cancelled"]


def test_a_cancel_touches_no_other_session() -> None:
    bench = Bench()
    bench.log(request(), request("p", session="t"), cancelled(), ended())
    bench.read()
    assert list(bench.runner.running) == ["p"]


def test_a_restart_runs_what_never_began() -> None:
    bench = Bench()
    bench.log(request())
    again = Bench(bench.timeline)
    assert again.runner.submitted == ["q"]
    again.take(completed())
    assert again.types() == ["generation.completed"]


def test_a_restart_ends_what_had_begun_as_lost() -> None:
    bench = Bench()
    bench.log(request())
    bench.read()
    bench.take(text("a"))
    again = Bench(bench.timeline)
    assert again.types() == ["response.text", "generation.failed lost"]
    assert not again.runner.submitted
    assert Bench(again.timeline).types() == again.types()


@pytest.mark.parametrize("cancel", [superseded(), cancelled(), ended()], ids=lambda e: e.type)
def test_a_restart_ends_what_was_cancelled_once(cancel: Event) -> None:
    bench = Bench()
    bench.log(request(), cancel)
    for _ in range(3):
        bench = Bench(bench.timeline)
    assert bench.types() == ["generation.failed cancelled"]
    assert not bench.runner.submitted


def test_a_restart_leaves_what_has_ended() -> None:
    bench = Bench()
    bench.log(request())
    bench.read()
    bench.take(text("a"))
    bench.take(completed("a"))
    bench.log(cancelled())
    again = Bench(bench.timeline)
    again.read()
    assert again.types() == ["response.text", "generation.completed"]


def test_a_dead_process_part_that_lands_late_ends_the_request_as_lost() -> None:
    bench = Bench()
    bench.log(request())
    again = Bench(bench.timeline)
    bench.read()
    bench.take(text("a"))  # the old process's write comes after the new one's scan
    again.read()
    again.take(text("other"))
    assert again.types() == ["response.text", "generation.failed lost"]


def test_a_foreign_terminal_ends_the_request() -> None:
    bench = Bench()
    bench.log(request())
    again = Bench(bench.timeline)
    bench.read()
    bench.take(completed())
    again.read()
    again.take(completed("other"))
    assert again.types() == ["generation.completed"] and not again.runner.running


def test_records_that_do_not_decode_are_passed_over() -> None:
    bench = Bench()
    good = encode(request())
    bench.write(
        [
            good._replace(value=b"{"),
            good._replace(headers=()),
            good._replace(headers=good.headers[1:]),
        ]
    )
    bench.log(request())
    bench.read()
    assert bench.runner.submitted == ["q"] and bench.types() == []


def test_a_record_that_cannot_be_taken_stops_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    submit = bench.runner.submit

    def fails(request: Event, effect: Any) -> None:
        if request.id == "bad":
            raise RuntimeError("no such thing as an unforeseen error")
        submit(request, effect)

    monkeypatch.setattr(bench.runner, "submit", fails)
    bench.log(request("bad"), request())
    bench.read()
    bench.take(completed())
    assert bench.types() == ["generation.completed"]
    assert [r.getMessage() for r in caplog.records] == ["inference cannot take offset 0"]
    # Nobody answers it; what ends its session ends it, too.
    bench.log(ended())
    bench.read()
    assert bench.types() == ["generation.completed", "generation.failed cancelled"]
    assert bench.desk.open == 0


def test_a_result_that_no_record_can_hold_fails_its_request_only() -> None:
    bench = Bench()
    bench.log(request(), request("p"))
    bench.read()
    bench.take(text("\ud800"))
    bench.take(ResponseCancelled(response="r", epoch=0, reason="", heard_text="", heard_us=0), "p")
    assert bench.types() == ["generation.failed error"] * 2


def test_ended_sessions_are_forgotten_in_the_end() -> None:
    bench = Bench()
    for i in range(ENDED_SESSIONS_KEPT + 50):
        bench.log(request(f"q{i}", session=f"s{i}"), ended(f"s{i}"))
    bench.read()
    assert len(bench.desk._ended) == ENDED_SESSIONS_KEPT and not bench.desk._sessions
    assert len(bench.types()) == ENDED_SESSIONS_KEPT + 50


def test_an_error_becomes_one_bounded_line() -> None:
    assert one_line(ValueError("two\n  lines \ud800")) == "two lines ?"
    assert one_line(ValueError()) == "ValueError"
    assert len(one_line("x" * 10_000)) == 300


# --- any interleaving, crashes included

EVENTS = st.sampled_from(
    [
        request("q1", "s", "r1"),
        request("q2", "s", "r1"),
        request("q3", "s", "r2"),
        request("q4", "t", "r1"),
        superseded("q1"),
        superseded("q3"),
        cancelled("r1"),
        cancelled("r1", "t"),
        ended("s"),
        ended("t"),
    ]
)
ACTIONS = st.one_of(
    st.tuples(st.just("log"), EVENTS),
    st.tuples(st.just("read"), st.integers(1, 4)),
    st.tuples(st.just("produce"), st.tuples(st.integers(0, 3), st.sampled_from(["part", "end"]))),
    st.tuples(st.just("take"), st.integers(1, 3)),
    st.tuples(st.just("crash"), st.integers(0, 2)),
)


class World:
    """A desk, its log, and results under way."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.under_way: list[Produced] = []
        self.lives = 0

    def produce(self, which: int, what: str) -> None:
        running = self.bench.runner.running
        if not running:
            return
        id_ = sorted(running)[which % len(running)]
        words = f"life {self.lives}"
        self.under_way.append(Produced(id_, text(words) if what == "part" else completed(words)))
        if what == "end":
            del running[id_]

    def take(self, count: int) -> None:
        for produced in self.under_way[:count]:
            self.bench.write(self.bench.desk.take(produced))
        del self.under_way[:count]

    def crash(self, written: int) -> None:
        """One step over all there is, of whose outcomes only the first `written` reach the log."""
        out: list[Record] = []
        for record in self.bench.timeline.scan(Lane.TIMELINE, 0, self.bench.read_to):
            out += self.bench.desk.read(record)
        for produced in self.under_way:
            out += self.bench.desk.take(produced)
        self.bench.write(out[:written])
        self.under_way.clear()
        self.lives += 1
        self.bench = Bench(self.bench.timeline)

    def settle(self) -> None:
        while self.bench.desk.open or self.under_way:
            self.bench.read()
            for which in range(len(self.bench.runner.running)):
                self.produce(which, "end")
            self.take(100)
        self.bench.read()


@settings(max_examples=400, deadline=None)
@given(st.lists(ACTIONS, max_size=40))
def test_every_request_has_one_terminal_whatever_happens(actions: list[tuple[str, Any]]) -> None:
    world = World()
    for action, value in actions:
        match action:
            case "log":
                world.bench.log(value)
            case "read":
                world.bench.read(value)
            case "produce":
                world.produce(*value)
            case "take":
                world.take(value)
            case "crash":
                world.crash(value)
    world.bench.read()
    world.settle()
    world.bench = Bench(world.bench.timeline)
    assert world.bench.desk.open == 0

    asked = {
        e.id
        for e in map(decode, world.bench.timeline.scan(Lane.TIMELINE, 0))
        if e.type == "response.requested"
    }
    by_request: dict[str, list[Event]] = {id_: [] for id_ in asked}
    for event in world.bench.outcomes():
        by_request[event.cause or ""].append(event)
    for events in by_request.values():
        assert len({e.id for e in events}) == len(events)
        assert [OUTCOMES[e.type] for e in events] == [False] * (len(events) - 1) + [True]
        assert [e.sequence for e in events[:-1]] == list(range(len(events) - 1))
        assert len({e.data.text for e in events[:-1]}) <= 1, "parts of two lives are mixed"
