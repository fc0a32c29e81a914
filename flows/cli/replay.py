"""`venus replay` and `venus state`."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from flows.cli.options import JsonOption, Out, SessionOption, TimelineOption
from flows.settings import timeline_at
from flows.signals import parse_policy
from schemas.errors import BadInput

if TYPE_CHECKING:
    from flows.replay import SessionProof
    from flows.replay_many import FileResult, Job

Where = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TIMELINE|FILE|DIR]…",
        help="what to replay instead of --timeline; a folder: every session file in it",
    ),
]
FILE_WIDTH = 120
"""Columns of a comparison that goes into a file or a pipe."""

FOLLOWING = 12
"""Rows of what follows the first difference of the first session that has one."""

ROWS = 25
"""Up to so many sessions get a line each; of more, only those that differ."""


def replay(
    timeline: TimelineOption,
    where: Where = None,
    session: SessionOption = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="what if this policy had been in force"),
    ] = None,
    rerun: Annotated[
        str | None,
        typer.Option(
            metavar="vad,endpoint,transcript,backchannel,generate",
            help="ask the models again (on Triton) and compare within tolerances",
        ),
    ] = None,
    tolerances: Annotated[
        Path | None, typer.Option(metavar="TOML", help="the tolerances of --rerun")
    ] = None,
    triton: Annotated[
        str | None, typer.Option(metavar="local|grpc://HOST:PORT", help="where --rerun asks")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="EVENT|TIME", help="step through from here")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="EVENT|TIME", help="only up to here")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="write JUnit XML")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="with --set: both timelines over each other")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="recordings at once (default: one for each core)"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Prove or compare."""
    from flows.replay_many import Job, targets

    wanted = targets(where) if where else [timeline]
    console = Out(highlight=False, soft_wrap=True, markup=False)
    if not console.is_terminal:
        console = Out(highlight=False, soft_wrap=True, width=FILE_WIDTH, markup=False)
    if html is not None and not changes:
        raise BadInput(
            "--html draws a comparison; give it a change with --set, or use `venus report` for one timeline"
        )
    policy = parse_policy(changes or [])
    if rerun is not None:
        from flows.cli.rerun import rerun_all

        raise typer.Exit(
            rerun_all(wanted, session, rerun, policy, tolerances, triton, console, json, junit)
        )
    if policy and (start is not None or until is not None or junit is not None):
        raise BadInput("--set compares whole sessions: without --from, --until and --junit")
    if policy:
        raise typer.Exit(_what_if(wanted, session, policy, console, json, html))
    if start is not None:
        _steps(wanted, session, start, until, console, json)
        return
    raise typer.Exit(
        _prove([Job(w, session, until=until) for w in wanted], jobs, junit, console, json)
    )


def _prove(
    jobs: list["Job"], workers: int | None, junit: Path | None, console: Console, json: bool
) -> int:
    from flows.replay_many import junit as write_junit
    from flows.replay_many import replay_many
    from flows.replay_report import as_json, explain
    from infra.clock import monotonic_s

    begun = monotonic_s()
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    err = Console(stderr=True)
    quiet = len(jobs) == 1 or not err.is_terminal
    with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=len(jobs))
        results = replay_many(jobs, workers or os.cpu_count() or 1, lambda _: bar.advance(task))
    took = monotonic_s() - begun
    if junit is not None:
        write_junit(results, junit, explain)
    proofs = [(r, p) for r in results for p in r.proofs]
    told = False
    for result in results:
        if result.error is not None:
            typer.echo(f"venus replay: {result.error}", err=True)
        for proof in result.proofs:
            if json:
                print(orjson.dumps({"where": result.where, **as_json(proof)}).decode())
            elif len(proofs) <= ROWS or not proof.same:
                explain(proof, console, result.where if len(jobs) > 1 else "")
                if proof.difference is not None and not told:
                    told = True
                    _what_follows(result.where, proof.session, console)
    same = sum(p.same for _, p in proofs)
    unreadable = sum(r.error is not None for r in results)
    if not json and proofs:
        media_s = sum(r.media_s for r in results)
        if len(jobs) > 1:
            console.print(_summary(proofs, unreadable))
        how = (
            "by the bare fold and through Bytewax"
            if proofs[0][1].bytewax_agrees is not None
            else "by the bare fold"
        )
        speed = f"{media_s:.0f} s of conversation in {took:.2f} s, {media_s / max(took, 1e-9):,.0f} × real time"
        console.print(f"{same} of {len(proofs)} sessions the same, {how} ({speed})")
    if same < len(proofs):
        return 1
    return 2 if unreadable else 0


def _what_follows(where: str, session: str, console: Console) -> None:
    """All that changes after a first difference, aligned: the recorded world beside these operators."""
    from flows.session_files import open_any
    from flows.what_if import explain_what_if, what_if

    with open_any(where) as log:
        (result,) = what_if(log, session, {})
    explain_what_if(result, console, FOLLOWING)


