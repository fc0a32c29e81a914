"""`venus stats`, `venus report` and `venus sql`."""

import os
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.cli.options import JsonOption, Out, SessionOption, TimelineOption, TritonOption
from schemas.errors import BadInput

if TYPE_CHECKING:
    from flows.analysis.foreign import SpeechFinder
    from flows.analysis.many import Pooled, Read
    from flows.analysis.session import Figures

FILE_WIDTH = 140

Where = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TIMELINE|FILE|DIR]…",
        help="instead of --timeline: session files, folders, .rttm, .csv (speaker,start,end,text), two-channel .wav",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", min=1, help="recordings at once (default: one for each core)"),
]


def _targets(where: list[str] | None, timeline: str) -> list[str]:
    from flows.analysis.foreign import SUFFIXES
    from flows.session_files import files_in

    if not where:
        return [timeline]
    found: list[str] = []
    for text in where:
        path = Path(text)
        if "://" not in text and path.is_dir():
            foreign = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
            inside = [*files_in(path), *foreign]
            if not inside:
                raise BadInput(f"{path}: there is no recording in it")
            found += map(str, inside)
        elif "://" in text or path.exists():
            found.append(text)
        else:
            raise BadInput(
                f"{path}: no such file or folder; a timeline is named by its URL (sqlite:///path.db)"
            )
    return found


def _read(
    where: list[str] | None,
    timeline: str,
    session: str | None,
    media: bool,
    triton: str,
    jobs: int | None,
) -> list["Read"]:
    from flows.analysis.many import read_many

    wheres = _targets(where, timeline)
    finder = _finder(wheres, triton)
    err = Console(stderr=True)
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=len(wheres))
        reads = read_many(
            wheres,
            jobs or os.cpu_count() or 1,
            session,
            media,
            finder,
            lambda n: bar.advance(task, n),
        )
    for read in reads:
        if read.error is not None:
            typer.echo(f"venus: {read.error}", err=True)
    return reads


def _finder(wheres: list[str], triton: str) -> "SpeechFinder | None":
    if not any(w.lower().endswith(".wav") for w in wheres):
        return None
    from flows.foreign_wav import speech_finder

    return speech_finder(triton)


def stats(
    timeline: TimelineOption,
    triton: TritonOption,
    where: Where = None,
    session: SessionOption = None,
    media: Annotated[
        bool, typer.Option("--media", help="read the media lane, too (VAD latency)")
    ] = False,
    each: Annotated[bool, typer.Option("--each", help="a line for each session, too")] = False,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|DIR",
            help="recordings whose backchannels are the measure for those of the same name",
        ),
    ] = None,
    jobs: Jobs = None,
    json: JsonOption = False,
) -> None:
    """Measure conversations."""
    from flows.analysis.many import pool

    reads = _read(where, timeline, session, media, triton, jobs)
    sessions = [f for r in reads for f in r.figures]
    if not sessions:
        raise typer.Exit(2)
    if reference:
        reads += _beside(sessions, _read(reference, timeline, session, False, triton, jobs))
    pooled = pool(sessions)
    if json:
        for one in sessions:
            print(
                orjson.dumps(
                    {"session": one.name, "where": one.where, **pool([one]).as_json()}
                ).decode()
            )
        print(orjson.dumps({"pooled": pooled.as_json()}).decode())
    else:
        console = Out(highlight=False, markup=False)
        if not console.is_terminal:
            console = Out(highlight=False, width=FILE_WIDTH, markup=False)
        if each:
            console.print(_each(sessions))
        show(pooled, console)
    if any(r.error is not None for r in reads):
        raise typer.Exit(2)


def _beside(sessions: list["Figures"], references: list["Read"]) -> list["Read"]:
    """Measure each against the reference of its name; returns what was read for that."""
    from flows.analysis.session import beside

    known = {f.name: f for r in references for f in r.figures}
    missing = sorted({one.name for one in sessions if one.name not in known})
    for one in sessions:
        if one.name in known:
            beside(one, known[one.name])
    if missing:
        told = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if missing[5:] else "")
        typer.echo(f"venus: no reference is called {told}", err=True)
    return references


