"""`venus export` and `venus import`."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from flows.cli.options import JsonOption, TimelineOption
from flows.settings import timeline_at
from schemas.errors import BadInput

SessionsOption = Annotated[
    list[str] | None,
    typer.Option("--session", metavar="ID", help="only this session; may be given several times"),
]


class _Records:
    """A progress bar that counts records; leaves nothing behind."""

    def __init__(self, what: str) -> None:
        console = Console(stderr=True)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description} {task.completed:,.0f} records"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task(what, total=None)
        self._held = 0

    def __enter__(self) -> "_Records":
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()

    def __call__(self, count: int) -> None:
        self._held += count
        if self._held >= 500:
            self._bar.advance(self._task, self._held)
            self._held = 0


def _terminated(*_: Any) -> None:
    raise KeyboardInterrupt


def export(
    timeline: TimelineOption,
    *,
    where: Annotated[
        str | None, typer.Argument(metavar="[TIMELINE|FILE]", help="instead of --timeline")
    ] = None,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE|DIR", help="a .mcap, .jsonl, .parquet or .wav file, or a folder"
        ),
    ],
    session: SessionsOption = None,
    no_media: Annotated[bool, typer.Option("--no-media", help="leave the input media out")] = False,
    redact: Annotated[
        str | None,
        typer.Option(
            metavar="media|text|all", help="take out what was said; the file still replays"
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="mcap|jsonl|parquet",
            help="a folder with one file of this kind for each session",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write session files."""
    from flows.redact import redactor
    from flows.session_files import Wishes, open_any
    from flows.session_files import export as write

    media, text = redactor(redact)
    wishes = Wishes(tuple(session or ()), not no_media, media, text)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        with open_any(where or timeline, understood=False) as log, _Records("exporting") as bar:
            written = write(log, to, wishes, format, bar)
    except KeyboardInterrupt:
        print("venus export: interrupted; nothing was left behind", file=sys.stderr)
        raise typer.Exit(130) from None
    for one in written:
        if json:
            line = {"path": str(one.path), "sessions": one.sessions, "records": one.records}
            line |= {"changed_by_redaction": one.changed, "replaced": one.replaced}
            print(orjson.dumps(line).decode())
            continue
        size = one.path.stat().st_size / 1e6
        changed = f"; redaction changed {one.changed} decisions" if one.changed else ""
        before = " (replaced)" * one.replaced
        print(
            f"{one.path}{before}: {one.sessions} session{'s' * (one.sessions != 1)}, {one.records:,} records, {size:.1f} MB{changed}"
        )


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR…",
            help=".mcap, .jsonl, .parquet or .db of ours, or a folder of them; .wav with two channels",
        ),
    ],
    timeline: TimelineOption,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="the session's name (.wav)")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Put session files into a timeline."""
    from flows.foreign_wav import check_wav, import_wav
    from flows.replay_many import targets
    from flows.session_files import sessions_in
    from flows.session_import import import_file
    from flows.supervisor import OneRun

    wanted = [Path(one) for one in targets([str(file) for file in files])]
    if session is not None and not all(map(_is_wav, wanted)):
        raise BadInput(
            "--session names the session of a .wav; those of session files have their names"
        )
    # Before the timeline is made: what cannot be read leaves no empty one behind.
    check_wav(wanted[0]) if _is_wav(wanted[0]) else sessions_in(wanted[0])
    lock = OneRun(timeline, "import")
    with lock, timeline_at(timeline) as log, _Records("importing") as bar:
        for file in wanted:
            if _is_wav(file):
                names, count = import_wav(file, log, session)
            else:
                names, count = import_file(file, log, bar)
            if json:
                print(
                    orjson.dumps({"path": str(file), "sessions": names, "records": count}).decode()
                )
            else:
                print(
                    f"{file}: {len(names)} session{'s' * (len(names) != 1)}, {count:,} records → {log.url}"
                )


def _is_wav(file: Path) -> bool:
    return file.suffix.lower() == ".wav"


globals()["import"] = import_  # The command's name is a keyword of Python.
