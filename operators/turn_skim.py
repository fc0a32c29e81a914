"""Windows that change nothing about a turn, taken in one step: the greater part of every session.

Between two deadlines only a change of voice activity makes `operators.turn` decide anything. So windows may be skimmed while their hops
leave the activity as it is and no deadline falls into them. Whenever something else has happened, the next window is taken hop by hop,
which works off whatever follows from it at once.
"""

from collections.abc import Sequence

from operators.own_speech import is_echo
from operators.reducer import NEVER
from operators.turn_state import OpenTurn, TurnState
from schemas.base import HOP_SAMPLES, HOP_US
from schemas.perception import PerceptionWindow


def skims(state: TurnState, windows: Sequence[PerceptionWindow], now: int) -> int:
    """In how many of the windows, from the first on, nothing can be decided; `now`: the media time before them."""
    if state.closed_at is not None:
        return 0
    least, most, before = state.activity.steady(state.policy.vad)
    turn = state.turn
    if turn is not None:
        if state.looked_at is None:
            return 0
        if state.calm_until is None:
            state.calm_until = _deadline(state, turn, state.looked_at)
        before = min(before, state.calm_until)
    if now >= before:
        return 0
    count, epoch, muted, echo = 0, state.epoch, state.muted, state.policy.echo
    for window in windows:
        probabilities = window.probabilities
        if not probabilities or window.epoch != epoch:
            break
        if window.start_us + len(probabilities) * HOP_US >= before:
            break
        if muted or (window.echo is not None and is_echo(window, echo)):
            if not least <= 0.0 < most:
                break
        elif max(probabilities) >= most or min(probabilities) < least:
            break
        count += 1
    return count


def skim(state: TurnState, windows: Sequence[PerceptionWindow]) -> None:
    last = windows[-1]
    hops = len(last.probabilities or ())
    state.end_sample = last.first_sample + hops * HOP_SAMPLES
    state.heard_until = last.start_us + hops * HOP_US
    if state.turn is not None:
        for window in windows:
            if window.echo is not None:
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
