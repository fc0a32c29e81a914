"""Works as effects: what a `work.queued` asks of the executors, and which outcomes their reports become.

- Before anything runs, the request is claimed (`work.running`); see `flows.effects`.
- All text that goes to the log is cleaned: cut to its limit, valid Unicode, and without any secret of the configuration.
- A work has its own workspace; its artifacts are stored before they are told.
- Reports are bounded; a tool that floods them is heard no further, and its result still counts.
- `direct` hears the user where the chat endpoint can (`Executors.hear`); without the sound it goes on with the words, and says so.
- `auto` without a planner is the call that the session's intent rules make of the words (`WorkQueued.fits`), if they make one.
"""

import asyncio
import json
import logging
import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flows.effects import Effect, Result, Results, one_line, plain_reason
from infra.blobs import BlobStore
from infra.harness.port import HarnessError, Reports, Task, ToolRejected
from infra.harness.toolbox import Toolbox
from infra.harness.workspace import confined, remove, workspace_of
from schemas.envelope import Event
from schemas.errors import VenusError
from schemas.registry import PARTIALS, TERMINALS
from schemas.transcription import FailureReason
from schemas.work import (
    WorkArtifact,
    WorkCalled,
    WorkCancelled,
    WorkCompleted,
    WorkFailed,
    WorkProgress,
    WorkRunning,
)

log = logging.getLogger(__name__)

AT_ONCE = 8
PROGRESS_CHARS, PROGRESS_MOST = 300, 100
CALLED_CHARS, CALLED_MOST = 1_000, 80
WORDS_ALONE = "I can only go by the words of it."
ARTIFACTS_MOST = 32
BACKSTOP_S = 900.0
"""Wall time after which even a work that ignores everything is ended."""

OUTCOMES = {t: False for t, k in PARTIALS.items() if k == "work"} | {
    t: True for t, k in TERMINALS.items() if k == "work"
}


class Agent(Protocol):
    """Does what no single tool does: a language model with tools."""

    async def run(self, task: Task, reports: Reports) -> str: ...

    async def close(self) -> None: ...


@dataclass
class Executors:
    """What this process can work with."""

    toolbox: Toolbox
    agent: Agent | None
    blobs: BlobStore
    workspaces: Path
    secrets: tuple[str, ...] = ()
    at_once: int = AT_ONCE
    hear: Callable[[Event], Awaitable[bytes]] | None = None
    """The user's sound that a request rests on; None: the agent takes none."""

    def clean(self, text: str, chars: int) -> str:
        """Text as the log may hold it."""
        text = text[: chars + 4_096]
        for secret in self.secrets:
            text = text.replace(secret, "[secret]")
        return text[:chars].encode("utf-8", "replace").decode()

    async def close(self) -> None:
        await self.toolbox.close()
        if self.agent is not None:
            await self.agent.close()


class _Reports:
    """What a running work says, on its way to the log."""

    def __init__(self, executors: Executors, task: Task) -> None:
        self._executors, self._task = executors, task
        self.queue: asyncio.Queue[Result | tuple[Path, str, str]] = asyncio.Queue()
        self._counts = {"progress": 0, "called": 0, "artifact": 0}

    def progress(self, text: str) -> None:
        if self._room("progress", PROGRESS_MOST):
            said = " ".join(self._executors.clean(text, PROGRESS_CHARS).split())
            self.queue.put_nowait(WorkProgress(work=self._task.work, text=said))

    def called(self, tool: str, arguments: Mapping[str, Any], ok: bool, result: str) -> None:
        if self._room("called", CALLED_MOST):
            data = WorkCalled(
                work=self._task.work,
                tool=tool[:200],
                arguments=self._arguments(arguments),
                ok=ok,
                result=self._executors.clean(result, CALLED_CHARS),
            )
            self.queue.put_nowait(data)

    def artifact(self, path: Path, media_type: str = "", name: str = "") -> None:
        real = confined(self._task.workspace, path)
        if self._room("artifact", ARTIFACTS_MOST):
            kind = media_type or mimetypes.guess_type(real.name)[0] or "application/octet-stream"
            self.queue.put_nowait((real, kind[:100], (name or real.name)[:200]))

    def _room(self, kind: str, most: int) -> bool:
        self._counts[kind] += 1
        return self._counts[kind] <= most

    def _arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        text = json.dumps(dict(arguments), ensure_ascii=False, default=str)
        cleaned = self._executors.clean(text, CALLED_CHARS)
        with suppress(ValueError):
            parsed = json.loads(cleaned)
            if isinstance(parsed, dict):
                return parsed
        return {"cut": cleaned}


