"""`venus doctor`."""

from dataclasses import asdict

import orjson
import typer
from rich.console import Console
from rich.text import Text

from flows.cli.options import JsonOption, TimelineOption, TritonOption
from flows.doctor import examine


def doctor(timeline: TimelineOption, triton: TritonOption, json: JsonOption = False) -> None:
    """Examine this machine."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    ill = False
    for finding in examine(timeline, triton):
        ill = ill or (finding.needed and not finding.well)
        if json:
            print(orjson.dumps(asdict(finding)).decode())
            continue
        mark, style = ("ok", "green") if finding.well else ("absent", "yellow")
        if finding.needed and not finding.well:
            mark, style = "missing", "red"
        line = Text(f"{mark:<7}", style=style)
        console.print(line.append(f"  {finding.name:<22} {finding.says}", style="default"))
        if not finding.well:
            console.print(f"         {'':<22} → {finding.mend}")
    if ill:
        raise typer.Exit(1)