def _summary(proofs: list[tuple["FileResult", "SessionProof"]], unreadable: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("first difference at", "sessions", "decisions"):
        table.add_column(name, justify="left" if name.startswith("first") else "right")
    found: Counter[str] = Counter()
    decisions: Counter[str] = Counter()
    for _, proof in proofs:
        what = "none: the same"
        if proof.failure is not None:
            what = f"fails: {proof.failure.error}"
        elif proof.difference is not None:
            event = proof.difference.odd_one
            what = f"{proof.difference.operator}: {event.type if event is not None else '?'}"
        elif not proof.same:
            what = "through Bytewax only"
        found[what] += 1
        decisions[what] += proof.decisions
    for what, count in found.most_common():
        table.add_row(Text(what), f"{count:,}", f"{decisions[what]:,}")
    if unreadable:
        table.add_row("(unreadable files)", f"{unreadable:,}", "")
    return table


def _what_if(
    wanted: list[str],
    session: str | None,
    changes: dict[str, str],
    console: Console,
    json: bool,
    html: Path | None,
) -> int:
    from flows.replay_many import not_configured
    from flows.session_files import open_any
    from flows.what_if import explain_what_if, what_if, what_if_json

    different = False
    odd: list[str] = []
    pages = []
    for where in wanted:
        with open_any(where) as log:
            results = what_if(log, session, changes)
        for result in results:
            if not result.configured:
                odd.append(result.session)
                continue
            different = different or bool(result.changed)
            if json:
                print(orjson.dumps(what_if_json(result)).decode())
            else:
                explain_what_if(result, console)
            pages.append(result)
    if html is not None:
        from flows.report.diff_page import write_diff

        write_diff(pages, changes, html)
    if odd:
        raise BadInput(not_configured(odd))
    return 1 if different else 0


def _steps(
    wanted: list[str],
    session: str | None,
    start: str,
    until: str | None,
    console: Console,
    json: bool,
) -> None:
    from flows.looking import essence, shown
    from flows.moments import parse_moment
    from flows.session_files import open_any
    from flows.steps import events_of, steps

    if len(wanted) != 1:
        raise BadInput("--from steps through one recording; name one")
    first, last = parse_moment(start), None if until is None else parse_moment(until)
    with open_any(wanted[0]) as log:
        name, events = events_of(log, session)
        for applied, fold in steps(name, events, first, last):
            for depth, event in enumerate((applied.input, *applied.decisions)):
                if json:
                    line = {
                        "id": event.id,
                        "type": event.type,
                        "mediatime": event.mediatime,
                        "cause": event.cause,
                    }
                    print(
                        orjson.dumps(
                            line | {"kind": event.kind.value, "data": shown(event)}
                        ).decode()
                    )
                elif event.type != "perception.window" or applied.decisions:
                    arrow = "└─ " if depth else ""
                    at = (event.mediatime if event.mediatime is not None else fold.now) / 1e6
                    console.print(
                        Text(
                            f"{at:10.3f}  {event.id[:12]:<12}  {arrow}{event.type:<22} {essence(event)}"
                        )
                    )


def state(
    timeline: TimelineOption,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="EVENT|TIME",
            help="an event's id (or its beginning), 83.5s or 1:23.5; else the end",
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Argument(metavar="[TIMELINE|FILE]", help="instead of --timeline")
    ] = None,
    session: SessionOption = None,
    operator: Annotated[str | None, typer.Option(help="only this operator")] = None,
    json: JsonOption = False,
) -> None:
    """Show the state of each operator at any event."""
    from flows.moments import parse_moment
    from flows.session_files import open_any
    from flows.steps import events_of, state_at, states

    moment = None if at is None else parse_moment(at)
    with open_any(where) if where else timeline_at(timeline, create=False) as log:
        name, events = events_of(log, session)
        fold, last = state_at(name, events, moment)
    found = states(fold)
    if operator is not None and operator not in found:
        raise BadInput(f"no operator {operator!r}; there are {', '.join(found)}")
    found = {n: s for n, s in found.items() if operator in (None, n)}
    if json:
        about = {
            "session": name,
            "now_us": fold.now,
            "after": None if last is None else last.input.id,
        }
        print(
            orjson.dumps(about | {"open_requests": sorted(fold.requests), "states": found}).decode()
        )
        return
    console = Out(highlight=False, soft_wrap=True, markup=False)
    after = "" if last is None else f", after {last.input.type} {last.input.id}"
    console.print(
        Text(
            f"{name} at {fold.now / 1e6:.3f} s{after}; {len(fold.requests)} requests open, {fold.held} inputs wait"
        )
    )
    for one, value in found.items():
        console.print(Text(f"\n{one}", style="bold"))
        value.pop("policy", None)
        console.print(Text(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
