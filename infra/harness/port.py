"""The port to whatever does delegated work: a task comes in, reports and one result go out.

- A `Tool` is one function that may be called with arguments: a Python skill, a tool of an MCP server, an agent in a process of its own.
- `Reports` is all that a running tool can say besides its result. It belongs to one work of one session: a tool sees its own task and
  workspace and nothing of another's.
- Errors say whether a retry makes sense and which reason the log gets (`HarnessError.reason`).
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from schemas.errors import VenusError
from schemas.transcription import FailureReason

TOOL_RESULT_CHARS = 20_000
"""Of a tool's result that an agent sees; what becomes of a work's result is cut by its own policy."""


class HarnessError(VenusError):
    """A work cannot be done."""

    reason: FailureReason = "error"


class ToolRejected(HarnessError):
    """The call was never made: no such tool, not allowed, or arguments that do not fit."""

    reason: FailureReason = "rejected"


class ToolUnavailable(HarnessError):
    """The tool cannot be reached now, and has not begun: trying again is safe."""

    reason: FailureReason = "unavailable"
    retryable = True


class ToolFailed(HarnessError):
    """The tool ran and failed."""


class ToolDied(ToolFailed):
    """Its process or connection was lost on the way: nobody knows what it did. Only an idempotent tool is called again."""


class ToolTimedOut(HarnessError):
    reason: FailureReason = "timed_out"


@dataclass(frozen=True, slots=True)
class Task:
    """What a work is about; made from its `work.queued`."""

    session: str
    work: str
    query: str
    route: str
    skill: str | None
    arguments: Mapping[str, Any]
    evidence: tuple[tuple[str, str], ...]
    """(role, text), oldest first."""
    earlier: str
    allow: tuple[str, ...]
    language: str
    limit_s: float
    workspace: Path
    """A folder of this work's own, made when it is first used."""
    audio: bytes = b""
    """The user's own sound of the evidence, where the work may hear it: PCM16 at 16 kHz, mono."""


class Reports(Protocol):
    """What a running work may say before its result."""

    def progress(self, text: str) -> None: ...

    def called(self, tool: str, arguments: Mapping[str, Any], ok: bool, result: str) -> None: ...

    def artifact(self, path: Path, media_type: str = "", name: str = "") -> None:
        """Keep a file of the workspace; a relative path is one in there.

        Raises:
            ToolRejected: the path leads out of the workspace, or the file is too large.
        """
        ...


Call = Callable[[Mapping[str, Any], Task, Reports], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that work may call."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of its arguments."""
    call: Call
    idempotent: bool = False
    """Running it twice does no more than once: it may be retried, and taken up again after a crash."""
    timeout_s: float = 30.0
    validate: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Checks the arguments before the call; raises `ToolRejected`."""


class ToolSource(Protocol):
    """Somewhere that tools come from."""

    async def tools(self) -> list[Tool]:
        """All its tools.

        Raises:
            ToolUnavailable: they cannot be listed now.
        """
        ...

    async def find(self, name: str) -> Tool | None:
        """The tool of that name, without asking for more than is needed."""
        ...

    def idempotent(self, name: str) -> bool:
        """What is known without asking anybody."""
        ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class SilentReports:
    """Reports kept in lists: for tests, and for calls whose reports nobody wants."""

    said: list[str] = field(default_factory=list)
    calls: list[tuple[str, bool]] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def progress(self, text: str) -> None:
        self.said.append(text)

    def called(self, tool: str, arguments: Mapping[str, Any], ok: bool, result: str) -> None:
        self.calls.append((tool, ok))

    def artifact(self, path: Path, media_type: str = "", name: str = "") -> None:
        self.files.append(path)


def as_text(result: Any) -> str:
    """A tool's result as text."""
    if result is None:
        return ""
    return (
        result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
    )
