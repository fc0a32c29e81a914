"""MCP servers as tools: three real ones over stdio, one of ours over streamable HTTP, and servers that fail."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.harness.mcp import McpServer, McpTools
from infra.harness.port import (
    SilentReports,
    ToolFailed,
    ToolRejected,
    ToolTimedOut,
    ToolUnavailable,
)
from infra.harness.toolbox import Toolbox
from tests.harness.support import nothing_left_behind, queued, task_of

pytestmark = pytest.mark.flow

SQLITE = Path(__file__).parents[2] / ".venv" / "mcp-sqlite"
"""mcp-server-sqlite needs an older `mcp` than the other two, so it has a folder of its own, as any MCP server may."""

HTTP_SERVER = """
import sys, time
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("tests")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

@server.tool()
def fail() -> str:
    "Always fails."
    raise ToolError("out of order")

@server.tool()
def hang() -> str:
    "Never answers in time."
    time.sleep(30)
    return "late"

server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
"""


PATIENT_S = 120.0
"""A server starts and imports at every call; on a busy machine that takes longer than users would wait."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def http_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    script = tmp_path_factory.mktemp("mcp") / "server.py"
    script.write_text(HTTP_SERVER)
    port = free_port()
    process = subprocess.Popen([sys.executable, str(script), str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(round(PATIENT_S / 0.05)):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def stdio(name: str, *arguments: str, **more: Any) -> dict[str, McpServer]:
    command = ("-m", f"mcp_server_{name}", *arguments)
    return {name: McpServer(name, "python", command, **{"timeout_s": PATIENT_S} | more)}


def call(servers: dict[str, McpServer], tool: str, **arguments: Any) -> str:
    task = task_of(queued("w1", tool, arguments, limit_s=PATIENT_S), Path("none"))
    return asyncio.run(Toolbox([McpTools(servers)]).call(tool, arguments, task, SilentReports()))


def test_the_time_server() -> None:
    answer = call(
        stdio("time"),
        "time.convert_time",
        source_timezone="Europe/Paris",
        time="12:00",
        target_timezone="Asia/Tokyo",
    )
    assert "Asia/Tokyo" in answer


def test_the_git_server(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "new.txt").write_text("x")
    assert "new.txt" in call(stdio("git"), "git.git_status", repo_path=str(tmp_path))


@pytest.mark.skipif(
    not SQLITE.exists(), reason=f"pip install --target {SQLITE.name} mcp-server-sqlite 'mcp<2'"
)
def test_the_sqlite_server(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(SQLITE)!r}); from mcp_server_sqlite import main; main()"
    servers = {
        "db": McpServer(
            "db",
            sys.executable,
            ("-c", code, "--db-path", str(tmp_path / "x.db")),
            timeout_s=PATIENT_S,
        )
    }
    call(servers, "db.create_table", query="create table t (name text)")
    call(servers, "db.write_query", query="insert into t values ('otter')")
    assert "otter" in call(servers, "db.read_query", query="select * from t")
    assert "rror" in call(servers, "db.read_query", query="drop table t")


def test_a_server_over_http(http_url: str) -> None:
    servers = {"web": McpServer("web", url=http_url)}
    assert call(servers, "web.add", a=2, b=40) == "42"
    with pytest.raises(ToolFailed, match="out of order"):
        call(servers, "web.fail")


def test_arguments_are_checked_before_and_by_the_server(http_url: str) -> None:
    servers = {"web": McpServer("web", url=http_url)}
    with pytest.raises(ToolRejected, match="b is missing"):
        call(servers, "web.add", a=2)
    with pytest.raises((ToolFailed, ToolRejected)):
        call(servers, "web.add", a=2, b="not a number")
    with pytest.raises(ToolRejected, match="no tool"):
        call(servers, "web.nothing")


def test_a_server_that_hangs_is_left(http_url: str) -> None:
    servers = {"web": McpServer("web", url=http_url, timeout_s=1.0)}
    started = time.monotonic()
    with pytest.raises((ToolTimedOut, ToolFailed)):
        call(servers, "web.hang")
    assert time.monotonic() - started < 6


@pytest.mark.parametrize(
    "server",
    [
        McpServer("x", "/no/such/program"),
        McpServer("x", sys.executable, ("-c", "raise SystemExit(1)")),
        McpServer("x", url="http://127.0.0.1:9/mcp"),
    ],
)
def test_a_server_that_is_not_there_is_unavailable_and_harms_no_other(server: McpServer) -> None:
    with pytest.raises(ToolUnavailable):
        call({"x": server}, "x.anything")
    tools = asyncio.run(McpTools({"x": server, **stdio("time")}).tools())
    assert {t.name for t in tools} == {"time.get_current_time", "time.convert_time"}


def test_what_a_server_declares_read_only_may_be_called_again(http_url: str) -> None:
    servers = {"web": McpServer("web", url=http_url, idempotent=("ha*",))}
    tools = {t.name: t.idempotent for t in asyncio.run(McpTools(servers).tools())}
    assert tools == {"web.add": True, "web.fail": False, "web.hang": True}


def test_a_stdio_server_gets_only_its_own_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VENUS_CHAT_KEY", "secret")
    script = tmp_path / "server.py"
    script.write_text(
        "import os\nfrom mcp.server.mcpserver import MCPServer\nserver = MCPServer('env')\n"
        "@server.tool()\ndef names() -> str:\n    'Names.'\n    return ' '.join(sorted(os.environ))\nserver.run('stdio')\n"
    )
    servers = {"env": McpServer("env", sys.executable, (str(script),), {"GIVEN": "1"})}
    names = call(servers, "env.names").split()
    assert "GIVEN" in names and "VENUS_CHAT_KEY" not in names and os.environ["VENUS_CHAT_KEY"]


BLOCKS = """
import sys, time
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("blocks")

@server.tool()
def block() -> str:
    "Answers late, and does not hear that it may stop."
    Path(sys.argv[1]).write_text("begun")
    time.sleep(60)
    return "late"

server.run("stdio")
"""


def test_closing_while_servers_work_leaves_no_process_and_no_connection(
    http_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, begun = tmp_path / "blocks.py", tmp_path / "begun"
    script.write_text(BLOCKS)
    servers = {
        "std": McpServer("std", sys.executable, (str(script), str(begun)), timeout_s=PATIENT_S),
        "web": McpServer("web", url=http_url, timeout_s=PATIENT_S),
    }

    async def main() -> None:
        toolbox = Toolbox([McpTools(servers)])
        calls = [
            asyncio.ensure_future(
                toolbox.call(
                    name,
                    {},
                    task_of(queued("w", name, {}, limit_s=PATIENT_S), tmp_path),
                    SilentReports(),
                )
            )
            for name in ("std.block", "web.hang")
        ]
        while not begun.exists():
            await asyncio.sleep(0.05)
        for _ in range(2):
            for one in calls:
                one.cancel()
            await asyncio.sleep(0.01)
        await toolbox.close()
        assert len(asyncio.all_tasks()) == 1

    with nothing_left_behind(monkeypatch):
        asyncio.run(main())
    running = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not any(str(script).encode() in command for command in running)
