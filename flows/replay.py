"""Replay: feed a recorded session's inputs to the operators again and compare what follows with what was recorded (law 12).

Nothing but the timeline lane is read: no model, no media, no clock. `Proof` folds one session and compares decision by decision, in
order, holding only what has not been matched yet, so that its memory does not grow with the session. `prove` runs it over a timeline,
`digest_through_bytewax` runs the same records through the conversation flow's own step and must give the same decisions.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from traceback import extract_tb
from typing import Any

from flows.moments import Moment
from infra.timeline.mcap import McapTimeline
from infra.timeline.port import CHUNK_EVENTS
from infra.timeline.sqlite import SqliteTimeline
from operators.fold import Applied, SessionFold, operator_versions
from schemas.base import Kind
from schemas.cloudevents import decode, encode, wire_type
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord
from schemas.policy import Policy
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import KINDS

_DECISIONS = frozenset(wire_type(n).encode() for n, kind in KINDS.items() if kind is Kind.DECISION)

CONTEXT = 8
"""Events shown before a difference."""

REPEATS = 4096
"""Decisions of a session among which a second copy of one is known again: a crash or a retry writes the last few twice."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which recorded and derived decisions part; either side is None where it has nothing there."""

    index: int
    recorded: Event | None
    derived: Event | None
    before: tuple[Event, ...]

    @property
    def odd_one(self) -> Event | None:
        """The decision that one side has and the other lacks: of two different ones, the earlier in media time."""
        a, b = self.recorded, self.derived
        if a is None or b is None:
            return a or b
        return b if (b.mediatime or 0) < (a.mediatime or 0) else a

    @property
    def operator(self) -> str:
        event = self.odd_one
        return "" if event is None else event.source.rpartition("/")[2]

    def fields(self) -> list[tuple[str, Any, Any]]:
        """(field, recorded value, derived value) of all that differs."""
        a, b = self.recorded, self.derived
        if a is None or b is None or a.id != b.id:
            return [("decision", a and a.type, b and b.type)]
        rows: list[tuple[str, Any, Any]] = [
            (name, getattr(a, name), getattr(b, name))
            for name in ("type", "mediatime", "cause")
            if getattr(a, name) != getattr(b, name)
        ]
        if a.type == b.type and a.data != b.data:
            left, right = a.data.model_dump(), b.data.model_dump()
            rows += [(f"data.{k}", left[k], right.get(k)) for k in left if left[k] != right.get(k)]
        return rows


@dataclass(frozen=True, slots=True)
class Failure:
    """An operator has raised an error, which is a fault of it whatever came in."""

    error: str
    where: str
    """File, line and function."""
    taking: Event
    before: tuple[Event, ...]


@dataclass(slots=True)
class SessionProof:
    """What replaying one session showed."""

    session: str
    inputs: int = 0
    decisions: int = 0
    media_us: int = 0
    repeats: int = 0
    """Records in the raw log that a crash or a retry had written twice."""
    pending: int = 0
    """Decisions that follow from the last inputs and are not in the log (a session that was cut off)."""
    ended: bool = False
    configured: bool = False
    versions: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    """Operators whose recorded version is not the present one: name → (recorded, present)."""
    difference: Difference | None = None
    failure: "Failure | None" = None
    digest: str = ""
    """Of the derived decisions as they would be written; empty where nobody asked for it."""
    bytewax_agrees: bool | None = None

    @property
    def same(self) -> bool:
        return self.difference is None and self.failure is None and self.bytewax_agrees is not False


def same_decision(a: Event, b: Event) -> bool:
    """Law 12: type, id, media time, cause and data are the same."""
    return (
        a.id == b.id
        and a.type == b.type
        and a.mediatime == b.mediatime
        and a.cause == b.cause
        and a.data == b.data
    )


