"""`venus continue`."""

from shlex import quote
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import JsonOption, TimelineOption
from flows.signals import parse_policy


def continue_(
    where: Annotated[
        str, typer.Argument(metavar="TIMELINE|FILE", help="the recording, with its media")
    ],
    timeline: TimelineOption,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="default: the only one there is")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="EVENT|TIME",
            help="an event's id (or its beginning), which is decided anew under --set; or 83.5s, 1:23.5 "
            "(default: the end of what the device sent)",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="the policy from there on"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="ID", help="the new session's name (default: the old)"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy a session's past into a timeline, for `venus run` to go on with."""
    from flows.continuation import append, past_of, waiting
    from flows.moments import parse_moment
    from flows.session_files import open_any
    from flows.settings import timeline_at
    from flows.steps import events_of
    from flows.supervisor import OneRun

    policy = parse_policy(changes or [])
    moment = None if until is None else parse_moment(until)
    with open_any(where) as log:
        session, _ = events_of(log, session)
        past = past_of(log, session, moment, dict(policy), name)
    # Running flows would answer the past's requests while it is still being written.
    with OneRun(timeline), timeline_at(timeline) as into:
        append(past, into)
        url = into.url
    if json:
        line = {
            "session": past.session,
            "until_us": past.until_us,
            "inputs": past.inputs,
            "decisions": past.decisions,
            "media_records": len(past.media),
            "open_requests": dict(past.open),
        }
        print(orjson.dumps(line).decode())
        return
    print(past.session)
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    console.print(
        Text(
            f"{past.until_us / 1e6:.3f} s of {session!r}: {past.inputs:,} inputs, {past.decisions:,} decisions → {url}"
        )
    )
    if past.open:
        console.print(Text(f"to be taken up: {waiting(past)}"))
    console.print(
        Text(
            f"go on: venus run --timeline {quote(url)}; then "
            f"venus capture FILE --session {quote(past.session)} --timeline {quote(url)}"
        )
    )


globals()["continue"] = continue_  # The command's name is a keyword of Python.
