"""What the turn operator asks of the models about its audio, and what it does not want any more."""

from operators.reducer import Decision, Out
from operators.turn_state import OpenTurn, TurnState, samples
from schemas.perception import AudioSpan
from schemas.transcription import EndpointRequested, RequestSuperseded, TranscriptRequested

COMMIT_AFTER = 15_000_000
"""Audio beyond which a transcript that has come is final for its part of the turn (the model hears at most 30 s)."""


def ask(state: TurnState, turn: OpenTurn, out: Out, *, endpoint: bool) -> None:
    """Ask about the audio up to now; where the turn has none, there is nothing to ask."""
    turn.asked = True
    if turn.by != "speech":
        return
    turn.transcript_end, turn.transcript_end_us = state.end_sample, state.heard_until

    def span(first: int) -> AudioSpan:
        return AudioSpan(
            channel=state.channel,
            epoch=turn.epoch,
            first_sample=first,
            end_sample=state.end_sample,
        )

    if endpoint:
        longest = samples(state.policy.endpoint.max_audio)
        first = max(turn.context_start, state.end_sample - longest)
        out.append(Decision(EndpointRequested(turn=turn.turn, audio=span(first)), turn.turn))
        turn.endpoint_request = ""
    data = TranscriptRequested(
        turn=turn.turn,
        audio=span(turn.audio_start),
        start_us=turn.audio_start_us,
        language=state.language,
    )
    out.append(Decision(data, turn.turn))
    turn.transcript_request = ""


def supersede(turn: OpenTurn, request: str | None, reason: str, out: Out) -> None:
    if request:
        out.append(Decision(RequestSuperseded(request=request, reason=reason), turn.turn))


def resume(state: TurnState, turn: OpenTurn, out: Out) -> None:
    """Speech goes on: what was asked about the pause is not wanted any more."""
    supersede(turn, turn.endpoint_request, "speech resumed", out)
    supersede(turn, turn.transcript_request, "speech resumed", out)
    if turn.text is not None:
        if state.end_sample - turn.audio_start > samples(COMMIT_AFTER):
            turn.texts.append(turn.text)
            turn.audio_start, turn.audio_start_us = turn.transcript_end, turn.transcript_end_us
            turn.earlier = None
        else:
            turn.earlier = turn.text
    turn.asked = turn.endpoint_failed = turn.deadline_told = False
    turn.probability = turn.endpoint_request = turn.transcript_request = turn.text = None
    turn.settled = turn.wording = turn.held_until = None
