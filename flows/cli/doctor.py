"""`venus doctor`."""

from dataclasses import asdict

import orjson
import typer
from rich.console import Console

from flows.cli.options import JsonOption, TimelineOption, TritonOption
from flows.doctor import examine


def doctor(timeline: TimelineOption, triton: TritonOption, json: JsonOption = False) -> None:
    """Examine this machine."""
    console = Console(highlight=False, soft_wrap=True)
    ill = False
    for finding in examine(timeline, triton):
        ill = ill or (finding.needed and not finding.well)
        if json:
            print(orjson.dumps(asdict(finding)).decode())
            continue
        mark = (
            "[green]ok[/]     "
            if finding.well
            else ("[red]missing[/]" if finding.needed else "[yellow]absent[/] ")
        )
        console.print(f"{mark}  {finding.name:<22} {finding.says}")
        if not finding.well:
            console.print(f"         {'':<22} → {finding.mend}")
    if ill:
        raise typer.Exit(1)
