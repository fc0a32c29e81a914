"""The works on a timeline, for looking at: folded from their events by the same book that the operators keep."""

import contextlib
from dataclasses import dataclass, field
from typing import Any

from flows.signals import send
from infra.timeline.port import Timeline
from operators.works import EVENTS, Work, WorkBook
from schemas.cloudevents import decode, wire_type
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord
from schemas.record import Lane
from schemas.work import WorkCancelRequested

_SEEN = EVENTS | {"work.called", "session.configured"}
_WIRES = frozenset(wire_type(name).encode() for name in _SEEN)
_WINDOW = wire_type("perception.window").encode()
ALL = 1 << 30


def works_of(data: Any) -> tuple[str, ...]:
    """The works that an event of type `work.*` is about: one, those of a delivery, or none yet (a wish)."""
    work = getattr(data, "work", None)
    return tuple(getattr(data, "works", ())) or (() if work is None else (work,))


@dataclass(slots=True)
class SeenWork:
    """A work of a session, with its story."""

    session: str
    work: Work
    calls: list[Any] = field(default_factory=list)
    story: list[Event] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        w = self.work
        return {
            "session": self.session,
            "work": w.work,
            "status": w.status,
            "delivery": w.delivery,
            "skill": w.skill,
            "arguments": w.arguments,
            "query": w.query,
            "queued_us": w.queued_us,
            "ended_us": w.ended_us,
            "attempt": w.attempt,
            "progress": w.progress,
            "result": w.result,
            "why": w.why,
            "spoken": w.text,
            "calls": [c.model_dump(mode="json") for c in self.calls],
            "artifacts": [
                {"name": n, "media_type": m, "dataref": d, "bytes": size}
                for n, m, d, size in w.artifacts
            ],
        }


def works_on(log: Timeline, session: str | None = None) -> list[SeenWork]:
    """Every work, in the order in which they were queued."""
    books: dict[str, WorkBook] = {}
    seen: dict[tuple[str, str], SeenWork] = {}
    reached: dict[str, int] = {}
    asap: set[str] = set()
    partitions = range(log.partitions) if session is None else (log.partition_of(session),)
    for partition in partitions:
        for record in log.scan(Lane.TIMELINE, partition, session=session):
            if not record.key:
                continue
            headers = dict(record.headers)
            wire = headers.get("ce_type")
            if wire == _WINDOW and record.key not in asap:
                with contextlib.suppress(ValueError):
                    time = int(headers.get("ce_mediatime", b""))
                    reached[record.key] = max(reached.get(record.key, 0), time)
            if wire not in _WIRES:
                continue
            try:
                event = decode(record)
            except BadRecord:
                continue
            key = event.session
            # Outcomes have no media time of their own: they happen at the session's, which windows move on.
            now = reached[key] = max(reached.get(key, 0), event.mediatime or 0)
            if event.type == "session.configured":
                if event.data.pacing == "asap":
                    # Its windows are in the log before the answers that they wait for.
                    asap.add(key)
                continue
            book = books.setdefault(key, WorkBook(ALL))
            book.observe(event, now)
            for name in works_of(event.data):
                if name not in book.works:
                    continue
                one = seen.setdefault((key, name), SeenWork(key, book.works[name]))
                one.story.append(event._replace(mediatime=now))
                if event.type == "work.called":
                    one.calls.append(event.data)
    return list(seen.values())


def find_work(log: Timeline, session: str | None, work: str) -> SeenWork:
    """The work of that name; without a session, the only one or the newest.

    Raises:
        BadInput: there is none.
    """
    found = [w for w in works_on(log, session) if w.work.work == work]
    if not found:
        where = f"session {session}" if session else "this timeline"
        raise BadInput(f"no work {work} in {where}; `venus work list` shows what there is")
    if session is None and len({w.session for w in found}) > 1:
        names = ", ".join(w.session for w in found[:5])
        raise BadInput(f"several sessions have a {work} ({names}); say which with --session")
    return found[-1]


def request_cancel(log: Timeline, seen: SeenWork) -> None:
    """Ask for the work's end, as any device may."""
    send(log, seen.session, WorkCancelRequested(work=seen.work.work, reason="command line"))