class Digest:
    """A running hash of decisions as they are written."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def add(self, record: Record) -> None:
        update = self._hash.update
        for name, value in record.headers:
            update(name.encode())
            update(value)
        update(record.value)

    def hex(self) -> str:
        return self._hash.hexdigest()


class Proof:
    """Folds one session and compares. `override` makes it a what-if: then nothing is compared, `on_applied` sees the outcome."""

    def __init__(
        self,
        session: str,
        override: Callable[[Policy], Policy] | None = None,
        on_applied: Callable[[Applied], None] | None = None,
        digest: bool = False,
    ) -> None:
        self.result = SessionProof(session)
        self.fold = SessionFold(session, override=override, on_recorded=self._recorded)
        self._derived: deque[Event] = deque()
        self._logged: deque[Event] = deque()
        self._seen: dict[str, None] = {}
        """The last ids that were read, in their order."""
        self._inputs = 0
        self._end_recorded = False
        self._before: deque[Event] = deque(maxlen=CONTEXT)
        self._digest = Digest() if digest else None
        """Only where it is compared: writing each decision again takes as long as deriving it."""
        self._on_applied = on_applied
        self._compare = override is None

    def take(self, events: Sequence[Event], at: int) -> int:
        """`feed` the event in place `at`, or the windows from there on in which nothing is decided, all at once; returns how many."""
        if self._on_applied is None and events[at].type == "perception.window":
            count = self.fold.skim(events, at)
            if count:
                self._inputs += count
                self._before.extend(events[max(at, at + count - CONTEXT) : at + count])
                return count
        self.feed(events[at])
        return 1

    def feed(self, event: Event) -> None:
        for step in self.fold.feed(event):
            if step.fate != "applied":
                self.result.repeats += step.fate == "repeat"
                continue
            self._inputs += 1
            if self._on_applied is not None:
                self._on_applied(step)
            fault = self.fold.fault
            if fault is not None:
                assert isinstance(fault.__cause__, Exception)
                self.fail(fault.__cause__, step.input)
                continue
            self._before.append(step.input)
            if step.decisions:
                self.result.decisions += len(step.decisions)
                self._derived.extend(step.decisions)
                if self._digest is not None:
                    for decision in step.decisions:
                        self._digest.add(encode(decision))
                self._match()

    def _recorded(self, event: Event) -> None:
        if event.id in self._seen:
            self.result.repeats += 1
            return
        self._seen[event.id] = None
        if len(self._seen) > REPEATS:
            del self._seen[next(iter(self._seen))]
        self._end_recorded = self._end_recorded or event.type == "session.ended"
        self._logged.append(event)
        self._match()

    def _match(self) -> None:
        while self._derived and self._logged and self.result.difference is None:
            derived, recorded = self._derived.popleft(), self._logged.popleft()
            index = self.result.decisions - len(self._derived) - 1
            if self._compare and not same_decision(derived, recorded):
                self._differ(index, recorded, derived)
            self._before.append(derived)

    def _differ(self, index: int, recorded: Event | None, derived: Event | None) -> None:
        if self.result.difference is None:
            self.result.difference = Difference(index, recorded, derived, tuple(self._before))

    def fail(self, error: Exception, taking: Event) -> None:
        """Note the error of an operator; nothing more follows."""
        last = extract_tb(error.__traceback__)[-1]
        where = f"{'/'.join(Path(last.filename).parts[-2:])}:{last.lineno}, {last.name}"
        said = f"{type(error).__name__}: {error}"
        self.result.failure = Failure(said, where, taking, tuple(self._before))

    def finish(self) -> SessionProof:
        """After the last record: what is left over on either side."""
        result, fold = self.result, self.fold
        result.inputs = self._inputs
        result.ended = fold.ended
        result.media_us = fold.now
        result.digest = "" if self._digest is None else self._digest.hex()
        result.configured = fold.config is not None
        if fold.config is not None:
            present = operator_versions()
            recorded = fold.config.operators
            for name in sorted(present.keys() | recorded.keys()):
                if present.get(name) != recorded.get(name):
                    result.versions[name] = (recorded.get(name), present.get(name))
        if self._compare and result.failure is None:
            if self._logged:
                self._differ(result.decisions, self._logged[0], None)
            elif self._derived and self._end_recorded:
                self._differ(result.decisions - len(self._derived), None, self._derived[0])
            else:
                result.pending = len(self._derived)
        return result


def sessions_of(records: Iterable[StoredRecord]) -> Iterator[tuple[str, Event]]:
    """(session, event) of every record that can be read."""
    for event in _readable(records):
        yield event.session, event


def _readable(records: Iterable[StoredRecord]) -> Iterator[Event]:
    for record in records:
        if not record.key:
            continue
        try:
            yield decode(record)
        except BadRecord:
            continue


def events_on(timeline: Any, session: str | None = None) -> Iterator[Event]:
    """The events of the timeline lane, of one session if named; files have a faster way than record by record."""
    return chain.from_iterable(event_chunks(timeline, session))


def event_chunks(timeline: Any, session: str | None = None) -> Iterator[list[Event]]:
    """`events_on` by the hundreds, for those who take several at once."""
    if isinstance(timeline, McapTimeline | SqliteTimeline):
        yield from timeline.event_chunks(Lane.TIMELINE, session)
        return
    events = _readable(all_records(timeline, session))
    while chunk := list(islice(events, CHUNK_EVENTS)):
        yield chunk


def all_records(timeline: Any, session: str | None = None) -> Iterator[StoredRecord]:
    """The timeline lane from its beginning to its present end; of one session if named."""
    partitions = range(timeline.partitions) if session is None else [timeline.partition_of(session)]
    for partition in partitions:
        yield from timeline.scan(Lane.TIMELINE, partition, 0, session)


def prove(
    timeline: Any,
    session: str | None = None,
    *,
    progress: Callable[[int], None] | None = None,
    until: Moment | None = None,
    digest: bool = True,
) -> dict[str, SessionProof]:
    """Replay every session of a timeline (or the one named) by the bare fold; of each only what comes up to `until`.

    Raises:
        BadInput: the named session is not there, or no such event as `until` names.
    """
    proofs: dict[str, Proof] = {}
    stopped: set[str] = set()
    count, reached = 0, False
    for events in event_chunks(timeline, session):
        at = 0
        while at < len(events):
            name, taken = events[at].session, 1
            proof = proofs.get(name)
            if proof is None:
                proof = proofs[name] = Proof(name, digest=digest)
            if name not in stopped:
                try:
                    if until is None:
                        taken = proof.take(events, at)
                    else:
                        proof.feed(events[at])
                except Exception as error:
                    proof.fail(error, events[at])
                    stopped.add(name)
                if until is not None and until.is_reached(events[at], proof.fold.now):
                    stopped.add(name)
                    reached = True
            at += taken
        count += len(events)
        if progress is not None:
            progress(count)
    if session is not None and not proofs:
        raise BadInput(
            f"no session {session!r} in {timeline.url}; `venus sessions` lists what is there"
        )
    if until is not None and until.id is not None and not reached:
        raise BadInput(f"no event {until.text!r} in {timeline.url}")
    return {name: proof.finish() for name, proof in proofs.items()}


def _inputs(timeline: Any, session: str | None) -> Iterator[StoredRecord]:
    """What is no decision: the flow would stop at a recorded decision that it does not derive, and here that is a finding."""
    for record in all_records(timeline, session):
        wire = next((value for name, value in record.headers if name.lower() == "ce_type"), b"")
        if wire not in _DECISIONS:
            yield record


def digests_through_bytewax(
    timeline: Any, session: str | None = None, workers: int = 1
) -> dict[str, str]:
    """Run the timeline's records through the conversation flow's step; per session the digest of what it decided."""
    from bytewax import operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import cluster_main, run_main

    from flows.bytewax_io import CollectSink, RecordedSource
    from flows.conversation import conversation_step
    from flows.conversation_session import EndedSessions

    digests: dict[str, Digest] = {}

    def collect(record: Record) -> None:
        digests.setdefault(record.key, Digest()).add(record)

    flow = Dataflow("replay")
    records = op.input("recording", flow, RecordedSource(lambda: _inputs(timeline, session)))
    op.output("decisions", conversation_step(records, EndedSessions()), CollectSink(collect))
    if workers == 1:
        run_main(flow)  # type: ignore[no-untyped-call]
    else:
        cluster_main(flow, [], 0, worker_count_per_proc=workers)  # type: ignore[no-untyped-call]
    return {name: digest.hex() for name, digest in digests.items()}


def prove_both(
    timeline: Any, session: str | None = None, *, progress: Callable[[int], None] | None = None
) -> dict[str, SessionProof]:
    """`prove`, and whether the same records through Bytewax give the very same decisions."""
    results = prove(timeline, session, progress=progress, digest=True)
    if any(result.failure is not None for result in results.values()):
        return results
    digests = digests_through_bytewax(timeline, session)
    empty = Digest().hex()
    for name, result in results.items():
        result.bytewax_agrees = digests.get(name, empty) == result.digest
    return results
