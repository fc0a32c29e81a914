"""What the Harness may use, as one JSON file: skills, MCP servers, agents, the chat endpoint.

    {
      "skills": ["my_skills"],
      "mcpServers": {"time": {"command": "python", "args": ["-m", "mcp_server_time"]}, "docs": {"url": "http://127.0.0.1:8000/mcp"}},
      "agents": {"coder": {"command": ["./agent.sh"], "description": "Writes code."}},
      "chat": {"base_url": "http://127.0.0.1:11434/v1", "model": "qwen3", "audio": false},
      "intents": [{"name": "time", "skill": "time.get_current_time", "patterns": ["what time is it"]}]
    }

`mcpServers` is what other MCP clients write, so an entry can be copied. Secrets never stand in the file nor in the log: a value
`$NAME` or `${NAME}` in `env`, `headers` or `api_key` is taken from the environment. `intents` are phrases for tools that have none of
their own (`schemas.policy_work.IntentRule`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.harness.mcp import McpServer
from infra.harness.openai import ChatEndpoint
from infra.harness.subprocess import AgentCommand
from schemas.errors import BadInput
from schemas.policy_work import IntentRule

_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
SKILL_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
"""What skills get of the environment; `skillEnvironment` adds names."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Server(_Entry):
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, str] = {}
    idempotent: list[str] = []
    timeout: float = Field(30.0, gt=0)
    type: str = ""


class _Agent(_Entry):
    command: list[str] = Field(min_length=1)
    description: str = ""
    env: dict[str, str] = {}
    idempotent: bool = False
    timeout: float = Field(180.0, gt=0)


class _Chat(_Entry):
    base_url: str
    model: str
    api_key: str = "$VENUS_CHAT_KEY"
    timeout: float = Field(120.0, gt=0)
    max_tokens: int = Field(800, ge=1)
    audio: bool = Field(False, strict=True)


class _File(_Entry):
    skills: list[str] = []
    skillEnvironment: list[str] = []
    mcpServers: dict[str, _Server] = {}
    agents: dict[str, _Agent] = {}
    chat: _Chat | None = None
    intents: list[IntentRule] = []


@dataclass(frozen=True, slots=True)
class HarnessConfig:
    """All that the Harness may use."""

    skills: tuple[str, ...] = ()
    skill_environment: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, McpServer] = field(default_factory=dict)
    agents: Mapping[str, AgentCommand] = field(default_factory=dict)
    chat: ChatEndpoint | None = None
    path: str = "/usr/bin:/bin"
    intents: tuple[IntentRule, ...] = ()

    def secrets(self, shortest: int) -> tuple[str, ...]:
        """What must never reach the log: whatever came from the environment for somebody, if long enough to be one."""
        found = {self.chat.api_key} if self.chat is not None else set()
        for one in (*self.servers.values(), *self.agents.values()):
            found.update((getattr(one, "env", None) or {}).values())
            found.update(getattr(one, "headers", {}).values())
        return tuple(sorted((s for s in found if len(s) >= shortest), key=len, reverse=True))


def read_config(
    path: Path | None, environ: Mapping[str, str], skills: tuple[str, ...] = ()
) -> HarnessConfig:
    """The configuration of a file (none: only what is named by `skills`).

    Raises:
        BadInput: it cannot be read or understood, or names a variable that is not set.
    """
    raw: Any = {}
    if path is not None:
        try:
            raw = json.loads(path.read_text())
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise BadInput(f"{path} is not JSON: {error}") from error
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    servers = {name: _server(name, one, environ) for name, one in file.mcpServers.items()}
    agents = {
        name: AgentCommand(
            name,
            tuple(a.command),
            a.description,
            _filled(name, a.env, environ),
            a.idempotent,
            a.timeout,
        )
        for name, a in file.agents.items()
    }
    names = (*SKILL_ENVIRONMENT, *file.skillEnvironment)
    return HarnessConfig(
        tuple(dict.fromkeys((*file.skills, *skills))),
        {n: environ[n] for n in names if n in environ},
        servers,
        agents,
        _chat(file.chat, environ),
        environ.get("PATH", "/usr/bin:/bin"),
        tuple(file.intents),
    )


def _server(name: str, one: _Server, environ: Mapping[str, str]) -> McpServer:
    if bool(one.command) == bool(one.url) or "." in name:
        raise BadInput(f"mcpServers.{name}: give it a command or a URL, and a name without dots")
    return McpServer(
        name,
        one.command,
        tuple(one.args),
        _filled(name, one.env, environ),
        one.cwd,
        one.url,
        _filled(name, one.headers, environ),
        tuple(one.idempotent),
        one.timeout,
    )


def _chat(one: _Chat | None, environ: Mapping[str, str]) -> ChatEndpoint | None:
    if one is None:
        return None
    optional = dict(environ)
    optional.setdefault("VENUS_CHAT_KEY", "none")
    key = _filled("chat", {"api_key": one.api_key}, optional)["api_key"]
    return ChatEndpoint(one.base_url, one.model, key, one.timeout, one.max_tokens, one.audio)


def _filled(name: str, values: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    def look(match: re.Match[str]) -> str:
        variable = match[1] or match[2]
        if variable not in environ:
            raise BadInput(f"{name}: the environment has no {variable}")
        return environ[variable]

    return {key: _REFERENCE.sub(look, value) for key, value in values.items()}
