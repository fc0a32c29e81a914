"""The page of a what-if: both timelines over each other, and the decisions that change side by side."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from flows.live_view import clock
from flows.looking import essence
from flows.report.page import ASSISTANT, USER, VERDICTS, Row, page, table, timeline
from flows.what_if import WhatIf
from infra.atomic import new_file
from schemas.envelope import Event

COLOURS = {"moved": "#d4a017", "changed": "#d4a017", "gone": "#c1121f", "new": "#588157"}
_ENDS = ("response.ended", "response.cancelled", "response.failed")


def _lanes(name: str, events: Sequence[Event], length: int) -> list[Row]:
    """Turns, overlaps and responses of one side."""
    turns, overlaps, responses = (
        Row(f"{what} {name}") for what in ("turns", "overlaps", "assistant")
    )
    started: dict[str, int] = {}
    over: dict[str, int] = {}
    for event in events:
        at, data = event.mediatime or 0, event.data
        if event.type == "turn.ended":
            turns.spans.append(
                (
                    data.start_us,
                    data.end_us,
                    USER,
                    data.text,
                    f"{data.turn}: {data.reason} “{data.text}”",
                )
            )
            turns.marks.append((at, "#333", f"{data.turn} ended: {data.reason}"))
        elif event.type == "overlap.started":
            over[data.overlap] = data.start_us
        elif event.type == "overlap.resolved":
            colour = VERDICTS.get(data.verdict, "#8d99ae")
            overlaps.spans.append(
                (
                    over.pop(data.overlap, at),
                    at,
                    colour,
                    data.verdict,
                    f"{data.verdict}: {data.evidence}",
                )
            )
        elif event.type == "response.started":
            started[data.response] = at
        elif event.type in _ENDS and data.response in started:
            tip = f"{data.response} {event.type.removeprefix('response.')}: “{data.heard_text}”"
            responses.spans.append(
                (started.pop(data.response), at, ASSISTANT, data.heard_text, tip)
            )
    responses.spans += [
        (at, length, ASSISTANT, "", f"{name} (open)") for name, at in started.items()
    ]
    return [turns, overlaps, responses]


def write_diff(results: Sequence[WhatIf], changes: Mapping[str, str], path: Path) -> None:
    """Write the page of one or several sessions."""
    what = ", ".join(f"{k} = {v}" for k, v in changes.items())
    body = [f"<h1>What if {escape(what)}</h1>"]
    for index, result in enumerate(results):
        length = max((e.mediatime or 0 for e in (*result.recorded, *result.derived)), default=1)
        changed = result.changed
        body.append(
            f"<h2>{escape(result.session)}: {len(changed)} of {len(result.pairs)} decisions change</h2>"
        )
        recorded, derived = (
            _lanes("as recorded", result.recorded, length),
            _lanes("what if", result.derived, length),
        )
        rows = [row for pair in zip(recorded, derived, strict=True) for row in pair]
        rows.append(
            Row(
                "changes",
                16,
                marks=[
                    (p.at, COLOURS[p.state], f"{p.state}: {p.either.type} of {p.operator}")
                    for p in changed
                ],
            )
        )
        body.append(timeline(f"t{index}", rows, length, cut_us=result.trusted_until))
        if result.trusted_until is not None:
            body.append(
                "<p>From the yellow line on the user would have noticed; what they did next can no longer be trusted.</p>"
            )
        if result.unanswered:
            body.append(
                f"<p>{len(result.unanswered)} requests would have been made for which the recording has no answer.</p>"
            )
        cells = [
            (
                clock(p.at),
                p.operator,
                p.state,
                _cell(p.recorded),
                _cell(p.derived),
                "; ".join(f"{n}: {a} → {b}" for n, a, b in p.fields)[:300],
            )
            for p in changed
        ]
        head = ("at", "operator", "", "as recorded", "what if", "fields")
        places = [p.at for p in changed] if len(results) == 1 else None
        body.append('<div class="scroll">' + table(head, cells, numeric=(0,), at=places) + "</div>")
    with new_file(path) as file:
        file.write(page(f"What if {what}", body).encode())


def _cell(event: Event | None) -> str:
    return (
        "—" if event is None else f"{clock(event.mediatime or 0)} {event.type} {essence(event, 90)}"
    )
