"""Options that several commands share."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.settings import Settings

TimelineOption = Annotated[
    str,
    typer.Option(
        "--timeline",
        metavar="URL",
        default_factory=lambda: Settings.read().timeline,
        help="sqlite:///path.db, kafka://host:port/topic?partitions=8 or memory://",
        show_default="sqlite:///venus.db",
    ),
]
TritonOption = Annotated[
    str,
    typer.Option(
        "--triton",
        metavar="local|grpc://HOST:PORT",
        default_factory=lambda: Settings.read().triton,
        help="start a local Triton, or use one that runs",
        show_default="local",
    ),
]
SessionOption = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="only this session")
]
SkillsOption = Annotated[
    str,
    typer.Option(
        "--skills",
        metavar="MODULE[,…]",
        default_factory=lambda: ",".join(Settings.read().skills),
        help="modules (or .py files) with skills of your own",
        show_default="none",
    ),
]
HarnessOption = Annotated[
    str,
    typer.Option(
        "--harness",
        metavar="FILE",
        default_factory=lambda: Settings.read().harness or "",
        help="what delegated work may use: MCP servers, agents, a chat endpoint (docs/harness.md)",
        show_default="none",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object a line")]


class Out(Console):
    """stdout for people; one that was closed (`| head`) ends the command like any other closed pipe."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def whole(self, table: Table) -> None:
        """Print it; a file or a pipe is as wide as what is in it: names are there to be found again."""
        if not self.is_terminal:
            unbounded = self.options.update(width=1 << 20)
            self.width = max(self.width, self.measure(table, options=unbounded).maximum)
        self.print(table)
