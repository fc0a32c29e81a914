"""The command line: `venus COMMAND`. This module knows the commands' names and imports only the one that is called.

Every error of ours is one line on stderr and exit code 2; a command that exists to find something exits with 1 when it has.
"""

import errno
import importlib
import logging
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from schemas.errors import BadInput, VenusError

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "flows.cli.demo",
        "The main job, end to end: a two-minute conversation, its replay, sound, picture, summary.",
    ),
    "run": ("flows.cli.run", "Run the live flows (and a local Triton)."),
    "capture": (
        "flows.cli.capture",
        "A capture device: play a file to the assistant and hear its answers.",
    ),
    "tail": ("flows.cli.look", "Show what is on a timeline, up to its end or following it."),
    "sessions": ("flows.cli.look", "List the sessions on a timeline."),
    "send": (
        "flows.cli.send",
        "Send to a running session: typed text, something to say, push-to-talk, mute, policy, work.",
    ),
    "replay": ("flows.cli.replay", "Derive every decision again from the log alone, and compare."),
    "continue": (
        "flows.cli.continuation",
        "Go on live from a point of a recording, with another policy if wished.",
    ),
    "work": ("flows.cli.work", "Delegated works: list, show, cancel, artifacts."),
    "state": ("flows.cli.replay", "Show the state of each operator at any event of a recording."),
    "stats": ("flows.cli.analysis", "Measure conversations: ours, and recordings from elsewhere."),
    "sql": (
        "flows.cli.analysis",
        "Ask DuckDB about sessions: events, turns, overlaps, responses, works.",
    ),
    "report": (
        "flows.cli.analysis",
        "Write HTML pages: a timeline with sound for each session, and one for the set.",
    ),
    "export": ("flows.cli.files", "Write sessions into files: .mcap, .jsonl, .parquet, .wav."),
    "import": ("flows.cli.files", "Put session files into a timeline."),
    "doctor": (
        "flows.cli.doctor",
        "What is missing on this machine, and the command that mends it.",
    ),
    "bench": ("flows.cli.bench", "Measure: ratios within one run."),
    "flow": ("flows.cli.run", ""),
}
"""Command → (module that defines a function or a group of that name, one line of help; without help it is hidden)."""


class LazyGroup(TyperGroup):
    """Imports a command's module when the command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module_name, text = COMMANDS[cmd_name]
        function = getattr(importlib.import_module(module_name), cmd_name)
        if isinstance(function, typer.Typer):
            return typer.main.get_command(function)
        app = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        app.command(cmd_name, help=text or None, hidden=not text)(function)
        return typer.main.get_command(app)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # `venus tail | head`: the reader has had enough. What is still buffered has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items() if text])


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Full-duplex voice assistants on an append-only log.",
)


@app.callback()
def _root() -> None:
    """Only a place for what all commands share."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script."""
    try:
        _set_up_logging()
        for given in sys.argv[1:] if arguments is None else arguments:
            if not _is_text(given):
                raise BadInput(f"{os.fsencode(given)!r}: arguments are text in UTF-8")
        code = app(arguments, prog_name="venus", standalone_mode=False)
    except VenusError as error:
        code = _complain("venus", str(error))
    except OSError as error:
        # A disk that is full, a folder that is somebody else's, a name that is too long. Without a file it is a fault of ours.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if error.filename is None and not full:
            raise
        logging.getLogger(__name__).debug("where it happened", exc_info=error)
        name = error.filename if isinstance(error.filename, str | bytes) else "writing"
        shown = os.fsdecode(name)
        shown = shown if len(shown) <= 100 else f"{shown[:100]}…"
        code = _complain("venus", f"{shown}: {error.strerror}")
    except Exception as error:
        # Wrong use; by the method, since Typer has its own copy of Click, whose exceptions have no public home.
        if not hasattr(error, "format_message"):
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "venus")
        said = error.format_message().rstrip(".")
        code = _complain(command, f"{said}; `{command} --help` says what there is")
    sys.exit(code if isinstance(code, int) else 0)


def _is_text(given: str) -> bool:
    """What the shell hands over may be any bytes; Python keeps what is not UTF-8 as surrogates, which nothing can write."""
    return not any("\ud800" <= c <= "\udfff" for c in given)


def _set_up_logging() -> None:
    from flows.settings import Settings

    logging.basicConfig(
        level=Settings.read().log_level,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("kafka").setLevel(logging.ERROR)


def _complain(who: str, what: str) -> int:
    print(f"{who}: {' '.join(what.split())}", file=sys.stderr)
    return 2
