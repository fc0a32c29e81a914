"""What a replay found, for people and as JSON."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.live_view import clock
from flows.looking import essence, shown
from flows.replay import Difference, Failure, SessionProof
from flows.what_if import change
from schemas.envelope import Event


def explain(result: SessionProof, console: Console, where: str = "") -> None:
    """A line for a session that is the same; for another, the first difference and what came just before.

    where: the recording it is in, to be told where there are several.
    """
    head = f"{where}: " if where else ""
    head += f"{result.session}: {result.decisions} decisions from {result.inputs} inputs, {clock(result.media_us)}"
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
        console.print(Text("same       ", style="green").append(f"{head}{tail}", style="default"))
        return
    console.print(Text("different  ", style="red").append(f"{head}{tail}", style="default"))
    if result.failure is not None:
        _failure(result.failure, console)
    elif result.difference is not None:
        _difference(result.difference, console)
    elif result.bytewax_agrees is False:
        console.print("  the bare fold gives what was recorded, the flow through Bytewax does not")


def _difference(difference: Difference, console: Console) -> None:
    a, b = difference.recorded, difference.derived
    event = difference.odd_one
    what = "comes out differently"
    if a is None or b is None or a.id != b.id:
        what = "is new" if event is b else "does not come any more"
    if event is not None:
        at, operator = clock(event.mediatime or 0), difference.operator or "?"
        console.print(
            Text(
                f"  first difference at {at}, decision {difference.index}: operator {operator}, {event.type} {what}"
            )
        )
    if a is not None and b is not None and a.id == b.id:
        for name, recorded, derived in difference.fields():
            room = console.width - len(name) - 9
            _say(f"    {name}: {change(str(recorded), str(derived), room)}", console)
    for side, one in (("recorded", a), ("derived", b)):
        _say(f"    {side:<9} {_line(one) if one is not None else 'nothing'}", console)
    _before(difference.before, console)


def _failure(failure: Failure, console: Console) -> None:
    _say(f"  an operator fails: {failure.error}", console)
    _say(f"    in {failure.where}", console)
    _say(f"    taking    {_line(failure.taking)}", console)
    _before(failure.before, console)


def _before(events: Iterable[Event], console: Console) -> None:
    console.print("  just before:")
    for event in events:
        _say(f"    {_line(event)}", console)


def _say(line: str, console: Console) -> None:
    console.print(Text(line if len(line) <= console.width else line[: console.width - 1] + "…"))


def _line(event: Event) -> str:
    at = "" if event.mediatime is None else clock(event.mediatime)
    return f"{at:>8}  {event.type:<22} {essence(event, 140)}"


def as_json(result: SessionProof) -> dict[str, Any]:
    """One object a session."""
    found, failure = result.difference, result.failure
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
        "failure": None
        if failure is None
        else {
            "error": failure.error,
            "where": failure.where,
            "taking": _event(failure.taking),
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
