"""`venus send`."""

from typing import Annotated

import typer

from flows.cli.options import TimelineOption
from flows.settings import timeline_at
from flows.signals import SIGNALS, running_session, signal
from flows.signals import send as append

_SIGNALS = "; ".join(f"{name}: {meaning}" for name, (_, meaning) in SIGNALS.items())


def send(
    timeline: TimelineOption,
    what: Annotated[str, typer.Argument(metavar="SIGNAL", help=_SIGNALS)],
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT …]")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="default: the only one open")
    ] = None,
) -> None:
    """Send a signal to a running session, as a device does."""
    data = signal(what, *(text or ()))
    with timeline_at(timeline, create=False) as log:
        name = running_session(log, session)
        append(log, name, data)
    print(f"{data.TYPE} → {name}")
