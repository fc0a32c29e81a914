"""The conversation flow's step without Bytewax: what it appends, what a restart appends, what makes it stop."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.conversation_session import ConversationSession, EndedSessions, what_is_logged
from infra.timeline import open_timeline
from infra.timeline.port import Timeline
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.errors import Divergence
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import KINDS, Kind
from tests.support.script import Session

pytestmark = pytest.mark.flow


def scripted(name: str = "s") -> Session:
    """A session with an answer, a backchannel and an interruption."""
    said = {1: "what is this about", 2: "mhm", 3: "wait stop"}
    session = Session(
        name,
        transcript=lambda r: said.get(int(r.data.turn.removeprefix("turn-")), "and so on"),
        reply="This is the answer to your question. It is somewhat longer than you would think, is it not so.",
    )
    return (
        session.silence(500)
        .speak(1000)
        .silence(2200)
        .speak(300)
        .silence(2000)
        .speak(400)
        .silence(3000)
        .close()
    )


def stored(records: list[Record], start: int = 0) -> list[StoredRecord]:
    return [
        StoredRecord(Lane.TIMELINE, 0, start + i, 0, r.key, r.headers, r.value)
        for i, r in enumerate(records)
    ]


def run(inputs: list[Event]) -> list[Record]:
    """The log of a run without a crash: each input followed by what was decided."""
    log: list[Record] = []
    session = ConversationSession(inputs[0].session)
    for event in inputs:
        record = encode(event)
        log.append(record)
        log.extend(session.feed(stored([record])[0]))
    return log


INPUTS = scripted().inputs
LOG = run(INPUTS)
DECISIONS = [r for r in LOG if KINDS[decode(r).type] is Kind.DECISION]


def test_it_decides_what_the_fold_decides() -> None:
    assert [decode(r).type for r in DECISIONS] == [
        e.type for e in scripted().events if KINDS[e.type] is Kind.DECISION
    ]
    assert {"response.cancelled", "floor.resumed", "session.ended"} <= {
        decode(r).type for r in DECISIONS
    }


def test_reading_its_own_decisions_back_changes_nothing() -> None:
    session = ConversationSession("s")
    again = [d for record in stored(LOG) for d in session.feed(record)]
    assert again == DECISIONS


def live(log: list[Record], pending: list[Record], records: int | None, keep: int = 0) -> None:
    """One life of the step over the log as it is: it dies after `records` records (None: never), having written only the first
    `keep` decisions of its last batch. The outside world appends its next input whenever the log has been read to its end."""
    logged = frozenset(decode(r).id for r in log if KINDS[decode(r).type] is Kind.DECISION)
    session = ConversationSession("s", logged)
    read = 0
    while True:
        if read == len(log):
            if not pending:
                return
            log.append(pending.pop(0))
        batch = session.feed(stored([log[read]], read)[0])
        read += 1
        if records is not None and read >= records:
            log.extend(batch[:keep])
            return
        log.extend(batch)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 5)), max_size=4))
def test_a_crash_at_any_point_loses_and_doubles_no_decision(crashes: list[tuple[int, int]]) -> None:
    log: list[Record] = []
    pending = [encode(event) for event in INPUTS]
    for records, keep in crashes:
        live(log, pending, records, keep)
    live(log, pending, None)
    found = [r for r in log if KINDS[decode(r).type] is Kind.DECISION]
    assert found == DECISIONS


def test_a_decision_with_other_data_stops_the_flow() -> None:
    session = ConversationSession("s")
    changed = []
    for record in LOG:
        event = decode(record)
        if event.type == "turn.ended":
            event = event._replace(data=event.data.model_copy(update={"text": "something else"}))
        changed.append(encode(event))
    with pytest.raises(Divergence, match=r"turn\.ended"):
        for record in stored(changed):
            session.feed(record)


def test_a_decision_that_nobody_derived_is_dropped() -> None:
    session = ConversationSession("s")
    foreign = decode(DECISIONS[0])._replace(id="not-derived")
    log = [*LOG[:20], encode(foreign), *LOG[20:]]
    assert [d for record in stored(log) for d in session.feed(record)] == DECISIONS


def test_what_is_logged_skips_ended_sessions_and_knows_the_others() -> None:
    timeline: Timeline = open_timeline("memory://")
    timeline.append(LOG)
    other = [encode(e._replace(session="open")) for e in INPUTS[:30]]
    timeline.append(other)
    decided = encode(decode(DECISIONS[0])._replace(session="open"))
    timeline.append([decided])
    ended = EndedSessions()
    start, first = what_is_logged(timeline, [0], ended)
    assert "s" in ended
    assert [(f.session, f.decisions) for f in first] == [("open", frozenset({decode(decided).id}))]
    assert set(start.values()) == {0}


def test_ended_sessions_are_remembered_up_to_a_bound() -> None:
    ended = EndedSessions(str(i) for i in range(100_000))
    ended.add("new")
    assert "new" in ended
    assert "0" not in ended


def test_an_end_that_a_device_writes_ends_nothing() -> None:
    log = open_timeline("memory://?partitions=1")
    end = next(decode(r) for r in reversed(LOG) if decode(r).type == "session.ended")
    log.append([*LOG[:3], encode(end._replace(source="device"))])
    ended = EndedSessions()
    what_is_logged(log, range(1), ended)
    assert "s" not in ended
    log.append([encode(end)])
    what_is_logged(log, range(1), ended)
    assert "s" in ended
