"""The end of a session: `session.ended` once it is closed and nothing of it is open, or when its time is up.

After `session.closed` the last of what was said is waited for, and what is open may end by itself for `session.drain`; the other
operators end the rest at that time, so that at the next step of time nothing is left. A session from which nothing has come for
`session.abandoned_after` is timed out, which closes it in the same way.
"""

from dataclasses import dataclass, field
from typing import Literal

from operators.closing import media_over
from operators.reducer import NEVER, NOTHING, Decision, Decisions, Hop
from schemas.envelope import Event
from schemas.policy import Policy
from schemas.registry import REQUESTS, TERMINALS
from schemas.session import SessionEnded, SessionTimedOut

_OPENS = {
    "turn.started": "turn",
    "response.requested": "response",
    "response.prepared": "response",
    "overlap.started": "overlap",
}
_ENDS = {
    "turn.ended": "turn",
    "response.ended": "response",
    "response.failed": "response",
    "response.cancelled": "response",
    "overlap.resolved": "overlap",
    "work.expired": "request",
}
_SIGNS_OF_LIFE = frozenset(
    {
        "text.input",
        "input.committed",
        "input.muted",
        "input.unmuted",
        "playback.ack",
        "device.joined",
    }
)


@dataclass(slots=True)
class LifecycleState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    closed_at: int | None = None
    last_sign: int = 0
    heard_until: int = 0
    """The end of the last hop after the close."""
    open: set[str] = field(default_factory=set)
    turns: int = 0
    responses: int = 0
    reason: Literal["closed", "abandoned"] = "closed"
    ended: bool = False


class Lifecycle:
    """See the module."""

    name = "lifecycle"
    version = 1
    handles = (
        frozenset({"session.configured", "session.updated", "session.closed"})
        | frozenset(_OPENS)
        | frozenset(_ENDS)
        | frozenset(REQUESTS)
        | frozenset(TERMINALS)
        | _SIGNS_OF_LIFE
    )

    def initial(self, session: str) -> LifecycleState:
        return LifecycleState()

    def step(self, state: LifecycleState, event: Event, now: int) -> Decisions:
        type_ = event.type
        if type_ in _OPENS:
            state.open.add(getattr(event.data, _OPENS[type_]))
            state.turns += type_ == "turn.started"
            state.responses += (
                type_.startswith("response.") and getattr(event.data, "attempt", 1) == 1
            )
        if type_ in _ENDS:
            state.open.discard(getattr(event.data, _ENDS[type_]))
        if type_ in REQUESTS:
            state.open.add(event.id)
        elif type_ in TERMINALS:
            state.open.discard(event.cause or "")
        elif type_ == "session.configured":
            state.policy = event.data.policy
            state.last_sign = now
            state.alarm = now + state.policy.session.abandoned_after
        elif type_ == "session.updated":
            state.policy = state.policy.with_accepted(event.data.policy)
            if state.closed_at is None:
                state.alarm = state.last_sign + state.policy.session.abandoned_after
        elif type_ == "session.closed" and state.closed_at is None:
            state.closed_at = now
            state.alarm = now + 1
        elif type_ in _SIGNS_OF_LIFE:
            state.last_sign = now
        return NOTHING

    def advance(self, state: LifecycleState, now: int, hop: Hop | None) -> Decisions:
        if state.ended:
            state.alarm = NEVER
            return NOTHING
        session = state.policy.session
        if hop is not None:
            state.heard_until = hop.end_us
        if state.closed_at is not None:
            heard = media_over(state.closed_at, state.heard_until, now)
            if (heard and not state.open) or now > state.closed_at + session.drain:
                return self._end(state)
            # The other operators end what is open at the end of the drain; look again at the step of time after that.
            state.alarm = now + 1
            return NOTHING
        if hop is not None:
            state.last_sign = now
        if now >= state.last_sign + session.abandoned_after:
            state.closed_at, state.reason = now, "abandoned"
            state.alarm = now + 1
            return (Decision(SessionTimedOut(waited_us=now - state.last_sign)),)
        state.alarm = state.last_sign + session.abandoned_after
        return NOTHING

    @staticmethod
    def _end(state: LifecycleState) -> Decisions:
        state.ended = True
        state.alarm = NEVER
        return (
            Decision(
                SessionEnded(reason=state.reason, turns=state.turns, responses=state.responses)
            ),
        )
