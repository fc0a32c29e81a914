"""Going on from a point of a recording: its past copied into a timeline on which flows will run, with a changed policy if wished.

The past is every input up to the point, each with all that it caused, so no cascade is cut in half. The point is an event (the input
that it came of is the last one), a media time, or the end of what the device sent. The change of policy is an event of the copy
(`session.updated`): before the last input where an event was named, so that the named decision itself is taken under it; else at the
end. What the inputs caused is derived anew, so the copy proves like any other session. Requests that are open there are taken up by
the flows, as after a crash (law 4): asked anew if nothing of their answer is in the past, ended as lost if a part of it is.

Under another name all ids that are derived from the session's are derived from the new one; the causes follow. Media is kept up to the
end of the last window, to the sample: perception would make windows of what is beyond. A device that goes on joins as it would after a
restart: its media begins a new epoch behind the old.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from flows.moments import Moment
from flows.perception_channel import Note
from flows.replay import Difference, Proof, all_records
from flows.session_files import BATCH, sessions_on
from infra.timeline.port import Timeline
from operators.fold import Applied, SessionFold, operator_versions
from operators.window import ChannelAssembler, samples_to_us
from schemas import ids
from schemas.base import WINDOW_US
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput, BadRecord
from schemas.perception import PerceptionWindow
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import PARTIALS, REQUESTS, TERMINALS
from schemas.session import SessionUpdated

SOURCE = "continue"
CLAIMS = 8
"""Attempts at a request whose outcomes' ids are recognised."""
STUB_US = 10_000
"""What is kept of a format epoch that has begun without a window: enough for its number to stay taken."""
_OVER = frozenset({"session.closed", "session.timed_out"})
_TIME = frozenset({"perception.window", "clock.tick"})
_NOT_KEPT = frozenset({"event.rejected"})
"""It names a place of the old log; in the new one something else lies there."""


@dataclass(slots=True)
class Continuation:
    """The past of a session, as records to append, media first."""

    session: str
    media: list[Record] = field(default_factory=list)
    timeline: list[Record] = field(default_factory=list)
    inputs: int = 0
    decisions: int = 0
    until_us: int = 0
    open: Counter[str] = field(default_factory=Counter)
    """Kind → requests that the flows will take up."""


def past_of(
    log: Timeline,
    session: str,
    until: Moment | None,
    changes: dict[str, Any],
    name: str | None = None,
) -> Continuation:
    """The past of `session` up to `until`, for going on as `name`.

    Raises:
        BadInput: no such session or point; the session is over there; its decisions do not follow from its inputs; its media is missing.
    """
    steps, raw, cut = _steps(log, session, until)
    past = _Past(session, name or session, raw)
    by_event = until is not None and until.id is not None
    # Nothing can be changed before there is a policy.
    amended = max(len(steps) - 1 if by_event else len(steps), 2)
    for index, step in enumerate(steps):
        if index == amended:
            past.amend(changes, cut)
        past.input(step)
    if amended >= len(steps):
        past.amend(changes, cut)
    out = past.out
    out.until_us = past.fold.now
    out.open.update(request.kind for request in past.fold.requests.values())
    out.media = list(_media(log, session, past))
    return out


def append(
    past: Continuation, into: Timeline, progress: Callable[[int], None] = lambda n: None
) -> None:
    """Write it to a timeline on which no flow is running yet.

    Raises:
        BadInput: a session of this name is there already.
    """
    if past.session in sessions_on(into):
        raise BadInput(
            f"session {past.session!r} is on {into.url} already; choose another name with --as"
        )
    for lane, records in ((Lane.MEDIA, past.media), (Lane.TIMELINE, past.timeline)):
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            into.append(batch, lane)
            progress(len(batch))


Raw = dict[tuple[str, str], StoredRecord]
"""(source, id) → the record of an input as it was written; the fold gives times to what has none."""