def work_effects(executors: Executors) -> dict[str, Effect]:
    """Request type → the effect, for `EffectDesk`."""

    def failed(request: Event, reason: FailureReason, message: str) -> Result:
        said = executors.clean(message, 300)
        if reason == "cancelled":
            return WorkCancelled(work=request.data.work, message=said)
        return WorkFailed(work=request.data.work, reason=reason, message=said)

    return {
        "work.queued": Effect(
            lambda request, _: _work(executors, request),
            failed,
            OUTCOMES,
            limit=executors.at_once,
            deadline_s=BACKSTOP_S,
            tries=1,
            reason_of=reason_of,
            claim=lambda request, attempt: WorkRunning(work=request.data.work, attempt=attempt),
            resumes=lambda request: _resumes(executors, request),
        )
    }


def reason_of(error: BaseException) -> FailureReason:
    return error.reason if isinstance(error, HarnessError) else plain_reason(error)


def _resumes(executors: Executors, request: Event) -> bool:
    """Only a skill that declares it may run twice; an agent may have called anything."""
    asked = request.data
    return (
        asked.route == "skill"
        and asked.skill is not None
        and executors.toolbox.idempotent(asked.skill)
    )


async def _work(executors: Executors, request: Event) -> Results:
    asked = request.data
    workspace = workspace_of(executors.workspaces, request.session, asked.work, asked.attempt)
    task = Task(
        request.session,
        asked.work,
        asked.query,
        asked.route,
        asked.skill,
        asked.arguments,
        tuple((e.role, e.text) for e in asked.evidence),
        asked.earlier,
        asked.allow,
        asked.language,
        asked.limit_us / 1e6,
        workspace,
    )
    reports = _Reports(executors, task)
    running = asyncio.create_task(_execute(executors, request, task, reports))
    try:
        while not (running.done() and reports.queue.empty()):
            said = await _next(reports.queue, running)
            if said is not None:
                yield await _outcome(executors, task, said)
        result = running.result()
        cleaned = executors.clean(result, asked.result_chars)
        yield WorkCompleted(
            work=asked.work, result=cleaned, truncated=len(result) > asked.result_chars
        )
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await running
        await asyncio.to_thread(remove, workspace)


async def _execute(executors: Executors, request: Event, task: Task, reports: Reports) -> str:
    toolbox, fits = executors.toolbox, request.data.fits
    try:
        async with asyncio.timeout(task.limit_s):
            if task.route == "skill":
                if task.skill is None:
                    raise ToolRejected("the route skill needs the name of one")
                return await toolbox.call(task.skill, dict(task.arguments), task, reports)
            if executors.agent is None and task.route == "auto" and fits is not None:
                return await toolbox.call(fits.skill, dict(fits.arguments), task, reports)
            if executors.agent is None:
                also = ", and no phrase of a skill fits" if task.route == "auto" else ""
                raise ToolRejected(
                    f"the route {task.route} needs a chat endpoint, and none is configured{also}"
                )
            if task.route == "direct" and executors.hear is not None:
                task = replace(task, audio=await _heard(executors.hear, request, task, reports))
            return await executors.agent.run(task, reports)
    except TimeoutError:
        raise TimeoutError(f"no result within {task.limit_s:g} s") from None


async def _heard(
    hear: Callable[[Event], Awaitable[bytes]], request: Event, task: Task, reports: Reports
) -> bytes:
    try:
        return await hear(request)
    except VenusError as error:
        log.warning("%s of %s goes by the words alone: %s", task.work, task.session, error)
        reports.progress(WORDS_ALONE)
        return b""


async def _next(queue: "asyncio.Queue[Any]", running: "asyncio.Task[str]") -> Any:
    """The next report, or None when the work has ended without one."""
    if not queue.empty():
        return queue.get_nowait()
    getting = asyncio.ensure_future(queue.get())
    try:
        await asyncio.wait({getting, running}, return_when=asyncio.FIRST_COMPLETED)
        return getting.result() if getting.done() else None
    finally:
        getting.cancel()


async def _outcome(executors: Executors, task: Task, said: Any) -> Result:
    if not isinstance(said, tuple):
        return said  # type: ignore[no-any-return]
    path, media_type, name = said
    try:
        data = await asyncio.to_thread(path.read_bytes)
        digest = await asyncio.to_thread(executors.blobs.put, data)
    except OSError as error:
        return WorkProgress(work=task.work, text=f"artifact {name} is lost: {one_line(error)}")
    return WorkArtifact(
        work=task.work,
        name=executors.clean(name, 200),
        media_type=media_type,
        size=len(data),
        digest=digest,
    )
