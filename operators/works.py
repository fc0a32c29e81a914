"""The works of one session as their events tell them: a fold that every operator (and the command line) may keep for itself.

    status      event                        →
    ---------   --------------------------   ------------------------------------------
    -           work.queued                  queued
    queued      work.running                 running (again with every further attempt)
    open        work.cancelling              cancelling
    open        work.completed               completed   (the first terminal counts;
    open        work.failed / cancelled      failed / cancelled   later ones change nothing)
    open        work.expired                 expired

Open are queued, running and cancelling. The way of the result is told by `delivery`. Closed works are forgotten, the oldest first,
beyond `KEPT`.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.envelope import Event
from schemas.responses import Message

Status = Literal["queued", "running", "cancelling", "completed", "failed", "cancelled", "expired"]
Delivery = Literal["none", "ready", "delivering", "delivered", "undelivered"]

OPEN: frozenset[str] = frozenset({"queued", "running", "cancelling"})
ENDED_BY: dict[str, Status] = {
    "work.completed": "completed",
    "work.failed": "failed",
    "work.cancelled": "cancelled",
    "work.expired": "expired",
}
EVENTS = frozenset(ENDED_BY) | {
    "work.queued",
    "work.running",
    "work.progress",
    "work.artifact",
    "work.cancelling",
    "reply.prepared",
    "work.delivering",
    "work.delivered",
    "work.undelivered",
}
"""What `WorkBook.observe` wants to see."""

KEPT = 32
SHOWN_CHARS = 300


@dataclass(slots=True)
class Work:
    """One work. Times are media µs."""

    work: str
    request: str
    """Id of its `work.queued`."""
    query: str
    skill: str | None
    arguments: dict[str, Any]
    rule: str | None
    queued_us: int
    limit_us: int
    status: Status = "queued"
    attempt: int = 0
    progress: str = ""
    artifacts: list[tuple[str, str, str, int]] = field(default_factory=list)
    """(name, media type, digest, bytes)."""
    result: str = ""
    why: str = ""
    ended_us: int | None = None
    cancelling_us: int | None = None
    untold: bool = False
    """Cancelled or superseded: its result will not be told, whatever comes."""
    delivery: Delivery = "none"
    text: str = ""
    """The result as it is spoken."""

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def pending(self) -> bool:
        """Open, or done and not told: what a correction or a question may mean."""
        return not self.untold and (
            self.open or self.delivery in ("ready", "delivering", "undelivered")
        )

    def same_task(self, query: str, skill: str | None, arguments: dict[str, Any]) -> bool:
        """Whether another request asks for what this one does."""
        if skill is not None or self.skill is not None:
            return self.skill == skill and self.arguments == arguments
        return " ".join(self.query.lower().split()) == " ".join(query.lower().split())


class WorkBook:
    """See the module."""

    __slots__ = ("_kept", "works")

    def __init__(self, kept: int = KEPT) -> None:
        self.works: dict[str, Work] = {}
        self._kept = kept

    def observe(self, event: Event, now: int) -> Work | None:
        """Take note of an event; returns the work if it was about one and changed something."""
        data = event.data
        if event.type == "work.queued":
            work = self.works[data.work] = Work(
                data.work,
                event.id,
                data.query,
                data.skill,
                data.arguments,
                data.rule,
                now,
                data.limit_us,
            )
            self._forget()
            return work
        if event.type == "work.delivering":
            for name in data.works:
                if name in self.works:
                    self.works[name].delivery = "delivering"
            return None
        work_ = self.works.get(getattr(data, "work", None) or "")
        if work_ is None:
            return None
        if event.type in ENDED_BY:
            return self._end(work_, event, now) if work_.open else None
        return self._note(work_, event, now)

    @staticmethod
    def _end(work: Work, event: Event, now: int) -> Work:
        work.status, work.ended_us = ENDED_BY[event.type], now
        if event.type == "work.completed":
            work.result = event.data.result
        else:
            work.why = getattr(event.data, "message", "") or getattr(event.data, "reason", "")
        return work

    @staticmethod
    def _note(work: Work, event: Event, now: int) -> Work | None:
        data = event.data
        match event.type:
            case "work.running" if work.open:
                work.attempt = max(work.attempt, data.attempt)
                if work.status == "queued":
                    work.status = "running"
            case "work.progress" if work.open:
                work.progress = data.text
            case "work.artifact":
                work.artifacts.append((data.name, data.media_type, data.digest, data.size))
            case "work.cancelling":
                work.untold = True
                if work.open:
                    work.status, work.cancelling_us = "cancelling", now
            case "reply.prepared":
                work.delivery, work.text = "ready", data.text
            case "work.delivered":
                work.delivery = "delivered"
            case "work.undelivered":
                work.delivery = "undelivered"
                work.untold = work.untold or data.reason == "superseded"
            case _:
                return None
        return work

    def _forget(self) -> None:
        closed = [w.work for w in self.works.values() if not w.open]
        for name in closed[: max(0, len(self.works) - self._kept)]:
            del self.works[name]

    # --- looking

    @property
    def open(self) -> list[Work]:
        return [w for w in self.works.values() if w.open]

    @property
    def running(self) -> list[Work]:
        """Open and wanted."""
        return [w for w in self.works.values() if w.open and w.status != "cancelling"]

    def latest_pending(self) -> Work | None:
        return next((w for w in reversed(self.works.values()) if w.pending), None)

    def latest_result(self) -> Work | None:
        """The newest result that may be told again: one that was not told comes before one that was."""
        done = [w for w in reversed(self.works.values()) if w.text and not w.untold and not w.open]
        return next((w for w in done if w.delivery == "undelivered"), done[0] if done else None)

    def prompt(self, now: int) -> Message | None:
        """What the language model must know of works so as not to begin one again (cases E1, E2). It is made for each prompt and never
        becomes part of the history."""
        lines = [
            f"Running in the background for {(now - w.queued_us) // 1_000_000} s, do not start it again: {_task(w)}"
            for w in self.running
        ]
        lines += [
            f"Done in the background, not told yet: {_task(w)}: {w.text[:SHOWN_CHARS]}"
            for w in self.works.values()
            if not w.open and not w.untold and w.delivery in ("ready", "delivering", "undelivered")
        ]
        return Message(role="system", content="\n".join(lines)) if lines else None


def _task(work: Work) -> str:
    given = ", ".join(f"{k}={v}" for k, v in work.arguments.items())
    named = f"{work.skill}({given})" if work.skill else work.query
    return named[:SHOWN_CHARS]
