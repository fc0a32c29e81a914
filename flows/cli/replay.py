"""`venus replay`."""

from typing import Annotated

import orjson
import typer
from rich.console import Console

from flows.cli.capture import parse_policy
from flows.cli.options import JsonOption, SessionOption, TimelineOption
from flows.settings import timeline_at
from infra.clock import monotonic_s


def replay(
    timeline: TimelineOption,
    session: SessionOption = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="what if this policy had been in force"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Prove or compare."""
    from flows.replay import prove_both
    from flows.replay_report import as_json, explain

    console = Console(highlight=False, soft_wrap=True)
    if changes:
        from flows.what_if import show_what_if

        different = show_what_if(timeline, session, parse_policy(changes), console, json)
        raise typer.Exit(1 if different else 0)
    status = Console(stderr=True).status("replaying")
    with timeline_at(timeline, create=False) as log, status:
        begun = monotonic_s()
        results = prove_both(
            log, session, progress=lambda n: status.update(f"replaying: {n:,} records")
        )
        took = monotonic_s() - begun
    for result in results.values():
        if json:
            print(orjson.dumps(as_json(result)).decode())
        else:
            explain(result, console)
    if not json:
        media_s = sum(r.media_us for r in results.values()) / 1e6
        same = sum(r.same for r in results.values())
        console.print(
            f"{same} of {len(results)} sessions the same, by the bare fold and through Bytewax "
            f"({media_s:.0f} s of conversation in {took:.2f} s, {media_s / max(took, 1e-9):,.0f} × real time)"
        )
    if not all(r.same for r in results.values()):
        raise typer.Exit(1)
