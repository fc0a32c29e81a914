"""All tools of a work: found by name, allowed by pattern, arguments checked, called within their time, and told to the log.

Retries: a tool that could not be reached has not begun, so it is tried again; one that was lost on the way only if it is idempotent.

A call has a task of its own, which is cancelled once: limits and cancels may come together, and a second one would break off the
clean-up and leave a process or a connection behind.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from infra.harness.port import (
    TOOL_RESULT_CHARS,
    HarnessError,
    Reports,
    Task,
    Tool,
    ToolDied,
    ToolRejected,
    ToolSource,
    ToolTimedOut,
    ToolUnavailable,
)

TRIES = 3
FIRST_WAIT_S = 0.2
CLEAN_UP_S = 7.0
"""An MCP server that ignores the end of its input is killed after four seconds by its client."""

T = TypeVar("T")


class Toolbox:
    """Every source of tools of this process."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._sources = tuple(sources)
        self._begun: set[asyncio.Task[Any]] = set()

    async def tools(self, allow: Sequence[str]) -> list[Tool]:
        """The tools that a session may use."""
        out: list[Tool] = []
        for source in self._sources:
            found = await self._within(source.tools())
            out += [t for t in found if allowed(t.name, allow)]
        return out

    def idempotent(self, name: str) -> bool:
        return any(s.idempotent(name) for s in self._sources)

    async def call(
        self, name: str, arguments: Mapping[str, Any], task: Task, reports: Reports
    ) -> str:
        """Call a tool for a work.

        Raises:
            HarnessError: see its kinds.
        """
        try:
            result = await self._call(name, arguments, task, reports)
        except HarnessError as error:
            reports.called(name, arguments, False, str(error))
            raise
        reports.called(name, arguments, True, result)
        return result

    async def _call(
        self, name: str, arguments: Mapping[str, Any], task: Task, reports: Reports
    ) -> str:
        if not allowed(name, task.allow):
            raise ToolRejected(f"{name} is not allowed in this session")
        for attempt in range(1, TRIES + 1):
            tool: Tool | None = None
            try:
                tool = await self._within(self._find(name), task.limit_s)
                checked = arguments if tool.validate is None else tool.validate(arguments)
                seconds = min(task.limit_s, tool.timeout_s)
                result = await self._within(tool.call(checked, task, reports), seconds)
                return result[:TOOL_RESULT_CHARS]
            except TimeoutError:
                within = task.limit_s if tool is None else min(task.limit_s, tool.timeout_s)
                raise ToolTimedOut(f"{name}: no answer within {within:g} s") from None
            except (ToolUnavailable, ToolDied) as error:
                safe = isinstance(error, ToolUnavailable) or (tool is not None and tool.idempotent)
                if attempt == TRIES or not safe:
                    raise
                await asyncio.sleep(FIRST_WAIT_S * 2**attempt)
        raise AssertionError("the last try returns or raises")

    async def _find(self, name: str) -> Tool:
        for source in self._sources:
            tool = await source.find(name)
            if tool is not None:
                return tool
        raise ToolRejected(f"there is no tool {name}")

    async def _within(self, work: Awaitable[T], seconds: float | None = None) -> T:
        """See the module; after a cancel or `seconds` it waits for the clean-up, as long as it is let."""
        running = asyncio.ensure_future(work)
        self._begun.add(running)
        running.add_done_callback(self._over)
        try:
            await asyncio.wait({running}, timeout=seconds)
            if not running.done():
                raise TimeoutError
            return running.result()
        finally:
            if running.cancel():
                await asyncio.wait({running}, timeout=CLEAN_UP_S)

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited for it has it, or does not want it any more

    async def close(self) -> None:
        """Wait for what is still cleaning up, and let go of everything."""
        if self._begun:
            await asyncio.wait(self._begun, timeout=CLEAN_UP_S)
        for source in self._sources:
            await source.close()


def allowed(name: str, allow: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in allow)