def _each(sessions: list[Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("session")
    names = ("response_latency", "stop_latency", "fto")
    for name in ("length", "turns", "responses", "overlaps", *names):
        table.add_column(name, justify="right")
    for one in sessions:
        cells = [f"{one.media_s:.0f} s"] + [
            str(one.counts.get(n, "")) for n in ("turns", "responses", "overlaps")
        ]
        for name in names:
            values = sorted(one.samples.get(name, []))
            cells.append(f"{median(values):.2f} s" if values else "")
        table.add_row(Text(one.name), *cells)
    return table


def show(pooled: "Pooled", console: Console) -> None:
    """The pooled figures as tables."""
    from flows.analysis.metrics import BY_NAME

    counts = ", ".join(f"{n:,} {name}" for name, n in pooled.counts.items() if n)
    console.print(f"{pooled.sessions:,} sessions, {pooled.media_s / 60:.1f} min: {counts}")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("n", "median", "95 % interval", "mean", "p10", "p90", "unit"):
        table.add_column(name, justify="right" if name != "unit" else "left")
    for name, s in pooled.samples.items():
        interval = "" if isnan(s.low) else f"{s.low:.3g} … {s.high:.3g}"
        numbers = [f"{v:.3g}" for v in (s.mean, s.p10, s.p90)]
        table.add_row(name, f"{s.n:,}", f"{s.median:.3g}", interval, *numbers, BY_NAME[name].unit)
    for name, (rate, low, high, of) in pooled.rates.items():
        interval = "" if isnan(low) else f"{low:.3g} … {high:.3g}"
        table.add_row(
            name, f"{of:,}", f"{rate:.3g}", interval, "", "", "", BY_NAME[name].unit or "share"
        )
    console.print(table)
    shown = [f"{n} {v:.3g}" for n, v in pooled.tau_voice.items() if v is not None]
    few = [n for n, v in pooled.tau_voice.items() if v is None]
    console.print(
        "τ-voice: "
        + ", ".join(shown)
        + (f" ({', '.join(few)}: fewer than 10 events)" if few else "")
    )
    console.print("definitions and sources: docs/metrics.md", style="dim")


def sql(
    timeline: TimelineOption,
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SELECT…",
            help="over the views events, turns, overlaps, responses, works, windows",
        ),
    ],
    where: Where = None,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="comma-separated values")] = False,
) -> None:
    """Ask DuckDB."""
    from flows.query import query

    names, rows = query(_targets(where, timeline), statement)
    if json:
        for row in rows:
            print(orjson.dumps(dict(zip(names, row, strict=True)), default=str).decode())
        return
    if csv:
        import csv as csv_module
        import sys

        writer = csv_module.writer(sys.stdout)
        writer.writerow(names)
        writer.writerows(rows)
        return
    table = Table(box=None, pad_edge=False)
    for index, name in enumerate(names):
        numeric = any(isinstance(row[index], int | float) for row in rows[:20])
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    Out(highlight=False, markup=False).whole(table)


def report(
    timeline: TimelineOption,
    triton: TritonOption,
    where: Where = None,
    session: SessionOption = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="where the pages go")] = Path(
        "out/report"
    ),
    no_sound: Annotated[
        bool, typer.Option("--no-sound", help="leave the sound out (smaller pages)")
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Write HTML pages."""
    from flows.report.many import write_pages

    wheres = _targets(where, timeline)
    err = Console(stderr=True)
    columns = (TextColumn("writing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=len(wheres))
        result = write_pages(
            wheres,
            out,
            session,
            not no_sound,
            jobs or os.cpu_count() or 1,
            lambda: bar.advance(task),
            _finder(wheres, triton),
        )
    for error in result.errors:
        typer.echo(f"venus report: {error}", err=True)
    if not result.sessions:
        if not result.errors:
            typer.echo(f"venus report: there is no session in {', '.join(wheres)}", err=True)
        raise typer.Exit(2)
    print(f"{len(result.sessions)} session{'s' * (len(result.sessions) != 1)}: {result.front}")
    if result.errors:
        raise typer.Exit(2)
