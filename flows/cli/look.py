"""`venus tail` and `venus sessions`."""

from datetime import datetime
from typing import Annotated

import orjson
import typer
from rich.table import Table
from rich.text import Text

from flows.cli.options import JsonOption, Out, SessionOption, TimelineOption
from flows.live_view import clock
from flows.looking import as_json, essence, follow
from flows.looking import sessions as list_sessions
from flows.settings import timeline_at
from schemas.base import Kind
from schemas.cloudevents import decode
from schemas.errors import BadInput, BadRecord
from schemas.record import Lane

COLOURS = {Kind.OBSERVATION: "cyan", Kind.OUTCOME: "yellow", Kind.DECISION: "magenta"}
LANES = {"timeline": (Lane.TIMELINE,), "media": (Lane.MEDIA,), "both": (Lane.TIMELINE, Lane.MEDIA)}


def tail(
    timeline: TimelineOption,
    session: SessionOption = None,
    on: Annotated[bool, typer.Option("--follow", help="go on with what is appended")] = False,
    json: JsonOption = False,
    lane: Annotated[str, typer.Option(help="timeline, media or both")] = "timeline",
    windows: Annotated[
        bool, typer.Option("--windows", help="show perception windows to people, too")
    ] = False,
) -> None:
    """Show events."""
    if lane not in LANES:
        raise BadInput(f"--lane {lane}: there are {', '.join(LANES)}")
    console = Out(highlight=False, soft_wrap=True)
    seen = False
    with timeline_at(timeline, create=False) as log:
        for record in follow(log, LANES[lane], session, on):
            seen = True
            if json:
                print(orjson.dumps(as_json(record)).decode(), flush=on)
                continue
            line = Text(f"{record.partition}:{record.offset:<7}", style="dim")
            try:
                event = decode(record)
            except BadRecord as error:
                console.print(
                    line.append(f"{record.key or '(no key)'}  unreadable: {error}", style="red")
                )
                continue
            if event.type == "perception.window" and not windows:
                continue
            at = "" if event.mediatime is None else clock(event.mediatime)
            line.append(f"{at:>8}  ").append(f"{event.session:<18} ", style="bold")
            line.append(f"{event.type:<24} ", style=COLOURS[event.kind]).append(essence(event))
            console.print(line)
        where = log.url
    if session is not None and not seen:
        raise BadInput(f"no session {session!r} on {where}; `venus sessions` lists what is there")


def sessions(timeline: TimelineOption, json: JsonOption = False) -> None:
    """List sessions."""
    with timeline_at(timeline, create=False) as log:
        lines = list_sessions(log)
    if json:
        for line in lines:
            print(orjson.dumps(line.as_json()).decode())
        return
    if not lines:
        print(f"no sessions on {log.url}")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("session", "state", "device"):
        table.add_column(name)
    for name in ("length", "turns", "responses", "events", "last activity"):
        table.add_column(name, justify="right")
    for s in lines:
        last = datetime.fromtimestamp(s.last_appended_us / 1e6).strftime("%Y-%m-%d %H:%M:%S")
        counts = (str(s.turns), str(s.responses), str(s.events))
        # Text: a session's name may look like rich's markup.
        state = s.state if s.reason in ("", "closed") else f"{s.state} ({s.reason})"
        names = (Text(s.session), state, Text(s.device))
        table.add_row(*names, clock(s.media_us), *counts, last)
    Out().whole(table)
