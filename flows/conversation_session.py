"""One session of the conversation flow, apart from Bytewax: records in, records of new decisions out.

It folds the records (`operators.fold`), checks the decisions that it reads back against those that it derived, and leaves out what the
log holds already. State is stored nowhere: a restart reads the log from its beginning (law 11).
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from infra.timeline.port import Place, Timeline
from operators.fold import SessionFold
from schemas.base import Kind
from schemas.cloudevents import attributes, decode, encode
from schemas.envelope import Event
from schemas.errors import BadRecord, Divergence
from schemas.ids import decision_id
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import KINDS, forged
from schemas.responses import OperatorFailed
from schemas.session import SessionEnded

log = logging.getLogger(__name__)

ENDED_REMEMBERED = 100_000
"""Ended sessions whose late records are still recognised as such."""


class Logged(NamedTuple):
    """Sent down the flow before anything else of a session: the decisions of it that the log holds already."""

    session: str
    decisions: frozenset[str]


class DecisionLedger:
    """Derived decisions against recorded ones: the same id must hold the same data (law 11)."""

    def __init__(self) -> None:
        self._expected: dict[str, Event] = {}

    def derived(self, decisions: Iterable[Event]) -> None:
        for decision in decisions:
            self._expected[decision.id] = decision

    def recorded(self, event: Event) -> None:
        """Check a decision that was read back; one that was never derived (or is a repeat) is dropped.

        Raises:
            Divergence: the log holds another decision under this id.
        """
        expected = self._expected.pop(event.id, None)
        if expected is not None and (expected.type != event.type or expected.data != event.data):
            raise Divergence(
                f"session {event.session}: the log holds {event.type} {event.id} with {event.data!r}, but "
                f"{expected.type} with {expected.data!r} follows from its inputs; was it written by another version of the operators?"
            )


class ConversationSession:
    """One session of the flow: records in, records of new decisions out."""

    def __init__(self, session: str, logged: frozenset[str] = frozenset()) -> None:
        self._ledger = DecisionLedger()
        self._fold = SessionFold(session, on_recorded=self._ledger.recorded)
        self._logged = logged
        self._broken = False

    @property
    def ended(self) -> bool:
        """The session has ended: whatever still comes of it is late."""
        return self._fold.ended or self._broken

    def feed(self, record: StoredRecord) -> list[Record]:
        """Take the next record of the session; returns those of the decisions that it leads to.

        Raises:
            Divergence: the log holds another decision than the one that follows.
        """
        if self._broken:
            return []
        try:
            return self._feed(record)
        except BadRecord:
            return []  # perception reports it; a type of a newer version passes through
        except Divergence:
            raise
        except Exception as error:
            # What an operator fails with ends its session in the fold. Should anything else fail, it would do so after every restart,
            # so this session decides nothing any more, and all others go on (law 8).
            log.exception("session %s is given up at offset %d", record.key, record.offset)
            self._broken = True
            return self._given_up(record, error)

    def _given_up(self, record: StoredRecord, error: Exception) -> list[Record]:
        """The end that nobody can derive, so that no other flow goes on with the session; a replay shows it as a difference."""
        session = record.key or ""
        now, cause = self._fold.now, attributes(record.headers).get("ce_id", b"").decode()
        failed = OperatorFailed(operator="conversation", error=type(error).__name__)
        end = SessionEnded(reason="fault", turns=0, responses=0)
        return [
            encode(
                Event(
                    data.TYPE,
                    session,
                    decision_id(session, cause, "conversation", index),
                    "conversation",
                    data,
                    now,
                    cause,
                )
            )
            for index, data in enumerate((failed, end))
        ]

    def _feed(self, record: StoredRecord) -> list[Record]:
        event = decode(record)
        had_ended = self.ended
        out: list[Record] = []
        for step in self._fold.feed(event):
            if step.decisions:
                self._ledger.derived(step.decisions)
                out.extend(encode(d) for d in step.decisions if d.id not in self._logged)
        fault = self._fold.fault
        if fault is not None and not had_ended:
            log.error(
                "session %s ends: operator %s failed taking %s %s",
                event.session,
                fault.operator,
                fault.event.type,
                fault.event.id,
                exc_info=fault.__cause__,
            )
        return out


class EndedSessions:
    """The ids of ended sessions, the newest `ENDED_REMEMBERED` of them."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict.fromkeys(ids)

    def add(self, session: str) -> None:
        self._ids[session] = None
        if len(self._ids) > ENDED_REMEMBERED:
            self._ids.popitem(last=False)

    def __contains__(self, session: str) -> bool:
        return session in self._ids


def what_is_logged(
    timeline: Timeline, partitions: Sequence[int], ended: EndedSessions
) -> tuple[dict[Place, int], list[Any]]:
    """Look through the log before starting: which sessions have ended, which decisions of the others are there."""
    decisions: dict[str, set[str]] = {}
    for partition in partitions:
        for record in timeline.scan(Lane.TIMELINE, partition):
            if not record.key:
                continue
            type_, id_, source = _attributes(record)
            if forged(type_, source):
                continue
            if type_ == "session.ended":
                ended.add(record.key)
                decisions.pop(record.key, None)
            elif KINDS.get(type_) is Kind.DECISION and record.key not in ended:
                decisions.setdefault(record.key, set()).add(id_)
    start = {Place(Lane.TIMELINE, partition): 0 for partition in partitions}
    return start, [Logged(session, frozenset(ids)) for session, ids in decisions.items()]


def _attributes(record: StoredRecord) -> tuple[str, str, str]:
    """Short type, id and source."""
    headers = dict(record.headers)
    wire = headers.get("ce_type", b"").decode(errors="replace")
    name = wire.removeprefix("venus.").rpartition(".v")[0]
    id_, source = (headers.get(h, b"").decode(errors="replace") for h in ("ce_id", "ce_source"))
    return name, id_, source
