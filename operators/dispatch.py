"""Dispatch: one work at most for each captured request, and the end of every work.

    what happens                                              decided
    -------------------------------------------------------   --------------------------------------------------------------
    captured                                                  work.queued
    captured, and the same task is running                    delegate.refused (running): it is not begun again (case E2)
    captured as `auto`, and only asks how far a work is       delegate.refused (running), with what is known
    captured, but not allowed, too many, session closed       delegate.refused
    captured, and it corrects a work                          work.cancelling of that one (if open), then work.queued
    the user asks to cancel, a device asks to cancel          work.cancelling
    no terminal event by its limit + work.expire_slack        work.expired (timed_out)
    no terminal event by work.cancel_slack after cancelling   work.expired (timed_out)
    session closed and drained                                work.expired (closed)

Speech over the assistant cancels no work, nor does a stop of speech; only a correction or a request to cancel does. Arguments are checked
by the Harness, which has the skills' models.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from operators.intents import asks_progress, read_turn
from operators.reducer import NEVER, Decision, Decisions, Hop
from operators.works import EVENTS as WORK_EVENTS
from operators.works import Work, WorkBook
from schemas.delegation import DelegateCaptured, DelegateRefused, Route
from schemas.envelope import Event
from schemas.policy import Policy
from schemas.work import CancelReason, WorkCancelling, WorkExpired, WorkQueued


@dataclass(slots=True)
class DispatchState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    language: str = "en"
    book: WorkBook = field(default_factory=WorkBook)
    count: int = 0
    closed_at: int | None = None


class Dispatch:
    """See the module."""

    name = "dispatch"
    version = 1
    handles = WORK_EVENTS | {
        "session.configured",
        "session.updated",
        "session.closed",
        "session.timed_out",
        "turn.ended",
        "delegate.captured",
        "work.cancel_requested",
    }

    def initial(self, session: str) -> DispatchState:
        return DispatchState()

    def advance(self, state: DispatchState, now: int, hop: Hop | None) -> Decisions:
        out: list[Decision] = []
        for work in state.book.open:
            if state.closed_at is not None and now >= state.closed_at + state.policy.session.drain:
                self._expire(work, "closed", out)
            elif now >= self._due(state, work):
                self._expire(work, "timed_out", out)
        self._set_alarm(state)
        if out:
            # What was decided is not in the book before it has gone round; until then no second look.
            state.alarm = now + 1
        return out

    def step(self, state: DispatchState, event: Event, now: int) -> Decisions:
        data, out = event.data, list[Decision]()
        match event.type:
            case "session.configured":
                state.policy, state.language = data.policy, data.language
            case "session.updated":
                state.policy = state.policy.with_accepted(data.policy)
            case "session.closed" | "session.timed_out":
                state.closed_at = now
            case "delegate.captured":
                self._captured(state, data, out)
            case "work.cancel_requested":
                open_ = state.book.running
                for work in [w for w in open_ if data.work in (None, w.work)]:
                    self._cancel(work, "requested", out)
            case "turn.ended":
                self._turn(state, data, out)
            case _:
                state.book.observe(event, now)
        self._set_alarm(state)
        return out

    def _turn(self, state: DispatchState, data: Any, out: list[Decision]) -> None:
        if not data.reply or not state.book.works:
            return
        for meaning in read_turn(state.policy.work, state.language, data.text, state.book):
            if meaning.kind == "cancel":
                for work in list(state.book.works.values()):
                    if meaning.work == work.work or (meaning.work is None and work.open):
                        self._cancel(work, "user", out)

    def _captured(self, state: DispatchState, data: DelegateCaptured, out: list[Decision]) -> None:
        policy = state.policy.work
        same = next(
            (w for w in state.book.running if w.same_task(data.query, data.skill, data.arguments)),
            None,
        )
        earlier = state.book.works.get(data.continues or "")
        meant = self._asked_about(state, data)
        refused: DelegateRefused | None = None
        if state.closed_at is not None:
            refused = DelegateRefused(delegate=data.delegate, reason="closed")
        elif same is not None:
            refused = DelegateRefused(delegate=data.delegate, reason="running", work=same.work)
        elif meant is not None:
            refused = DelegateRefused(
                delegate=data.delegate, reason="running", work=meant.work, detail=meant.progress
            )
        elif data.skill is not None and not any(fnmatchcase(data.skill, p) for p in policy.allow):
            refused = DelegateRefused(
                delegate=data.delegate, reason="not_allowed", detail=data.skill
            )
        elif len(state.book.open) - (data.corrects is not None) >= policy.most_open:
            refused = DelegateRefused(
                delegate=data.delegate, reason="too_many", detail=str(policy.most_open)
            )
        elif data.continues is not None and earlier is None:
            refused = DelegateRefused(
                delegate=data.delegate, reason="no_such_work", detail=data.continues
            )
        if refused is not None:
            out.append(Decision(refused, data.delegate))
            return
        corrected = state.book.works.get(data.corrects or "")
        if corrected is not None:
            self._cancel(corrected, "corrected", out)
        state.count += 1
        name = f"work-{state.count}"
        route: Route = "skill" if data.skill is not None and data.route == "auto" else data.route
        limit = policy.request_limit if route in ("skill", "direct") else policy.general_limit
        queued = WorkQueued(
            work=name,
            delegate=data.delegate,
            route=route,
            query=data.query,
            skill=data.skill,
            arguments=data.arguments,
            evidence=data.evidence,
            cutoff_us=data.cutoff_us,
            earlier="" if earlier is None else _known(earlier),
            allow=policy.allow,
            limit_us=limit,
            result_chars=policy.result_chars,
            replaces=data.corrects,
            language=state.language,
            rule=data.rule,
            fits=data.fits,
        )
        out.append(Decision(queued, name))
        # Known at once, so that a second request within the same turn sees it; its own event comes round later.
        state.book.works[name] = Work(
            name, "", data.query, data.skill, data.arguments, data.rule, NEVER, limit
        )

    @staticmethod
    def _asked_about(state: DispatchState, data: DelegateCaptured) -> Work | None:
        """The running work that a request only asks about: the one that it continues, else the newest."""
        running = state.book.running
        if data.route != "auto" or data.skill is not None or not running:
            return None
        if not asks_progress(state.policy.work, data.query):
            return None
        return next((w for w in running if w.work == data.continues), running[-1])

    @staticmethod
    def _cancel(work: Work, reason: CancelReason, out: list[Decision]) -> None:
        """Once for each work; one that is done already is only not told any more."""
        if not work.untold:
            work.untold = True
            out.append(Decision(WorkCancelling(work=work.work, reason=reason), work.work))

    @staticmethod
    def _expire(work: Work, reason: Any, out: list[Decision]) -> None:
        out.append(
            Decision(WorkExpired(work=work.work, request=work.request, reason=reason), work.work)
        )

    @staticmethod
    def _due(state: DispatchState, work: Work) -> int:
        due = work.queued_us + work.limit_us + state.policy.work.expire_slack
        if work.cancelling_us is not None:
            due = min(due, work.cancelling_us + state.policy.work.cancel_slack)
        return due

    def _set_alarm(self, state: DispatchState) -> None:
        due = [self._due(state, w) for w in state.book.open]
        if due and state.closed_at is not None:
            due.append(state.closed_at + state.policy.session.drain)
        state.alarm = min(due, default=NEVER)


def _known(work: Work) -> str:
    """What a work that continues this one is told of it."""
    if work.status == "completed":
        return work.result
    so_far = work.progress if work.open else work.why
    return f"{work.query}: {'not done yet' if work.open else work.status}. {so_far}".strip()