def _steps(log: Timeline, session: str, until: Moment | None) -> tuple[list[Applied], Raw, str]:
    """The applied inputs up to the point, in causal order, and the id of what is there."""
    steps: list[Applied] = []
    raw: Raw = {}
    cut: list[str] = []
    over: list[Applied] = []

    def see(step: Applied) -> None:
        if cut or over:
            return
        here = (step.input, *step.decisions)
        if any(e.type in _OVER for e in here):
            over.append(step)
        elif (
            until is not None and until.us is not None and _moves_time(step, proof.fold) > until.us
        ):
            cut.append(steps[-1].input.id if steps else "")
        else:
            steps.append(step)
            if until is not None and until.id is not None:
                cut.extend(e.id for e in here if until.is_reached(e, proof.fold.now))

    proof = Proof(session, on_applied=see)
    for record in all_records(log, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        raw.setdefault((event.source, event.id), record)
        proof.feed(event)
        if cut or over:
            break
    if not raw:
        raise BadInput(f"no session {session!r} on {log.url}; `venus sessions` lists what is there")
    if proof.result.failure is not None:
        raise BadInput(
            f"session {session!r} cannot be gone on with: an operator fails in it, {proof.result.failure.error}; "
            "`venus replay` shows where"
        )
    if proof.result.difference is not None:
        raise BadInput(
            f"session {session!r} cannot be gone on with: {_told(proof.result.difference)}; "
            "`venus replay` shows the difference"
        )
    if until is not None and until.id is not None and not cut:
        there = "before the session is over" if over else "in it"
        raise BadInput(f"session {session!r}: no event {until.text!r} {there}")
    if len(steps) < 2:
        raise BadInput(f"session {session!r} has not begun there; choose a later point")
    return steps, raw, cut[0] if cut else steps[-1].input.id


def _moves_time(step: Applied, fold: SessionFold) -> int:
    """The media time that an input has moved its session to, 0 if none."""
    asap = fold.config is not None and fold.config.pacing == "asap"
    return (step.input.mediatime or 0) if asap or step.input.type in _TIME else 0


def _told(difference: Difference) -> str:
    event = difference.odd_one
    what = (
        "a decision" if event is None else f"{event.type} at {(event.mediatime or 0) / 1e6:.3f} s"
    )
    return f"with these operators {what} does not come out as recorded"


class _Past:
    """The copy while it grows. Its own fold derives what its inputs cause."""

    def __init__(self, old: str, new: str, raw: Raw) -> None:
        self.old, self.new = old, new
        self.fold = SessionFold(new)
        self.out = Continuation(new)
        self.at_us = 0
        """How far it has come."""
        self.ids: dict[str, str] = {}
        """Old id → new id."""
        self.windows: dict[str, PerceptionWindow] = {}
        """Channel → the last window that was kept."""
        self.epochs: dict[str, int] = {}
        """Channel → the last format epoch whose beginning was kept."""
        self._raw = raw

    def input(self, step: Applied) -> None:
        event = step.input
        self.at_us = max(self.at_us, event.mediatime or 0)
        if event.type in _NOT_KEPT:
            return
        renamed = self._renamed(self._raw[event.source, event.id], event)
        self._name_decisions(step)
        if event.type == "perception.window":
            self.windows[event.data.channel] = event.data
        elif event.type == "perception.format_changed":
            self.epochs[event.data.channel] = event.data.epoch
        self._add(renamed)

    def amend(self, changes: dict[str, Any], cut: str) -> None:
        """Say in the log that this session goes on from another's past, and under which policy."""
        source = f"{SOURCE}/{self.ids.get(cut, cut)}"
        data = SessionUpdated(policy=changes, reason=f"continues {self.old} from {cut}")
        id_ = ids.observation_id(self.new, source, 0, data.TYPE)
        self._add(encode(Event(data.TYPE, self.new, id_, source, data, self.at_us, sequence=0)))

    def _add(self, record: Record) -> None:
        event = decode(record)
        done = self.fold.feed(event)
        if any(a.fate == "late" and a.input.id == event.id for a in done):
            # asap: its request waits for the next window here, and is asked anew then.
            return
        self.out.timeline.append(record)
        self.out.inputs += 1
        for applied in done:
            self.out.timeline += [encode(decision) for decision in applied.decisions]
            self.out.decisions += len(applied.decisions)

    # --- names

    def _renamed(self, record: StoredRecord, event: Event) -> Record:
        """The record of an input under the new name; everything else stays byte for byte."""
        value = record.value
        if event.type == "session.configured" and event.data.operators != operator_versions():
            # These operators have just proved to decide the same, and it is they who go on.
            value = orjson.dumps(orjson.loads(value) | {"operators": operator_versions()})
        if self.old == self.new:
            return Record(self.new, record.headers, value)
        self.ids[event.id] = id_ = self._id(event)
        cause = None if event.cause is None else self.ids.get(event.cause, event.cause)
        changed = {"ce_id": id_, "ce_causationid": cause}
        headers = tuple(
            (name, (changed.get(name.lower()) or "").encode() or content)
            for name, content in record.headers
        )
        return Record(self.new, headers, value)

    def _id(self, event: Event) -> str:
        """An id that is derived from the session's name, from the new one; any other as it is."""
        for id_of in _derivations(event, self.ids):
            if id_of(self.old, event.cause) == event.id:
                return id_of(self.new, self.ids.get(event.cause or "", event.cause or ""))
        return event.id

    def _name_decisions(self, step: Applied) -> None:
        if self.old == self.new:
            return
        counts: Counter[str] = Counter()
        for decision in step.decisions:
            operator = decision.source.rpartition("/")[2]
            self.ids[decision.id] = ids.decision_id(
                self.new, self.ids[step.input.id], operator, counts[operator]
            )
            counts[operator] += 1


def _derivations(event: Event, known: dict[str, str]) -> Iterator[Callable[[str, str | None], str]]:
    """The ways in which the id of an input may have come of its session's name and its cause."""
    data = event.data
    if event.type in PARTIALS or event.type in TERMINALS or event.type == "session.configured":
        index = event.sequence or 0
        for attempt in range(1, CLAIMS + 1):
            yield lambda _, cause, n=attempt: ids.outcome_id(cause or "", n, event.type, index)  # type: ignore[misc]
    elif isinstance(data, PerceptionWindow):
        yield lambda session, _: ids.window_id(session, data.channel, data.epoch, data.first_sample)
    elif event.type == "clock.tick":
        yield lambda session, _: ids.derived_id("tick", session, event.mediatime or 0)
    elif event.type in ("perception.format_changed", "perception.gap"):
        kind = "format" if event.type == "perception.format_changed" else "gap"
        note = Note(kind, data.model_dump(exclude={"channel"}), 0, None)  # type: ignore[arg-type]
        yield lambda session, _: ids.derived_id(kind, session, *note.place(data.channel))
    elif event.sequence is not None:
        number = event.sequence
        yield lambda session, _: ids.observation_id(session, event.source, number, event.type)


# --- media


def _media(log: Timeline, session: str, past: _Past) -> Iterator[Record]:
    """The media of the kept windows."""
    assert past.fold.config is not None
    own = past.fold.config.channel
    channels: dict[str, _Media] = {}
    for record in log.scan(Lane.MEDIA, log.partition_of(session), 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        name = event.correlation or own
        if name not in channels:
            channels[name] = _Media(past.windows.get(name), past.epochs.get(name, -1))
        if isinstance(event.data, Pcm) and (pcm := channels[name].kept(event)):
            yield Record(past.new, record.headers, pcm)
    for name, window in past.windows.items():
        if name not in channels or channels[name].reached <= (window.epoch, _start_us(window)):
            raise BadInput(
                f"session {session!r}: the recording does not hold the media of its windows, without which nobody can go on with it"
            )


def _start_us(window: PerceptionWindow) -> int:
    return samples_to_us(window.first_sample)


class _Media:
    """One channel's media up to the last kept window, cut as perception would count it."""

    def __init__(self, last: PerceptionWindow | None, epochs: int) -> None:
        self._end = (-1, 0) if last is None else (last.epoch, _start_us(last) + WINDOW_US)
        self._epochs = epochs
        """The last epoch whose beginning was kept."""
        self._assembler = ChannelAssembler()
        self.reached = (-1, 0)
        """(epoch, µs since its start) up to which there is media."""

    def kept(self, event: Event) -> bytes:
        """What is kept of a record's samples."""
        pcm = event.data
        before = self.reached
        self._assembler.feed(event.source, event.id, event.sequence, event.mediatime, pcm)
        self.reached = epoch, at_us = self._assembler.position
        if self.reached <= self._end:
            return bytes(pcm.pcm)
        if epoch == self._end[0]:
            left = pcm.samples - (at_us - self._end[1]) * pcm.rate // 1_000_000
            # A record behind a gap that the last windows lie in: it is what fills the gap.
            left = max(left, int(before < self._end))
        else:
            left = STUB_US * pcm.rate // 1_000_000 if before[0] < epoch <= self._epochs else 0
        return bytes(pcm.pcm[: 2 * pcm.channels * max(0, left)])


def waiting(past: Continuation) -> str:
    """The open requests, for people."""
    kinds = {kind: type_ for type_, kind in REQUESTS.items()}
    return ", ".join(f"{count} {kinds[kind]}" for kind, count in past.open.items())
