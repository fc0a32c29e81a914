"""Agents in a process of their own, in any language, as tools: one process for each work, JSON lines (`infra.harness.jsonlines`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from shutil import which
from typing import Any

from infra.harness.aside import aside
from infra.harness.jsonlines import LineProcess, report_line, task_line
from infra.harness.port import Reports, Task, Tool, ToolUnavailable

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to do, in plain words."}},
}


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """How an agent is started. `env` is all the environment it gets beside PATH."""

    name: str
    command: tuple[str, ...]
    description: str = ""
    env: Mapping[str, str] | None = None
    idempotent: bool = False
    timeout_s: float = 180.0


class SubprocessAgents:
    """A `ToolSource` over agent commands."""

    def __init__(self, agents: Mapping[str, AgentCommand], path: str) -> None:
        self._agents, self._path = dict(agents), path

    async def tools(self) -> list[Tool]:
        return [self._tool(a) for a in self._agents.values()]

    async def find(self, name: str) -> Tool | None:
        agent = self._agents.get(name)
        return None if agent is None else self._tool(agent)

    def idempotent(self, name: str) -> bool:
        agent = self._agents.get(name)
        return agent is not None and agent.idempotent

    async def close(self) -> None:
        """Each call kills its own process."""

    def _tool(self, agent: AgentCommand) -> Tool:
        text = agent.description or f"The agent {agent.name}."
        return Tool(
            agent.name, text, SCHEMA, partial(self._call, agent), agent.idempotent, agent.timeout_s
        )

    async def _call(
        self, agent: AgentCommand, arguments: Mapping[str, Any], task: Task, reports: Reports
    ) -> str:
        task.workspace.mkdir(parents=True, exist_ok=True)
        env = {"PATH": self._path, **(agent.env or {})}
        if which(agent.command[0], path=self._path) is None:
            raise ToolUnavailable(f"agent {agent.name}: there is no program {agent.command[0]}")
        process = await LineProcess.start(aside(list(agent.command)), env, task.workspace)
        try:
            line = task_line(task, arguments, agent.name)
            line["query"] = arguments.get("query") or task.query
            return await process.work(line, lambda said: report_line(said, task, reports))
        finally:
            await process.kill()
