"""What would have happened under another policy: the recorded decisions beside those that follow with it.

The recorded user and the recorded models go on as they were. That holds until the first changed decision that the user could have
noticed (the assistant begins, pauses, goes on or stops); what follows is marked as no longer to be trusted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console

from flows.live_view import clock
from flows.looking import essence
from flows.replay import Proof, all_records, sessions_of
from flows.settings import timeline_at
from operators.fold import Applied
from schemas.base import Kind
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.registry import KINDS

PERCEIVED = frozenset(
    {
        "response.started",
        "response.cancelled",
        "response.failed",
        "floor.paused",
        "floor.resumed",
        "speech.requested",
    }
)
"""Decisions that a user hears the effect of."""

Key = tuple[str, str]


@dataclass(slots=True)
class WhatIf:
    """Both sides of one session: (recorded, derived) pairs in order; either is None where it has no counterpart."""

    session: str
    pairs: list[tuple[Event | None, Event | None]] = field(default_factory=list)

    @property
    def changed(self) -> list[tuple[Event | None, Event | None]]:
        return [(a, b) for a, b in self.pairs if not _same(a, b)]

    @property
    def trusted_until(self) -> Event | None:
        """The first changed decision that the user would have noticed."""
        for a, b in self.changed:
            event = b or a
            if event is not None and event.type in PERCEIVED:
                return event
        return None


def _same(a: Event | None, b: Event | None) -> bool:
    if a is None or b is None or a.type != b.type or a.mediatime != b.mediatime:
        return False
    return (
        bool(a.data == b.data) or "request" in a.data.model_fields_set
    )  # ids of requests follow their causes


def _key(event: Event) -> Key:
    """What an event is about; the n-th of a key on one side answers to the n-th on the other."""
    return event.type, event.correlation or ""


def align(
    recorded: Iterable[Event], derived: Iterable[Event]
) -> list[tuple[Event | None, Event | None]]:
    """Pair the decisions of both sides by what they are about, in the order of media time."""
    waiting: dict[Key, list[Event]] = {}
    for event in recorded:
        waiting.setdefault(_key(event), []).append(event)
    pairs: list[tuple[Event | None, Event | None]] = []
    for event in derived:
        queue = waiting.get(_key(event))
        pairs.append((queue.pop(0) if queue else None, event))
    pairs += [(event, None) for queue in waiting.values() for event in queue]
    return sorted(pairs, key=lambda pair: min(e.mediatime or 0 for e in pair if e is not None))


def what_if(timeline_url: str, session: str | None, changes: dict[str, str]) -> list[WhatIf]:
    """Replay the sessions of a timeline under a changed policy.

    Raises:
        BadInput: no such session.
    """
    recorded: dict[str, list[Event]] = {}
    derived: dict[str, list[Event]] = {}
    proofs: dict[str, Proof] = {}

    def keep(name: str) -> None:
        def on_applied(applied: Applied) -> None:
            derived[name].extend(applied.decisions)

        derived[name], recorded[name] = [], []
        proofs[name] = Proof(
            name, override=lambda policy: policy.with_changes(dict(changes)), on_applied=on_applied
        )

    with timeline_at(timeline_url, create=False) as log:
        for name, event in sessions_of(all_records(log, session)):
            if name not in proofs:
                keep(name)
            if KINDS[event.type] is Kind.DECISION:
                recorded[name].append(event)
            proofs[name].feed(event)
    if session is not None and not proofs:
        raise BadInput(
            f"no session {session!r} in {timeline_url}; `venus sessions` lists what is there"
        )
    return [WhatIf(name, align(recorded[name], derived[name])) for name in proofs]


def show_what_if(
    timeline_url: str, session: str | None, changes: dict[str, str], console: Console, json: bool
) -> bool:
    """Print what changes; returns whether anything does."""
    results = what_if(timeline_url, session, changes)
    for result in results:
        trusted = result.trusted_until
        if json:
            [[_row(a), _row(b)] for a, b in result.changed]
            continue
        console.print(
            f"[bold]{result.session}[/]: {len(result.changed)} of {len(result.pairs)} decisions change"
        )
        told = False
        for a, b in result.changed:
            if trusted is not None and not told and (a is trusted or b is trusted):
                told = True
            console.print(f"  {_cell(a):<76} │ {_cell(b)}")
            if told and trusted is not None:
                console.print(
                    "  [yellow]── from here on the user would have noticed; what the recording says they did next can no longer "
                    "be trusted[/]"
                )
                trusted = None
    return any(result.changed for result in results)


def _cell(event: Event | None) -> str:
    return (
        "—"
        if event is None
        else f"{clock(event.mediatime or 0):>7} {event.type:<20} {essence(event, 46)}"
    )


def _row(event: Event | None) -> dict[str, object] | None:
    if event is None:
        return None
    return {
        "type": event.type,
        "mediatime": event.mediatime,
        "data": event.data.model_dump(mode="json"),
    }
