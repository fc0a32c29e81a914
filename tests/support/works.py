"""A scripted session with works: the test says what the Harness answers, and when."""

from typing import Any

from schemas.envelope import Event
from schemas.ids import outcome_id
from schemas.work import (
    WorkArtifact,
    WorkCalled,
    WorkCancelled,
    WorkCompleted,
    WorkFailed,
    WorkProgress,
    WorkRunning,
)
from tests.support.script import Session

WEATHER = {
    "name": "weather",
    "skill": "weather",
    "patterns": ["(what is|what's) the weather [like] in {city}"],
    "corrections": ["[to|in] {city}"],
    "say": "Let me check the weather.",
}
ORDER = {
    "name": "order",
    "skill": "order_status",
    "patterns": ["check [the status of] my order [number] {number:digits}"],
    "corrections": ["[number|it is] {number:digits}"],
}
TERMINAL = ("work.completed", "work.failed", "work.cancelled", "work.expired")


class WorkSession(Session):
    """`says(text)` is a spoken turn with that transcript; works stay open until the test ends them."""

    def __init__(
        self, name: str = "s", *, policy: dict[str, Any] | None = None, **more: Any
    ) -> None:
        self.harness_sequence: dict[tuple[str, str], int] = {}
        held = (*more.pop("hold", ()), "work")
        given = {"work.intents": [WEATHER, ORDER], **(policy or {})}
        super().__init__(name, policy=given, hold=held, **more)

    def says(self, text: str, ms: int = 960, then: int = 960) -> "WorkSession":
        self.transcript = text
        self.speak(ms).silence(then)
        return self

    # --- what the Harness answers

    def queued(self, work: str) -> Event:
        return next(e for e in self.of("work.queued") if e.data.work == work)

    def harness(self, work: str, data: Any, source: str = "harness/one") -> None:
        request = self.queued(work)
        key = (request.id, data.TYPE)
        index = self.harness_sequence.get(key, 0)
        self.harness_sequence[key] = index + 1
        terminal = data.TYPE in TERMINAL
        sequence = None if terminal else index
        id_ = outcome_id(request.id, 1, data.TYPE, 0 if terminal else index)
        self.feed(
            Event(
                data.TYPE,
                self.name,
                id_,
                source,
                data,
                None,
                request.id,
                request.correlation,
                sequence,
            )
        )

    def running(self, work: str = "work-1", attempt: int = 1) -> "WorkSession":
        self.harness(work, WorkRunning(work=work, attempt=attempt))
        return self

    def progress(self, text: str, work: str = "work-1") -> "WorkSession":
        self.harness(work, WorkProgress(work=work, text=text))
        return self

    def called(self, tool: str, work: str = "work-1") -> "WorkSession":
        self.harness(work, WorkCalled(work=work, tool=tool, ok=True))
        return self

    def artifact(self, name: str, work: str = "work-1") -> "WorkSession":
        data = WorkArtifact(
            work=work, name=name, media_type="text/plain", size=1, digest="sha256:0"
        )
        self.harness(work, data)
        return self

    def completes(self, result: str, work: str = "work-1") -> "WorkSession":
        self.harness(work, WorkCompleted(work=work, result=result))
        return self

    def fails(self, reason: Any = "error", work: str = "work-1") -> "WorkSession":
        self.harness(work, WorkFailed(work=work, reason=reason, message="boom"))
        return self

    def cancels(self, work: str = "work-1") -> "WorkSession":
        self.harness(work, WorkCancelled(work=work))
        return self

    # --- looking

    def spoken(self) -> list[str]:
        """What was heard of the assistant, response by response."""
        ends = ("response.ended", "response.cancelled", "response.failed")
        return [e.data.heard_text for e in self.events if e.type in ends and e.data.heard_text]

    def works(self) -> list[Any]:
        return self.data("work.queued")

    def ends_of(self, work: str) -> list[str]:
        return [e.type for e in self.events if e.type in TERMINAL and e.data.work == work]
