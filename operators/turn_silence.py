"""What silence says about a turn: whether it goes on, is over, or continues the one before; and whose words it holds."""

from operators.heard import words
from operators.reducer import Decision, Out
from operators.turn_requests import ask
from operators.turn_state import LastTurn, OpenTurn, TurnState
from operators.words import is_only, phrases
from schemas.policy import Policy
from schemas.turns import EndReason, TurnEnded, TurnHeld


def continued(state: TurnState, start: int) -> LastTurn | None:
    """The turn before, if what begins at `start` belongs to it."""
    last = state.last
    if last is None or not last.may_continue or last.epoch != state.epoch:
        return None
    return last if start - last.end_us <= state.policy.turn.reopen_within else None


def weigh(state: TurnState, turn: OpenTurn, now: int, out: Out) -> None:
    """Weigh the silence so far: ask the models about it, and settle the turn if it is over."""
    policy, silent_since = state.policy, state.silent_since
    if silent_since is None:
        return
    # A voice that has just begun may be the turn going on: silence does not grow until it is known.
    silence = (state.activity.stirring or now) - silent_since
    if turn.by == "transcript":
        wait = policy.turn.offered_silence
        if turn.interim:
            wait = max(wait, policy.turn.transcript_deadline)
        reason: EndReason | None = "transcript" if silence >= wait else None
    else:
        if not turn.asked and silence >= policy.endpoint.ask_after:
            ask(state, turn, out, endpoint=True)
        reason = _judge(turn, policy, silence) if turn.asked else None
    if reason is not None:
        turn.settled, turn.settled_at = reason, silent_since


def _judge(turn: OpenTurn, policy: Policy, silence: int) -> EndReason | None:
    """Whether a turn that has been silent for so long is over, and why."""
    if silence < policy.turn.end_silence:
        return None
    if turn.probability is not None:
        patience = _patience(turn, policy)
        if silence < patience:
            return None
        return "complete" if patience == policy.turn.end_silence else "hold_expired"
    if turn.endpoint_failed or silence >= policy.endpoint.give_up_after:
        return "no_prediction"
    return None


def _patience(turn: OpenTurn, policy: Policy) -> int:
    """The silence that ends a turn, by what its sound and its words say about it."""
    if turn.wording == "broken":
        return max(policy.turn.end_silence, policy.turn.hold_max)
    more = turn.probability is not None and turn.probability <= policy.endpoint.threshold
    if turn.wording is None and more:
        return max(policy.turn.end_silence, policy.turn.hold_max)
    doubt = more or turn.wording == "number"
    return max(policy.turn.end_silence, policy.turn.hold_doubt if doubt else 0)


def hold(state: TurnState, turn: OpenTurn, now: int, out: Out) -> None:
    """Wait on where sound or words say that more will come, and say until when; an end that the sound alone had settled is taken back."""
    if turn.probability is None or turn.settled not in (None, "complete") or turn.deadline_told:
        return
    patience, since = _patience(turn, state.policy), state.silent_since
    until = (now if since is None else since) + patience
    if patience == state.policy.turn.end_silence or until <= now:
        return
    turn.settled = None
    if turn.held_until is None or until > turn.held_until:
        held = TurnHeld(turn=turn.turn, probability=turn.probability, until_us=until)
        out.append(Decision(held, turn.turn))
    turn.held_until = until


def is_the_users(state: TurnState, text: str, start: int, echo: float | None) -> bool:
    """Whether a text is what the user said, and not the assistant's own echo or what the policy ignores."""
    if is_only(words(text), phrases(state.policy.turn.ignore_words)):
        return False
    return not state.own.is_own(text, start, state.heard_until, echo, state.policy.echo)


def how_it_ended(state: TurnState, turn: OpenTurn, reason: EndReason) -> TurnEnded:
    """What a turn that ends now was: until where, in which words."""
    end = state.heard_until if state.silent_since is None else state.silent_since
    if turn.by == "transcript":
        end = turn.offered_end
    text = turn.words()
    taken = is_the_users(state, text, turn.start_us, turn.echo)
    return TurnEnded(
        turn=turn.turn,
        start_us=turn.start_us,
        end_us=max(end, turn.start_us),
        text=text if taken else "",
        reason=reason,
        probability=turn.probability,
        reply=turn.reply,
        ignored="" if taken else text,
    )
