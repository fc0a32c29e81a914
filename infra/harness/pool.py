"""Skills as tools, run in a pool of worker processes.

A call takes an idle worker or starts one; the number of calls at once is bounded by whoever calls. A worker goes back to the pool only
after a whole answer; one whose call failed, was cancelled or came late is killed, since nobody knows what it still does. Up to
`KEPT_IDLE` workers stay warm.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from infra.harness.jsonlines import LineProcess, report_line, task_line
from infra.harness.port import Reports, Task, Tool, ToolUnavailable
from infra.harness.skills import Skill, SkillSet

KEPT_IDLE = 2
USES = 200
"""Calls after which a worker is replaced, so that a leak does not grow for ever."""


class SkillPool:
    """A `ToolSource` over a `SkillSet`. `env` is all the environment that skills get."""

    def __init__(self, skills: SkillSet, env: Mapping[str, str]) -> None:
        self._skills = skills
        root = str(Path(__file__).resolve().parents[2])
        path = [
            root,
            *[p for p in sys.path if p],
            *filter(None, env.get("PYTHONPATH", "").split(":")),
        ]
        self._env = dict(env) | {"PYTHONPATH": ":".join(dict.fromkeys(path))}
        self._idle: list[LineProcess] = []
        self._busy: set[LineProcess] = set()

    async def tools(self) -> list[Tool]:
        return [self._tool(s) for s in self._skills.skills.values()]

    async def find(self, name: str) -> Tool | None:
        one = self._skills.skills.get(name)
        return None if one is None else self._tool(one)

    def idempotent(self, name: str) -> bool:
        one = self._skills.skills.get(name)
        return one is not None and one.idempotent

    async def close(self) -> None:
        await asyncio.gather(*(worker.kill() for worker in (*self._idle, *self._busy)))
        self._idle.clear()

    def _tool(self, one: Skill) -> Tool:
        return Tool(
            one.name,
            one.description,
            one.arguments.model_json_schema(),
            partial(self._call, one),
            one.idempotent,
            one.timeout_s,
            one.validated,
        )

    async def _call(
        self, one: Skill, arguments: Mapping[str, Any], task: Task, reports: Reports
    ) -> str:
        worker = await self._worker()
        self._busy.add(worker)
        whole = False
        try:
            result = await worker.work(
                task_line(task, arguments, one.name), lambda said: report_line(said, task, reports)
            )
            whole = True
            return result
        except ToolUnavailable:
            raise
        finally:
            self._busy.discard(worker)
            if whole and worker.uses < USES and len(self._idle) < KEPT_IDLE:
                self._idle.append(worker)
            else:
                await worker.kill()

    async def _worker(self) -> LineProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
        command = [
            sys.executable,
            "-P",  # the folder it is started in may hold a json.py
            "-m",
            "infra.harness.worker",
            str(os.getpid()),
            *self._skills.modules,
        ]
        return await LineProcess.start(command, self._env)
