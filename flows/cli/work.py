"""`venus work list|show|cancel|artifacts`."""

from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from flows.cli.options import JsonOption, Out, SessionOption, TimelineOption
from flows.live_view import clock
from flows.settings import Settings, timeline_at
from flows.work_view import SeenWork, find_work, request_cancel, works_on
from infra.blobs import BlobStore
from infra.timeline.port import Timeline
from schemas.errors import BadInput

ACTIONS = ("list", "show", "cancel", "artifacts")


def work(
    timeline: TimelineOption,
    action: Annotated[str, typer.Argument(help="list, show, cancel or artifacts")] = "list",
    name: Annotated[str | None, typer.Argument(metavar="WORK", help="as in work-1")] = None,
    session: SessionOption = None,
    blobs: Annotated[
        str | None,
        typer.Option(metavar="URL", help="where artifacts are stored", show_default="out/blobs"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="artifacts: write the files into this folder")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Look at delegated works, cancel one, fetch what it made."""
    if action not in ACTIONS:
        raise BadInput(f"venus work {action}: there are {', '.join(ACTIONS)}")
    console = Out(highlight=False, soft_wrap=True, markup=False)
    with timeline_at(timeline, create=False) as log:
        if action == "list":
            _list(works_on(log, session), json, console)
            return
        if name is None:
            raise BadInput(f"venus work {action} needs the name of a work, as in work-1")
        seen = find_work(log, session, name)
        if action == "show":
            _show(seen, json, console)
        elif action == "cancel":
            _cancel(log, seen, console)
        else:
            _artifacts(seen, blobs or Settings.read().blobs, out, json, console)


def _list(works: list[SeenWork], json: bool, console: Console) -> None:
    if json:
        for one in works:
            print(orjson.dumps(one.as_json()).decode())
        return
    if not works:
        console.print("no works")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("session", "work", "at", "status", "told", "task"):
        table.add_column(column, overflow="fold")
    for one in works:
        w = one.work
        table.add_row(one.session, w.work, clock(w.queued_us), w.status, w.delivery, _task(one))
    console.print(table)


def _show(seen: SeenWork, json: bool, console: Console) -> None:
    if json:
        print(orjson.dumps(seen.as_json()).decode())
        return
    w = seen.work
    console.print(f"{w.work} of {seen.session}: {w.status}, {w.delivery}")
    console.print(f"task    {_task(seen)}")
    for event in seen.story:
        said = {
            k: v
            for k, v in event.data.model_dump(mode="json").items()
            if k in _TOLD and v not in ("", None, [])
        }
        console.print(f"{clock(event.mediatime or 0):>8}  {event.type:<18} {_short(said)}")
    if w.result:
        console.print("result", style="bold")
        console.print(w.result)


_TOLD = (
    "attempt",
    "tool",
    "arguments",
    "ok",
    "text",
    "name",
    "reason",
    "message",
    "response",
    "heard_us",
    "waited_us",
)


def _short(said: dict[str, object]) -> str:
    text = ", ".join(f"{k}={v}" for k, v in said.items())
    return text if len(text) <= 160 else text[:159] + "…"


def _task(seen: SeenWork) -> str:
    w = seen.work
    if w.skill is None:
        return w.query
    return f"{w.skill}({', '.join(f'{k}={v}' for k, v in w.arguments.items())})"


def _cancel(log: Timeline, seen: SeenWork, console: Console) -> None:
    if not seen.work.open:
        raise BadInput(f"{seen.work.work} of {seen.session} has ended already ({seen.work.status})")
    request_cancel(log, seen)
    console.print(f"asked for the end of {seen.work.work} of {seen.session}")


def _artifacts(seen: SeenWork, blobs: str, out: Path | None, json: bool, console: Console) -> None:
    files = seen.as_json()["artifacts"]
    for file in files:
        if json:
            print(orjson.dumps(file).decode())
        elif out is None:
            console.print(
                f"{file['name']}  {file['media_type']}  {file['bytes']} bytes  {file['dataref']}",
            )
    if out is None:
        return
    store = BlobStore(blobs)
    out.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files, 1):
        # A work chooses the name; only its last part counts, and no file is written over another.
        safe = Path(file["name"]).name or "artifact"
        path = out / safe if not (out / safe).exists() else out / f"{number}-{safe}"
        path.write_bytes(store.get(file["dataref"]))
        console.print(f"wrote {path}")
