"""`venus bench WHAT`: measurements, each a ratio within one run. A bench is a command of its own with options of its own."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.cli.bench_judgement import judgement
from flows.cli.options import JsonOption
from schemas.errors import BadInput, VenusError

if TYPE_CHECKING:
    from flows.bench.loop import LoopFigures

bench = typer.Typer(add_completion=False, rich_markup_mode=None, help="Measure.")

FolderOption = Annotated[
    Path | None, typer.Option(help="where the SQLite files go (default: a temporary folder)")
]


@contextmanager
def measuring(folder: Path | None = None) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """A folder for the time of the measurement, and a way to say how far it is; an error is one line and exit code 1."""
    console = Console(stderr=True, markup=False)
    with (
        tempfile.TemporaryDirectory(prefix="venus-bench-", dir=folder) as place,
        console.status("starting") as status,
    ):
        try:
            yield Path(place), status.update
        except BadInput:
            raise
        except VenusError as error:
            console.print(f"venus: {error}", style="red")
            raise typer.Exit(1) from None


@bench.command()
def loop(
    sessions: Annotated[str, typer.Option(help="numbers of sessions, comma-separated")] = "1,20,60",
    seconds: Annotated[float, typer.Option(help="length of each run")] = 20.0,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT", help="measure on this broker, too")
    ] = None,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Cost and latency of perception, conversation and the Triton VAD."""
    from flows.bench.loop import as_json

    try:
        counts = [int(n) for n in sessions.split(",")]
    except ValueError:
        raise BadInput(f"--sessions {sessions}: whole numbers separated by commas") from None
    with measuring(folder) as (place, say):
        figures = _loop(counts, seconds, kafka, place, say)
    if json:
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
    show(table)


def show(table: Table) -> None:
    """Print a table no narrower than its figures need."""
    console = Console()
    Console(width=max(120, console.width)).print(table)


def _loop(
    counts: list[int],
    seconds: float,
    kafka: str | None,
    place: Path,
    say: Callable[[str], None],
) -> list["LoopFigures"]:
    from flows.bench.loop import run_loop
    from infra.triton.server import LocalTriton

    figures = []
    say("starting Triton")
    with LocalTriton(models=("silero_vad",), log_path=place / "triton.log") as triton:
        for count in counts:
            logs = {"sqlite": f"sqlite:///{place}/loop-{count}.db"}
            if kafka is not None:
                logs["kafka"] = f"kafka://{kafka}/bench-{place.name}-{count}?partitions=4"
            for kind, url in logs.items():
                figures.append(run_loop(url, kind, count, seconds, triton.url, triton.pid, say))
                sys.stderr.flush()
    return figures


@bench.command()
def harness(
    sessions: Annotated[int, typer.Option(help="conversations beside the works")] = 4,
    seconds: Annotated[float, typer.Option(help="length of each of the eight works")] = 20.0,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """Latency of decisions beside eight works, four of them computing, and without."""
    from flows.bench.harness import as_json, run_harness_bench
    from infra.triton.server import LocalTriton

    with measuring(folder) as (place, say):
        say("starting Triton")
        with LocalTriton(models=("silero_vad",), log_path=place / "triton.log") as triton:
            url = f"sqlite:///{place}/harness.db"
            figures = run_harness_bench(url, sessions, seconds, triton.url, say)
    if json:
        print(as_json(figures))
        return
    table = Table(title="from chunk appended to decision appended, ms", box=None)
    for name in ("", "decisions", "p50", "p99"):
        table.add_column(name, justify="right" if name else "left")
    f = figures
    for name, count, p50, p99 in (
        ("without works", f.decisions_without, f.p50_without, f.p99_without),
        (f"beside works ({f.works_completed} done)", f.decisions_with, f.p50_with, f.p99_with),
    ):
        table.add_row(name, str(count), f"{p50:.1f}", f"{p99:.1f}")
    table.add_row("ratio", "", f"{f.p50_with / f.p50_without:.2f}", f"{f.ratio:.2f}")
    show(table)


@bench.command()
def replay(
    minutes: Annotated[
        str, typer.Option(help="lengths of the sessions, comma-separated")
    ] = "10,60",
    media: Annotated[
        bool, typer.Option("--media/--no-media", help="whether the sound is in the files, too")
    ] = True,
    pause: Annotated[
        float, typer.Option(min=0, help="seconds from the end of one exchange to the next")
    ] = 2.9,
    folder: FolderOption = None,
    json: JsonOption = False,
) -> None:
    """What a proof costs, and how that grows with the session (10,60,600 takes 3 GB of disk and some minutes)."""
    from flows.bench.replay import as_json, run_replay_bench

    try:
        lengths = [float(n) for n in minutes.split(",")]
    except ValueError:
        raise BadInput(f"--minutes {minutes}: numbers separated by commas") from None
    with measuring(folder) as (place, say):
        figures = run_replay_bench(place, lengths, media, say, pause)
    if json:
        for one in figures:
            print(as_json(one))
        return
    table = Table(title="proof of one session; CPU seconds, one core", box=None)
    names = ("log", "minutes", "records", "read", "fold", "proof", "proof/h", "× real time", "MB")
    for name in names:
        table.add_column(name, justify="left" if name == "log" else "right")
    for f in figures:
        times = (f.read, f.fold, f.prove, f.per_hour)
        table.add_row(
            f.log,
            f"{f.media_s / 60:.0f}",
            f"{f.records:,}",
            *(f"{t:.2f}" for t in times),
            f"{f.speed:,.0f}",
            f"{f.memory:.1f}",
        )
    show(table)


bench.command()(judgement)
