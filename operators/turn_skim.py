"""Windows that change nothing about a turn, taken in one step: the greater part of every session.

Between two deadlines only a change of voice activity makes `operators.turn` decide anything. So a window may be skimmed when its hops
leave the activity as it is and no deadline falls into it. Whenever something else has happened, the next window is taken hop by hop,
which works off whatever follows from it at once.
"""

from operators.own_speech import is_echo
from operators.reducer import NEVER
from operators.turn_state import OpenTurn, TurnState
from schemas.base import HOP_SAMPLES, HOP_US
from schemas.perception import PerceptionWindow


def skims(state: TurnState, window: PerceptionWindow, until: int) -> bool:
    """Whether nothing can be decided within the window; `until`: the media time after it."""
    if state.closed_at is not None or window.epoch != state.epoch or not window.probabilities:
        return False
    if state.muted or (window.echo is not None and is_echo(window, state.policy.echo)):
        low = high = 0.0
    else:
        low, high = min(window.probabilities), max(window.probabilities)
    if not state.activity.steady(state.policy.vad, low, high, until):
        return False
    turn = state.turn
    if turn is None:
        return True
    if state.looked_at is None:
        return False
    if state.calm_until is None:
        state.calm_until = _deadline(state, turn, state.looked_at)
    return until < state.calm_until


def skim(state: TurnState, window: PerceptionWindow) -> None:
    hops = len(window.probabilities or ())
    state.end_sample = window.first_sample + hops * HOP_SAMPLES
    state.heard_until = window.start_us + hops * HOP_US
    if window.echo is not None and state.turn is not None:
        state.turn.echo = max(state.turn.echo or 0.0, window.echo)


def _deadline(state: TurnState, turn: OpenTurn, after: int) -> int:
    """The first time after `after` at which time alone could bring something, or an earlier one."""
    policy = state.policy
    if turn.settled is not None:
        waits = (policy.turn.transcript_deadline, policy.turn.watchdog)
        times = [turn.settled_at + wait for wait in waits]
    else:
        times = [turn.start_us + policy.turn.longest]
        since = state.silent_since
        if since is not None:
            # Those that do not apply to this turn cost a window taken hop by hop, no more.
            times += [
                since + wait
                for wait in (
                    policy.endpoint.ask_after,
                    policy.endpoint.give_up_after,
                    policy.turn.end_silence,
                    policy.turn.hold_doubt,
                    policy.turn.hold_max,
                    policy.turn.offered_silence,
                    policy.turn.transcript_deadline,
                )
            ]
    return min((time for time in times if time > after), default=NEVER)
