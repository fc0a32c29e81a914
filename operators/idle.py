"""Silence of both sides: a prompt to the user, and whether they are still there. Both are off unless the policy wants them.

    state     what happens                                              →
    -------   -------------------------------------------------------   ------------------------------------------
    present   silence reaches idle.prompt_after, fewer than             prompted (floor.requested)
              idle.prompts_most prompts since the user's last sign
    present   silence reaches idle.away_after                           away (user.away)
    away      the user speaks or types, or the session ends             present (user.returned)

Silence is counted from the end of playback, and does not grow while anything is said, thought about or worked on. A prompt that is
itself heard starts the silence anew.
"""

from dataclasses import dataclass, field

from operators.floor import EVENTS as FLOOR_EVENTS
from operators.floor import Floor
from operators.reducer import NEVER, Decision, Decisions, Hop, Out
from operators.works import EVENTS as WORK_EVENTS
from operators.works import WorkBook
from schemas.envelope import Event
from schemas.floor import FloorRequested
from schemas.idle import UserAway, UserReturned
from schemas.policy import Policy

SIGNS = frozenset({"speech.started", "text.input", "input.committed", "input.unmuted"})
"""Events that show the user to be there."""


@dataclass(slots=True)
class IdleState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    floor: Floor = field(default_factory=Floor)
    book: WorkBook = field(default_factory=WorkBook)
    since_us: int = 0
    """The end of the last thing besides speech that counts as no silence: a work, a sign of the user."""
    prompts: int = 0
    """Since the user's last sign."""
    count: int = 0
    asked: str | None = None
    """The prompt whose response has not come yet."""
    away_us: int | None = None
    closed: bool = False


class Idle:
    """See the module."""

    name = "idle"
    version = 1
    handles = (
        FLOOR_EVENTS
        | WORK_EVENTS
        | SIGNS
        | {
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "transcript.offered",
            "floor.withdrawn",
        }
    )

    def initial(self, session: str) -> IdleState:
        return IdleState()

    def advance(self, state: IdleState, now: int, hop: Hop | None) -> Decisions:
        out: Out = []
        policy = state.policy.idle
        silence = self._silence(state, now)
        wants_prompt = (
            policy.prompt_after
            and silence >= policy.prompt_after
            and state.prompts < policy.prompts_most
            and state.away_us is None
        )
        if wants_prompt and state.asked is None:
            state.prompts += 1
            state.count += 1
            state.asked = f"prompt-{state.count}"
            data = FloorRequested(request=state.asked, text=policy.prompt_text, purpose="prompt")
            out.append(Decision(data, state.asked))
        elif policy.away_after and silence >= policy.away_after and state.away_us is None:
            state.away_us = now
            out.append(Decision(UserAway(silent_since_us=now - silence)))
        self._set_alarm(state)
        return out

    def step(self, state: IdleState, event: Event, now: int) -> Decisions:
        out: Out = []
        data = event.data
        if event.type in FLOOR_EVENTS:
            state.floor.observe(event, now)
        if event.type in WORK_EVENTS:
            state.book.observe(event, now)
            state.since_us = now
        if event.type in SIGNS or (event.type == "transcript.offered" and data.text.strip()):
            state.prompts, state.since_us = 0, now
            self._returned(state, now, out)
        match event.type:
            case "session.configured":
                state.policy, state.since_us = data.policy, now
            case "session.updated":
                state.policy = state.policy.with_accepted(data.policy)
            case "session.closed" | "session.timed_out":
                state.closed = True
                self._returned(state, now, out)
            case "response.prepared" if state.asked in data.requests:
                state.asked = None
            case "floor.withdrawn" if data.request == state.asked:
                state.asked = None
        self._set_alarm(state)
        return out

    @staticmethod
    def _silence(state: IdleState, now: int) -> int:
        """How long nobody has spoken and nothing has been worked on."""
        if state.closed or state.book.running or not state.floor.free:
            return 0
        return min(state.floor.silence(now), max(0, now - state.since_us))

    @staticmethod
    def _returned(state: IdleState, now: int, out: Out) -> None:
        if state.away_us is not None:
            out.append(Decision(UserReturned(away_us=now - state.away_us)))
            state.away_us = None

    @staticmethod
    def _set_alarm(state: IdleState) -> None:
        policy, state.alarm = state.policy.idle, NEVER
        if state.closed or state.away_us is not None:
            return
        if state.book.running or not state.floor.free:
            return
        silent_since = max(state.floor.quiet_us, state.since_us)
        if policy.prompt_after and state.prompts < policy.prompts_most and state.asked is None:
            state.alarm = silent_since + policy.prompt_after
        if policy.away_after:
            state.alarm = min(state.alarm, silent_since + policy.away_after)
