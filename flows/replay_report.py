"""What a replay found, for people and as JSON."""

from typing import Any

from rich.console import Console

from flows.live_view import clock
from flows.looking import essence, shown
from flows.replay import Difference, SessionProof
from schemas.envelope import Event


def explain(result: SessionProof, console: Console) -> None:
    """A line for a session that is the same; for another, the first difference and what came just before."""
    head = f"{result.session}: {result.decisions} decisions from {result.inputs} inputs, {clock(result.media_us)}"
    notes = []
    if result.repeats:
        notes.append(f"{result.repeats} repeats in the log")
    if result.pending:
        notes.append(
            f"{result.pending} decisions follow from its last inputs and were not written yet"
        )
    if not result.ended:
        notes.append("not ended")
    for name, (recorded, present) in result.versions.items():
        notes.append(f"operator {name}: recorded with version {recorded}, replayed with {present}")
    tail = f" ({'; '.join(notes)})" if notes else ""
    if result.same:
        console.print(f"[green]same[/]       {head}{tail}")
        return
    console.print(f"[red]different[/]  {head}{tail}")
    if result.difference is not None:
        _difference(result.difference, console)
    elif result.bytewax_agrees is False:
        console.print("  the bare fold gives what was recorded, the flow through Bytewax does not")


def _difference(difference: Difference, console: Console) -> None:
    console.print(f"  decision {difference.index}, operator {difference.operator or '?'}")
    for name, recorded, derived in difference.fields():
        console.print(f"    {name}: recorded {recorded!r}, derived {derived!r}")
    for side, event in (("recorded", difference.recorded), ("derived", difference.derived)):
        console.print(f"    {side:<9} {_line(event) if event is not None else 'nothing'}")
    console.print("  just before:")
    for event in difference.before:
        console.print(f"    {_line(event)}")


def _line(event: Event) -> str:
    at = "" if event.mediatime is None else clock(event.mediatime)
    return f"{at:>8}  {event.type:<22} {essence(event, 90)}"


def as_json(result: SessionProof) -> dict[str, Any]:
    """One object a session."""
    found = result.difference
    return {
        "session": result.session,
        "same": result.same,
        "inputs": result.inputs,
        "decisions": result.decisions,
        "media_us": result.media_us,
        "repeats": result.repeats,
        "pending": result.pending,
        "ended": result.ended,
        "bytewax_agrees": result.bytewax_agrees,
        "versions": {name: list(pair) for name, pair in result.versions.items()},
        "difference": None
        if found is None
        else {
            "index": found.index,
            "operator": found.operator,
            "fields": [[name, repr(a), repr(b)] for name, a, b in found.fields()],
            "recorded": _event(found.recorded),
            "derived": _event(found.derived),
            "before": [_event(e) for e in found.before],
        },
    }


def _event(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {
        "id": event.id,
        "type": event.type,
        "mediatime": event.mediatime,
        "cause": event.cause,
        "data": shown(event),
    }
