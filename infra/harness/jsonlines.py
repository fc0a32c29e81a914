"""A process that works on one task at a time and speaks JSON lines: our own skill workers, and agents in any language.

In, one line: `{"task": {"query": …, "skill": …, "arguments": {…}, "evidence": [[role, text], …], "earlier": …, "session": …, "work": …,
"language": …, "workspace": …}}`. Out, any number of `{"progress": "…"}` and `{"artifact": {"path": …, "media_type": …}}`, then one
`{"result": …}` or `{"error": "…"}` (with `"rejected": true` where the call was not made). What comes after that line, and lines that are
no JSON objects, are ignored. Standard error is free for logs. A process that is cancelled or late is killed with all its children.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra.harness.port import (
    Reports,
    Task,
    ToolDied,
    ToolFailed,
    ToolRejected,
    ToolUnavailable,
    as_text,
)

log = logging.getLogger(__name__)

LINE_BYTES = 8 * 1024 * 1024
"""The longest line that is read; a process that writes a longer one is killed."""


class LineProcess:
    """A child process in a process group of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.uses = 0

    @classmethod
    async def start(
        cls, command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None
    ) -> "LineProcess":
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=None,
                env=dict(env),
                cwd=cwd,
                limit=LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolUnavailable(f"{command[0]} cannot be started: {error}") from error
        return cls(process)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def work(self, task: Mapping[str, Any], on_report: Any) -> str:
        """Send a task; returns its result. `on_report(line)` gets every line before."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.uses += 1
        try:
            self._process.stdin.write(
                json.dumps({"task": task}, ensure_ascii=False, default=str).encode() + b"\n"
            )
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ToolUnavailable("its process was gone before it began") from error
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError as error:
                raise ToolFailed(f"it wrote a line of over {LINE_BYTES} bytes") from error
            if not line:
                code = await self._process.wait()
                raise ToolDied(f"its process died (exit code {code})")
            said = _object(line)
            if said is None:
                continue
            if "result" in said:
                return as_text(said["result"])
            if "error" in said:
                raise (ToolRejected if said.get("rejected") is True else ToolFailed)(
                    as_text(said["error"])
                )
            on_report(said)

    async def kill(self) -> None:
        """End it and whatever it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(2.0):
                await self._process.wait()
        # Its pipes end with the last process that holds them; they must not outlive the loop.
        self._process._transport.close()  # type: ignore[attr-defined]
        await asyncio.sleep(0)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def task_line(task: Task, arguments: Mapping[str, Any], skill: str | None = None) -> dict[str, Any]:
    """What a process is told of its task."""
    return {
        "session": task.session,
        "work": task.work,
        "query": task.query,
        "skill": skill or task.skill,
        "arguments": dict(arguments),
        "evidence": [list(e) for e in task.evidence],
        "earlier": task.earlier,
        "language": task.language,
        "workspace": str(task.workspace),
    }


def report_line(said: Mapping[str, Any], task: Task, reports: Reports) -> None:
    """Hand on a line that is not the last; one that makes no sense, or names a file elsewhere, is left out."""
    if "progress" in said:
        reports.progress(as_text(said["progress"]))
    artifact = said.get("artifact")
    if isinstance(artifact, dict) and isinstance(artifact.get("path"), str):
        try:
            reports.artifact(Path(artifact["path"]), as_text(artifact.get("media_type")))
        except ToolRejected as error:
            log.warning("%s of %s: artifact refused: %s", task.work, task.session, error)
