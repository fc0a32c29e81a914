"""`venus demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.options import TritonOption
from flows.cli.run import Loading
from schemas.errors import BadInput, VenusError


def demo(
    triton: TritonOption,
    out: Annotated[Path, typer.Option("--out", help="folder for what it leaves")] = Path(
        "out/demo"
    ),
    track: Annotated[Path | None, typer.Option(help="another microphone recording")] = None,
) -> None:
    """The main job, end to end."""
    from flows.demo.run import TRACK, run_demo

    console = Console(highlight=False, markup=False)
    loading = Loading(console)
    try:
        same = run_demo(out, track or TRACK, console, loading, triton)
    except BadInput:
        raise
    except VenusError as error:
        console.print(f"venus: {error}", style="red")
        raise typer.Exit(1) from None
    finally:
        loading.close()
    if not same:
        raise typer.Exit(1)
