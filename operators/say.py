"""What somebody outside wants said (`say.requested`: an application, a frontend), at an eligible moment, never over the user.

    request     what happens                                              decided
    --------    -------------------------------------------------------   ------------------------------------------
    -           say.requested with a new name                             waiting
    waiting     the floor is free, and silence has lasted                 floor.requested
                floor.silence, falling to floor.silence_least; for a
                high urgency the floor need only be free
    waiting     older than floor.freshness; too many wait; the close      floor.withdrawn
    asked       its response ended, or was stopped in the middle          - (the response's own end tells how much was heard)
    asked       its response was stopped before anything was heard        waiting again, up to floor.tries, then floor.withdrawn

One request has the floor at a time. A name that was used before is a repeat and is passed over. In `floor.requested` and what
follows from it the name is preceded by `say:`, so that no name from outside is taken for one of another operator's requests.
"""

from collections import deque
from dataclasses import dataclass, field

from operators.floor import EVENTS as FLOOR_EVENTS
from operators.floor import Floor, needed_silence
from operators.reducer import EVERY_HOP, NEVER, Decision, Decisions, Hop, Out
from schemas.envelope import Event
from schemas.floor import FloorRequested, FloorWithdrawn, SayRequested
from schemas.policy import Policy

NAMES_KEPT = 256
"""Names of requests that are known again."""


@dataclass(slots=True)
class Wish:
    """A request that waits or was asked for."""

    data: SayRequested
    since_us: int
    tries: int = 0
    response: str | None = None

    @property
    def name(self) -> str:
        return f"say:{self.data.request}"


@dataclass(slots=True)
class SayState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    floor: Floor = field(default_factory=Floor)
    waiting: list[Wish] = field(default_factory=list)
    current: Wish | None = None
    names: deque[str] = field(default_factory=lambda: deque(maxlen=NAMES_KEPT))
    closed: bool = False


class Say:
    """See the module."""

    name = "say"
    version = 1
    handles = FLOOR_EVENTS | {
        "session.configured",
        "session.updated",
        "session.closed",
        "session.timed_out",
        "say.requested",
    }

    def initial(self, session: str) -> SayState:
        return SayState()

    def advance(self, state: SayState, now: int, hop: Hop | None) -> Decisions:
        out: Out = []
        policy = state.policy.floor
        for wish in [w for w in state.waiting if now - w.since_us > policy.freshness]:
            state.waiting.remove(wish)
            self._withdraw(wish, "stale", out)
        self._ask(state, now, out)
        return out

    def step(self, state: SayState, event: Event, now: int) -> Decisions:
        out: Out = []
        if event.type in FLOOR_EVENTS:
            state.floor.observe(event, now)
            if event.type.startswith("response.") and state.current is not None:
                self._response(state, state.current, event, out)
        match event.type:
            case "session.configured":
                state.policy = event.data.policy
            case "session.updated":
                state.policy = state.policy.with_accepted(event.data.policy)
            case "session.closed" | "session.timed_out":
                state.closed = True
                for wish in state.waiting:
                    self._withdraw(wish, "closed", out)
                state.waiting.clear()
            case "say.requested":
                self._wanted(state, event.data, now, out)
        self._ask(state, now, out)
        return out

    def _wanted(self, state: SayState, data: SayRequested, now: int, out: Out) -> None:
        if data.request in state.names:
            return
        state.names.append(data.request)
        wish = Wish(data, now)
        if state.closed or not data.text.strip():
            self._withdraw(wish, "closed" if state.closed else "nothing to say", out)
            return
        # The urgent ones before the others, each in their order.
        urgent = sum(1 for w in state.waiting if w.data.urgency == "high")
        state.waiting.insert(urgent if data.urgency == "high" else len(state.waiting), wish)
        if len(state.waiting) > state.policy.floor.most:
            oldest = min(state.waiting, key=lambda w: (w.data.urgency == "high", w.since_us))
            state.waiting.remove(oldest)
            self._withdraw(oldest, "too many wait", out)

    def _ask(self, state: SayState, now: int, out: Out) -> None:
        """Ask for the floor if this is an eligible moment, and set the alarm for the next look."""
        if state.current is None and state.waiting and state.floor.free:
            wish, policy = state.waiting[0], state.policy.floor
            needed = 0
            if wish.data.urgency != "high":
                waited = now - wish.since_us
                needed = needed_silence(
                    waited, policy.silence, policy.silence_least, policy.silence_decay
                )
            if state.floor.silence(now) >= needed:
                del state.waiting[0]
                wish.tries += 1
                state.current = wish
                data = FloorRequested(
                    request=wish.name,
                    text=wish.data.text,
                    purpose="say",
                    interruptible=wish.data.interruptible,
                )
                out.append(Decision(data, wish.name))
        state.alarm = EVERY_HOP if state.waiting else NEVER

    def _response(self, state: SayState, current: Wish, event: Event, out: Out) -> None:
        data = event.data
        if event.type == "response.prepared" and current.name in data.requests:
            current.response = data.response
        if current.response != getattr(data, "response", None) or event.type in (
            "response.prepared",
            "response.requested",
        ):
            return
        state.current = None
        if data.heard_text or event.type == "response.ended":
            return
        current.response = None
        if state.closed:
            self._withdraw(current, "closed", out)
        elif current.tries < state.policy.floor.tries:
            state.waiting.insert(0, current)
        else:
            self._withdraw(current, "not heard", out)

    @staticmethod
    def _withdraw(wish: Wish, reason: str, out: Out) -> None:
        out.append(Decision(FloorWithdrawn(request=wish.name, reason=reason), wish.name))
