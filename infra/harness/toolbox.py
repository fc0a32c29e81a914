"""All tools of a work: found by name, allowed by pattern, arguments checked, called within their time, and told to the log.

Retries: a tool that could not be reached has not begun, so it is tried again; one that was lost on the way only if it is idempotent.
"""

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

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


class Toolbox:
    """Every source of tools of this process."""

    def __init__(self, sources: Sequence[ToolSource]) -> None:
        self._sources = tuple(sources)

    async def tools(self, allow: Sequence[str]) -> list[Tool]:
        """The tools that a session may use."""
        out: list[Tool] = []
        for source in self._sources:
            out += [t for t in await source.tools() if allowed(t.name, allow)]
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
                async with asyncio.timeout(task.limit_s):
                    tool = await self._find(name)
                    checked = arguments if tool.validate is None else tool.validate(arguments)
                    async with asyncio.timeout(tool.timeout_s):
                        return (await tool.call(checked, task, reports))[:TOOL_RESULT_CHARS]
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

    async def close(self) -> None:
        for source in self._sources:
            await source.close()


def allowed(name: str, allow: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in allow)
