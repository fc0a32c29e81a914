"""An operator that fails: its session ends with it, in every reader alike, and the other sessions go on (law 8)."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flows.conversation_session import ConversationSession
from flows.replay import digests_through_bytewax, prove
from infra.timeline import open_timeline
from operators.interrupt import Interrupt
from operators.lifecycle import Lifecycle
from operators.reducer import Decisions
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.errors import BadRecord
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import forged
from tests.support.failing import POISON, Poisoned, with_operator
from tests.support.script import Session

pytestmark = pytest.mark.flow


class NeverEnds(Lifecycle):
    """What should end the session is what fails."""

    def step(self, state: Any, event: Event, now: int) -> Decisions:
        raise KeyError("turns")


def talk(name: str, said: str) -> Session:
    session = Session(name, transcript=lambda _: said)
    return session.silence(500).speak(1000).silence(4000).speak(1000).silence(4000).close()


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch, failing_operators: None) -> Iterator[None]:
    with_operator(monkeypatch, Poisoned)
    yield


GOOD, BAD = talk("good", "what is the weather"), talk("bad", POISON)


def run(inputs: list[Event]) -> list[Record]:
    """The log of a live flow: each input followed by what is decided."""
    log: list[Record] = []
    sessions: dict[str, ConversationSession] = {}
    for event in inputs:
        record = encode(event)
        log.append(record)
        session = sessions.setdefault(event.session, ConversationSession(event.session))
        if not session.ended:
            place = StoredRecord(Lane.TIMELINE, 0, len(log), 0, *record)
            log.extend(session.feed(place))
    return log


def both() -> list[Event]:
    """The inputs of the two sessions, in turns."""
    return [e for pair in zip(GOOD.inputs, BAD.inputs, strict=False) for e in pair]


def types(log: list[Record], session: str) -> list[str]:
    events = [decode(record) for record in log if record.key == session]
    return [e.type for e in events if e.source.startswith("conversation/")]


@pytest.mark.usefixtures("poisoned")
def test_the_session_ends_and_the_other_is_what_it_would_be_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        log = run(both())
    decided = types(log, "bad")
    # What comes before it in the order of the operators has still been decided.
    assert decided[-4:] == ["turn.ended", "response.requested", "fault.operator", "session.ended"]
    fault, end = (decode(r) for r in log if decode(r).source == "conversation/agenda")
    # Nothing of the message: it may differ from run to run.
    assert fault.data.model_dump() == {"operator": "capture", "error": "ZeroDivisionError"}
    assert (end.data.reason, end.data.turns) == ("fault", 1)
    assert fault.mediatime == end.mediatime and fault.cause == end.cause
    (said,) = caplog.records
    assert "session bad ends: operator capture failed taking turn.ended" in said.getMessage()
    assert said.exc_info is not None and said.exc_info[0] is ZeroDivisionError
    assert types(log, "good") == [
        e.type for e in GOOD.events if e.source.startswith("conversation/")
    ]


@pytest.mark.usefixtures("poisoned")
def test_a_restart_comes_to_the_same_end() -> None:
    end = [r for r in run(both()) if decode(r).source == "conversation/agenda"]
    before = [r for r in run(both()) if r.key == "bad" and r not in end]
    again = ConversationSession("bad", frozenset(decode(r).id for r in before))
    places = [StoredRecord(Lane.TIMELINE, 0, i, 0, *r) for i, r in enumerate(before)]
    assert [d for place in places for d in again.feed(place)] == end
    assert again.ended


@pytest.mark.usefixtures("poisoned")
def test_replay_says_what_fails_and_where() -> None:
    with open_timeline("memory://") as timeline:
        timeline.append(run(both()))
        proofs = prove(timeline)
        assert proofs["good"].same and proofs["good"].ended
        bad = proofs["bad"]
        assert not bad.same and bad.difference is None and bad.failure is not None
        assert bad.failure.error.startswith("ZeroDivisionError: object at")
        assert bad.failure.where.endswith(", step") and bad.ended
        # Through Bytewax, too, the other session is what it was.
        digests = digests_through_bytewax(timeline)
        assert digests["good"] == proofs["good"].digest


def test_once_mended_the_recorded_end_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, failing_operators: None
) -> None:
    with monkeypatch.context() as patch, open_timeline("memory://") as timeline:
        with_operator(patch, Poisoned)
        timeline.append(run(BAD.inputs))
        patch.undo()
        found = prove(timeline)["bad"].difference
    assert found is not None and found.recorded is not None
    assert found.recorded.type == "fault.operator"


def test_the_operator_that_ends_sessions_may_fail_itself(
    monkeypatch: pytest.MonkeyPatch, failing_operators: None
) -> None:
    with_operator(monkeypatch, NeverEnds)
    decided = types(run(GOOD.inputs), "good")
    assert decided[-2:] == ["fault.operator", "session.ended"]


def test_an_error_in_a_window_that_is_skimmed(
    monkeypatch: pytest.MonkeyPatch, failing_operators: None
) -> None:
    def fails(*_: Any) -> bool:
        raise IndexError

    monkeypatch.setattr(Interrupt, "advance", fails)
    monkeypatch.setattr(Interrupt, "skims", fails)
    assert types(run(GOOD.inputs), "good")[-2:] == ["fault.operator", "session.ended"]


def test_whatever_else_fails_gives_up_its_session_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run(GOOD.inputs)

    def fails(record: StoredRecord) -> Event:
        event = decode(record)
        if event.session == "bad" and event.type == "transcript.final":
            raise RuntimeError("no such thing as an unforeseen error")
        return event

    monkeypatch.setattr("flows.conversation_session.decode", fails)
    with caplog.at_level(logging.ERROR):
        log = run(both())
    (said,) = caplog.records
    assert "session bad is given up at offset" in said.getMessage()
    decided = [decode(r) for r in log if r.key == "bad"]
    assert "turn.ended" not in types(log, "bad") and "turn.started" in types(log, "bad")
    # Nobody can derive this end, but without it the other flows would wait for the session.
    failed, end = (e for e in decided if e.source == "conversation")
    assert failed.data.model_dump() == {"operator": "conversation", "error": "RuntimeError"}
    assert (end.type, end.data.reason) == ("session.ended", "fault")
    assert not any(forged(e.type, e.source) for e in (failed, end))
    assert [r for r in log if r.key == "good"] == whole


def test_a_record_that_cannot_be_read_is_no_such_error(caplog: pytest.LogCaptureFixture) -> None:
    session = ConversationSession("s")
    wrong = Record("s", (("ce_type", b"venus.turn.ended.v1"),), b"{}")
    with pytest.raises(BadRecord):
        decode(wrong)
    assert session.feed(StoredRecord(Lane.TIMELINE, 0, 0, 0, *wrong)) == []
    assert not caplog.records
