"""Claims: a work runs only after its claim was read back as the first, and has one end whatever happens to its processes (E4, E19)."""

import pytest

from infra.timeline import Timeline, open_timeline
from schemas.work import WorkCompleted, WorkProgress
from tests.harness.support import (
    Process,
    append,
    cancelling,
    expired,
    outcomes,
    queued,
    session_ended,
)

pytestmark = pytest.mark.flow

DONE = WorkCompleted(work="work-1", result="It is done.")
REQUEST = "s/work-1"


@pytest.fixture
def log() -> Timeline:
    return open_timeline("memory://")


def types(log: Timeline) -> list[str]:
    return [
        f"{e.type} {e.data.reason}" if e.type == "work.failed" else e.type for e in outcomes(log)
    ]


def test_nothing_runs_before_its_claim_was_read_back(log: Timeline) -> None:
    process = Process(log, "a")
    append(log, queued())
    process.read()
    assert process.runner.started == []
    process.write()
    assert types(log) == ["work.running"] and process.runner.started == []
    process.read()
    assert process.runner.started == [REQUEST]
    process.produce(REQUEST, DONE)
    process.turn()
    assert types(log) == ["work.running", "work.completed"]
    assert outcomes(log)[-1].data.attempt == 1


def test_e19_of_two_processes_exactly_one_owns_a_work(log: Timeline) -> None:
    a, b = Process(log, "a"), Process(log, "b")
    append(log, queued())
    a.read()
    b.read()
    b.write()
    a.write()
    a.turn()
    b.turn()
    assert (a.runner.started, b.runner.started) == ([], [REQUEST])
    a.produce(REQUEST, WorkCompleted(work="work-1", result="from a"))
    b.produce(REQUEST, DONE)
    a.turn()
    b.turn()
    assert [e.data.result for e in outcomes(log) if e.type == "work.completed"] == ["It is done."]


def test_after_a_crash_an_idempotent_skill_is_taken_up_again(log: Timeline) -> None:
    first = Process(log, "a")
    append(log, queued(skill="echo"))
    first.turn()
    first.produce(REQUEST, WorkProgress(work="work-1", text="half"))
    first.turn()
    second = Process(log, "b")
    second.turn()
    assert second.runner.started == [REQUEST]
    second.produce(REQUEST, WorkProgress(work="work-1", text="half again"))
    second.produce(REQUEST, DONE)
    second.turn()
    claims = [e for e in outcomes(log) if e.type == "work.running"]
    assert [(e.data.attempt, e.sequence) for e in claims] == [(1, 0), (2, 1)]
    progress = [e for e in outcomes(log) if e.type == "work.progress"]
    assert [e.sequence for e in progress] == [0, 1]
    assert len({e.id for e in outcomes(log)}) == len(outcomes(log))
    assert outcomes(log)[-1].data.attempt == 2


def test_after_a_crash_what_may_not_run_twice_is_lost(log: Timeline) -> None:
    first = Process(log, "a")
    append(log, queued(skill="pay"), queued("work-2", None, route="general"))
    first.turn()
    second = Process(log, "b")
    second.turn()
    assert second.runner.started == []
    assert types(log)[2:] == ["work.failed lost", "work.failed lost"]


def test_a_crash_before_the_claim_costs_nothing(log: Timeline) -> None:
    first = Process(log, "a")
    append(log, queued(skill="pay"))
    first.read()  # the claim is decided and never written
    second = Process(log, "b")
    second.turn()
    assert second.runner.started == [REQUEST] and types(log) == ["work.running"]


def test_a_process_that_was_taken_over_lets_go(log: Timeline) -> None:
    first = Process(log, "a")
    append(log, queued(skill="echo"))
    first.turn()
    second = Process(log, "b")
    second.turn()
    first.turn()
    assert first.runner.running == {}
    first.produce(REQUEST, WorkCompleted(work="work-1", result="stale"))
    second.produce(REQUEST, DONE)
    first.turn()
    second.turn()
    assert [e.data.result for e in outcomes(log) if e.type == "work.completed"] == ["It is done."]


def test_a_work_that_kills_its_processes_is_given_up(log: Timeline) -> None:
    append(log, queued(skill="echo"))
    for name in "abcd":
        Process(log, name).turn()
    assert types(log) == ["work.running"] * 3 + ["work.failed lost"]


@pytest.mark.parametrize("reads", [0, 1, 2, 3])
def test_e4_a_cancel_at_any_moment_is_one_end(log: Timeline, reads: int) -> None:
    process = Process(log, "a")
    append(log, queued())
    process.read(min(reads, 1))
    if reads > 1:
        process.write()
        process.read()
    if reads > 2:
        process.produce(REQUEST, DONE)
    append(log, cancelling())
    process.turn()
    process.produce(REQUEST, DONE)
    process.turn()
    ends = [t for t in types(log) if t != "work.running"]
    assert ends == (["work.completed"] if reads > 2 else ["work.cancelled"])
    assert process.runner.running == {}


def test_a_work_that_answers_twice_is_heard_once(log: Timeline) -> None:
    process = Process(log, "a")
    append(log, queued())
    process.turn()
    process.produce(REQUEST, DONE)
    process.produce(REQUEST, WorkCompleted(work="work-1", result="and again"))
    process.turn()
    assert [e.data.result for e in outcomes(log) if e.type == "work.completed"] == ["It is done."]


def test_an_expired_work_is_stopped_and_gets_no_other_end(log: Timeline) -> None:
    process = Process(log, "a")
    append(log, queued())
    process.turn()
    append(log, expired())
    process.turn()
    assert process.runner.running == {}
    process.produce(REQUEST, DONE)
    process.turn()
    assert types(log) == ["work.running"]
    Process(log, "b").turn()
    assert types(log) == ["work.running"]


def test_the_end_of_a_session_stops_its_works_and_no_others(log: Timeline) -> None:
    process = Process(log, "a")
    append(log, queued(), queued(session="other"))
    process.turn()
    append(log, session_ended())
    process.turn()
    assert list(process.runner.running) == ["other/work-1"]
    assert [e.type for e in outcomes(log, "s")] == ["work.running", "work.cancelled"]
    process.produce("other/work-1", DONE)
    process.turn()
    assert [e.type for e in outcomes(log, "other")] == ["work.running", "work.completed"]


def test_a_record_that_the_log_repeats_starts_nothing_twice(log: Timeline) -> None:
    process = Process(log, "a")
    append(log, queued(), queued())
    process.turn()
    claim = outcomes(log)[0]
    append(log, claim)
    process.turn()
    assert process.runner.started == [REQUEST]
