"""`venus bench`: measurements, each a ratio within one run."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.cli.options import JsonOption
from schemas.errors import BadInput, VenusError

if TYPE_CHECKING:
    from flows.bench.loop import LoopFigures

WHAT = ("loop",)


def bench(
    what: Annotated[
        str,
        typer.Argument(
            help="loop: cost and latency of perception, conversation and the Triton VAD"
        ),
    ] = "loop",
    sessions: Annotated[str, typer.Option(help="numbers of sessions, comma-separated")] = "1,20,60",
    seconds: Annotated[float, typer.Option(help="length of each run")] = 20.0,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="measure on this broker, too")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="where the SQLite files go (default: a temporary folder)")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure."""
    if what not in WHAT:
        raise BadInput(f"nothing to measure named {what!r}; there is: {', '.join(WHAT)}")
    try:
        counts = [int(n) for n in sessions.split(",")]
    except ValueError:
        raise BadInput(f"--sessions {sessions}: whole numbers separated by commas") from None
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="venus-bench-", dir=folder) as place,
        console.status("starting Triton") as status,
    ):
        try:
            figures = _measure(counts, seconds, kafka, Path(place), status.update)
        except VenusError as error:
            console.print(f"venus: {error}", style="red")
            raise typer.Exit(1) from None
    if json:
        from flows.bench.loop import as_json

        for one in figures:
            print(as_json(one))
        return
    table = Table(title="per session-second of 100 ms chunks; times in ms", box=None)
    names = ("log", "sessions", "CPU", "perception", "conversation", "Triton")
    times = ("decision p50", "p99", "round trip p50", "p99", "ratio", "replay ×")
    for name in (*names, *times):
        table.add_column(name, justify="left" if name == "log" else "right")
    for f in figures:
        cpu = (f.cpu, f.cpu_perception, f.cpu_conversation, f.cpu_triton)
        latency = (f.latency_p50, f.latency_p99, f.round_trip_p50, f.round_trip_p99, f.round_trips)
        cells = [*(f"{v:.2f}" for v in cpu), *(f"{v:.1f}" for v in latency)]
        cells.append(f"{f.replay_speed:,.0f}")
        table.add_row(f.log, str(f.sessions), *cells)
    Console(width=max(120, console.width)).print(table)


def _measure(
    counts: list[int],
    seconds: float,
    kafka: str | None,
    place: Path,
    say: Callable[[str], None],
) -> list["LoopFigures"]:
    from flows.bench.loop import run_loop
    from infra.triton.server import LocalTriton

    figures = []
    with LocalTriton(models=("silero_vad",), log_path=place / "triton.log") as triton:
        for count in counts:
            logs = {"sqlite": f"sqlite:///{place}/loop-{count}.db"}
            if kafka is not None:
                logs["kafka"] = f"kafka://{kafka}/bench-{place.name}-{count}?partitions=4"
            for kind, url in logs.items():
                figures.append(run_loop(url, kind, count, seconds, triton.url, triton.pid, say))
                sys.stderr.flush()
    return figures
