"""Stepping through a recording: each input with what it caused, and the state of every operator at any point.

States are the operators' own: dataclasses, shown as JSON. What is shown is the state after the event that was named, or after the last
input up to a media time.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from flows.moments import Moment
from flows.replay import all_records, sessions_of
from infra.timeline.port import Timeline
from operators.fold import Applied, SessionFold
from operators.reducer import NEVER
from schemas.envelope import Event
from schemas.errors import BadInput


def events_of(timeline: Timeline, session: str | None) -> tuple[str, Iterator[Event]]:
    """The events of one session; without a name, of the only one there is.

    Raises:
        BadInput: there is none, or there are several and none was named.
    """
    if session is None:
        from flows.session_files import sessions_on

        there = sessions_on(timeline)
        if len(there) != 1:
            what = f"{len(there)} sessions; name one with --session" if there else "no session"
            raise BadInput(
                f"{timeline.url}: there is {what}"
                if not there
                else f"{timeline.url}: there are {what}"
            )
        session = there[0]
    return session, (
        event for name, event in sessions_of(all_records(timeline, session)) if name == session
    )


def steps(
    session: str, events: Iterable[Event], start: Moment | None, until: Moment | None
) -> Iterator[tuple[Applied, SessionFold]]:
    """Each applied input from `start` on, up to the one that reaches `until`.

    Raises:
        BadInput: the session does not come to `start`.
    """
    fold = SessionFold(session)
    begun = start is None
    for event in events:
        for applied in fold.feed(event):
            if applied.fate != "applied":
                continue
            here = (applied.input, *applied.decisions)
            begun = begun or (
                start is not None and any(start.is_reached(e, fold.now) for e in here)
            )
            if (
                until is not None
                and until.us is not None
                and until.is_reached(applied.input, fold.now)
            ):
                return
            if begun:
                yield applied, fold
            if until is not None and any(until.is_reached(e, fold.now) for e in here):
                return
    if start is not None and not begun:
        raise BadInput(f"session {session!r} has no {start.text!r}, or ends before it")


def state_at(
    session: str, events: Iterable[Event], at: Moment | None
) -> tuple[SessionFold, Applied | None]:
    """The fold as it is at a point, or at the end, and the input that was applied last.

    Raises:
        BadInput: no such event in this session.
    """
    fold = SessionFold(session)
    last: Applied | None = None
    at = at or Moment("the end")
    found = False
    for event in events:
        found = True
        if (
            at.us is not None
            and (event.mediatime or 0) > at.us
            and event.type == "perception.window"
        ):
            return fold, last
        for applied in fold.feed(event):
            if applied.fate == "applied":
                last = applied
                if at.id is not None and any(
                    at.is_reached(e, fold.now) for e in (applied.input, *applied.decisions)
                ):
                    return fold, last
    if at.id is not None:
        raise BadInput(f"no event {at.text!r} in session {session!r}")
    if not found:
        raise BadInput(f"no session {session!r}")
    return fold, last


def as_plain(value: Any) -> Any:
    """Any operator state as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Event):
        return {"type": value.type, "id": value.id, "mediatime": value.mediatime}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "_asdict"):
        return {k: as_plain(v) for k, v in value._asdict().items()}
    if isinstance(value, dict):
        return {str(k): as_plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | deque | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [as_plain(v) for v in items]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | str | float) or value is None:
        return value
    if isinstance(value, int):
        return None if value == NEVER else value
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    slots = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ())]
    names = slots or list(getattr(value, "__dict__", {}))
    if names:
        return {n: as_plain(getattr(value, n)) for n in sorted(names) if hasattr(value, n)}
    return repr(value)


def states(fold: SessionFold) -> dict[str, Any]:
    """Operator → its state."""
    return {name: as_plain(state) for name, state in fold.states.items()}
