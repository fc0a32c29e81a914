"""MCP servers as tools, by the `mcp` package: over stdio (a command) or streamable HTTP (a URL).

- A tool is named `SERVER.TOOL`. Every call has a connection of its own, so works share no server state through us, a server that hangs
  or dies harms one call, and cancelling closes exactly what was opened.
- A stdio server gets the environment that its entry names and nothing else but PATH and the like (the package's safe list).
- Listings are kept for `LISTED_S`; a server that cannot be listed has no tools for now, and the others still have theirs.
- A tool counts as idempotent if the server says so (`readOnlyHint`, `idempotentHint`), or the entry (`"idempotent": ["*"]`).
"""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from infra.clock import monotonic_s
from infra.harness.aside import aside
from infra.harness.port import (
    Reports,
    Task,
    Tool,
    ToolDied,
    ToolFailed,
    ToolRejected,
    ToolUnavailable,
)

LISTED_S = 300.0
CONNECT_S = 15.0


@dataclass(frozen=True, slots=True)
class McpServer:
    """One entry of `mcpServers`: a command, or a URL."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotent: tuple[str, ...] = ()
    timeout_s: float = 30.0


class McpTools:
    """A `ToolSource` over MCP servers."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        self._servers = dict(servers)
        self._listed: dict[str, tuple[float, dict[str, Tool]]] = {}

    async def tools(self) -> list[Tool]:
        out: list[Tool] = []
        for server in self._servers.values():
            try:
                out += (await self._tools_of(server)).values()
            except ToolUnavailable:
                continue
        return out

    async def find(self, name: str) -> Tool | None:
        server = self._servers.get(name.partition(".")[0])
        return None if server is None else (await self._tools_of(server)).get(name)

    def idempotent(self, name: str) -> bool:
        server = self._servers.get(name.partition(".")[0])
        if server is None:
            return False
        listed = self._listed.get(server.name, (0.0, {}))[1].get(name)
        return _declared(server, name) or (listed is not None and listed.idempotent)

    async def close(self) -> None:
        self._listed.clear()

    async def _tools_of(self, server: McpServer) -> dict[str, Tool]:
        at, tools = self._listed.get(server.name, (0.0, {}))
        if tools and monotonic_s() - at < LISTED_S:
            return tools
        async with _connected(server, CONNECT_S) as client:
            listed = (await client.list_tools()).tools
        tools = {f"{server.name}.{t.name}": self._tool(server, t) for t in listed}
        self._listed[server.name] = (monotonic_s(), tools)
        return tools

    def _tool(self, server: McpServer, listed: Any) -> Tool:
        name = f"{server.name}.{listed.name}"
        hints = listed.annotations
        safe = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        return Tool(
            name,
            listed.description or listed.name,
            listed.input_schema,
            partial(_call, server, listed.name),
            safe or _declared(server, name),
            server.timeout_s,
            partial(_check_arguments, name, listed.input_schema),
        )


def _declared(server: McpServer, name: str) -> bool:
    return any(fnmatchcase(name.partition(".")[2], p) for p in server.idempotent)


def _check_arguments(
    name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What can be said without the server: arguments that it needs and does not get, or does not know. It checks the rest."""
    missing = [p for p in schema.get("required", ()) if p not in arguments]
    if missing:
        raise ToolRejected(f"{name}: the argument {missing[0]} is missing")
    known = schema.get("properties")
    if known is not None and schema.get("additionalProperties") is False:
        foreign = [a for a in arguments if a not in known]
        if foreign:
            raise ToolRejected(f"{name}: there is no argument {foreign[0]}")
    return arguments


async def _call(
    server: McpServer, tool: str, arguments: Mapping[str, Any], task: Task, reports: Reports
) -> str:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

    async with _connected(server, server.timeout_s) as client:
        try:
            result = await client.call_tool(tool, dict(arguments), progress_callback=report)
        except MCPError as error:
            if error.error.code in (-32602, -32601):
                raise ToolRejected(f"{server.name}.{tool}: {error}") from None
            raise ToolDied(f"{server.name}.{tool}: {error}") from error
    text = _text(result)
    if result.is_error:
        raise ToolFailed(text or "the tool says that it failed")
    return text


def _text(result: Any) -> str:
    parts = [block.text for block in result.content if getattr(block, "type", "") == "text"]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


@asynccontextmanager
async def _connected(server: McpServer, timeout_s: float) -> AsyncIterator[Client]:
    """A connection of its own.

    Raises:
        ToolUnavailable: it cannot be made, so nothing was asked.
        ToolDied: it was lost while it was used.
    """
    began = False
    try:
        if server.url:
            async with (
                httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout_s) as http,
                Client(
                    streamable_http_client(server.url, http_client=http),
                    read_timeout_seconds=timeout_s,
                ) as client,
            ):
                began = True
                yield client
        else:
            command = sys.executable if server.command == "python" else server.command
            started = aside([command, *server.args])
            parameters = StdioServerParameters(
                command=started[0], args=started[1:], env=dict(server.env), cwd=server.cwd
            )
            async with Client(parameters, read_timeout_seconds=timeout_s) as client:
                began = True
                yield client
    except (ToolFailed, ToolRejected, ToolUnavailable):
        raise
    except Exception as error:
        inner = _innermost(error)
        if isinstance(inner, (ToolFailed, ToolRejected, ToolUnavailable)):
            raise inner from None
        text = f"MCP server {server.name}: {type(inner).__name__}: {inner}"
        raise (ToolDied if began else ToolUnavailable)(text) from error


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
