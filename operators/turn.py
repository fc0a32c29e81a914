"""Turns: when the user begins and ends one. The only authority on it; models and devices advise.

Three layers, each an event: raw speech activity (`speech.started/stopped`), proposals (the endpoint model's prediction, the transcript,
the device's commit), and one decision per turn (`turn.ended`).

    state      what happens                                             →
    -------    ------------------------------------------------------   -----------------------------------------
    idle       speech starts                                            open (turn.started)
    idle       typed text                                               idle (turn.started, turn.ended)
    open       silence reaches endpoint.ask_after                       asked (endpoint.requested, transcript.requested)
    asked      speech resumes                                           open (both requests superseded)
    asked      endpoint says complete; silence ≥ turn.end_silence       settled: complete
    asked      endpoint says more will come                             held (turn.held)
    asked      no answer by endpoint.give_up_after, or it failed        settled: no_prediction
    held       silence reaches turn.hold_max                            settled: hold_expired
    open       turn.longest / media idle / commit / session closed      settled at once
    settled    transcript there, failed, or not needed                  idle (turn.ended)
    settled    no transcript by turn.transcript_deadline                settled (request.timed_out), waits on
    settled    turn.watchdog                                            idle (turn.ended without its text)

All silence is measured from where the speech fell silent. A transcript is asked anew for the whole unsettled audio of the turn at each
pause, so that it sees whole sentences; once that grows beyond `COMMIT_AFTER` what has been transcribed stays, and the next begins there.
"""

from operators.reducer import Decision, Decisions, Hop, Out
from operators.turn_state import OpenTurn, TurnState
from schemas.base import SAMPLE_RATE, WINDOW_US
from schemas.envelope import Event
from schemas.perception import AudioSpan
from schemas.policy import Policy
from schemas.transcription import (
    EndpointRequested,
    RequestSuperseded,
    RequestTimedOut,
    TranscriptRequested,
)
from schemas.turns import (
    EndReason,
    SpeechStarted,
    SpeechStopped,
    TurnAmended,
    TurnEnded,
    TurnHeld,
    TurnStarted,
)

COMMIT_AFTER = 15_000_000
"""Audio beyond which a transcript that has come is final for its part of the turn (the model hears at most 30 s)."""

CLOSED_WAIT = 500_000
"""Time after the close by which its last windows have come, or will not."""

S = 1_000_000


class Turn:
    """See the module."""

    name = "turn"
    version = 1
    handles = frozenset(
        {
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "endpoint.requested",
            "endpoint.predicted",
            "endpoint.failed",
            "transcript.requested",
            "transcript.final",
            "transcript.failed",
            "text.input",
            "input.committed",
            "input.muted",
            "input.unmuted",
        }
    )

    def initial(self, session: str) -> TurnState:
        return TurnState()

    # --- time

    def advance(self, state: TurnState, now: int, hop: Hop | None) -> Decisions:
        out: Out = []
        if hop is not None:
            self._hear(state, hop, out)
        elif state.activity.active and now - state.heard_until >= state.policy.turn.media_idle:
            self._stopped(state, state.activity.silence_start or state.heard_until, out)
        if state.activity.active and state.closed_at is not None and self._media_over(state, now):
            self._stopped(state, state.activity.silence_start or state.heard_until, out)
        if state.turn is not None:
            self._check(state, state.turn, max(now, state.heard_until), out)
        return out

    @staticmethod
    def _media_over(state: TurnState, now: int) -> bool:
        """Whether all that was said before the close has been heard: its last windows come after it in a live session."""
        closed = state.closed_at
        return closed is not None and (
            state.heard_until + 2 * WINDOW_US >= closed or now >= closed + CLOSED_WAIT
        )

    def _hear(self, state: TurnState, hop: Hop, out: Out) -> None:
        if hop.epoch != state.epoch and state.activity.active:
            self._stopped(state, state.activity.silence_start or state.heard_until, out)
        state.epoch, state.end_sample, state.heard_until = hop.epoch, hop.end_sample, hop.end_us
        activity = state.activity
        silent_before = activity.silence_start
        probability = 0.0 if state.muted else hop.probability
        transition = activity.step(state.policy.vad, probability, hop.start_us, hop.end_us)
        if transition == "started":
            self._started(state, out)
        elif transition == "stopped":
            out.append(
                Decision(
                    SpeechStopped(start_us=activity.start, end_us=activity.stop), state.turn_id
                )
            )
        elif (
            silent_before is not None and activity.silence_start is None and state.turn is not None
        ):
            self._resumed(state, state.turn, out)

    def _started(self, state: TurnState, out: Out) -> None:
        start = state.activity.start
        turn = state.turn
        if turn is not None and turn.epoch != state.epoch:
            # The turn's samples belong to a format that is gone; end it with what is known of it.
            self._end(state, turn, "media_idle", out)
            turn = None
        if turn is None:
            state.count += 1
            begin_us = max(start - state.policy.vad.pre_roll, state.last_turn_end, 0)
            begin = max(0, state.end_sample - _samples(state.heard_until - begin_us))
            turn = state.turn = OpenTurn(f"turn-{state.count}", start, state.epoch, begin, begin_us)
            out.append(Decision(SpeechStarted(start_us=start), turn.turn))
            out.append(
                Decision(TurnStarted(turn=turn.turn, start_us=start, by="speech"), turn.turn)
            )
            return
        out.append(Decision(SpeechStarted(start_us=start), turn.turn))
        self._resumed(state, turn, out)

    def _stopped(self, state: TurnState, at_us: int, out: Out) -> None:
        state.activity.close(at_us)
        out.append(
            Decision(SpeechStopped(start_us=state.activity.start, end_us=at_us), state.turn_id)
        )

    def _resumed(self, state: TurnState, turn: OpenTurn, out: Out) -> None:
        """Speech goes on: what was asked about the pause is not wanted any more."""
        if turn.settled in ("longest", "committed", "closed"):
            return
        for request in (turn.endpoint_request, turn.transcript_request):
            if request is not None:
                out.append(
                    Decision(RequestSuperseded(request=request, reason="speech resumed"), turn.turn)
                )
        if turn.text is not None and state.end_sample - turn.audio_start > _samples(COMMIT_AFTER):
            turn.texts.append(turn.text)
            turn.audio_start, turn.audio_start_us = turn.transcript_end, turn.transcript_end_us
        turn.asked = turn.held = turn.endpoint_failed = turn.deadline_told = False
        turn.probability = turn.endpoint_request = turn.transcript_request = turn.text = None
        turn.settled = None

    def _check(self, state: TurnState, turn: OpenTurn, now: int, out: Out) -> None:
        """Work off every deadline that `now` has reached."""
        policy = state.policy
        if turn.settled is None and now - turn.start_us >= policy.turn.longest:
            self._settle(state, turn, "longest", now, out)
        if state.closed_at is not None:
            if turn.settled is None and self._media_over(state, now):
                self._settle(state, turn, "closed", now, out)
            if now >= state.closed_at + policy.session.drain:
                self._end(state, turn, turn.settled or "closed", out)
                return
        silent_since = state.silent_since
        if turn.settled is None and silent_since is not None:
            # A voice that has just begun may be the turn going on: silence does not grow until it is known.
            silence = (state.activity.stirring or now) - silent_since
            if not turn.asked and silence >= policy.endpoint.ask_after:
                self._ask(state, turn, now, out, endpoint=True)
            if turn.asked:
                reason = self._judge(turn, policy, silence)
                if reason is not None:
                    turn.settled, turn.settled_at = reason, silent_since
        if turn.settled is not None:
            self._conclude(state, turn, turn.settled, now, out)

    @staticmethod
    def _judge(turn: OpenTurn, policy: Policy, silence: int) -> EndReason | None:
        """Whether a turn that has been silent for so long is over, and why."""
        if silence < policy.turn.end_silence:
            return None
        if turn.probability is not None:
            if turn.probability > policy.endpoint.threshold:
                return "complete"
            return "hold_expired" if silence >= policy.turn.hold_max else None
        if turn.endpoint_failed or silence >= policy.endpoint.give_up_after:
            return "no_prediction"
        return None

    def _settle(
        self, state: TurnState, turn: OpenTurn, reason: EndReason, now: int, out: Out
    ) -> None:
        """The turn is over whatever the models say; only its transcript is awaited."""
        turn.settled, turn.settled_at = reason, state.silent_since or now
        if reason in ("longest", "committed", "closed"):
            turn.settled_at = now
        if not turn.asked:
            self._ask(state, turn, now, out, endpoint=False)

    def _conclude(
        self, state: TurnState, turn: OpenTurn, reason: EndReason, now: int, out: Out
    ) -> None:
        policy = state.policy.turn
        waited = now - turn.settled_at
        if turn.transcript_request is None:
            self._end(state, turn, reason, out)
        elif waited >= policy.watchdog:
            self._end(state, turn, "watchdog", out)
        elif waited >= policy.transcript_deadline and not turn.deadline_told:
            turn.deadline_told = True
            data = RequestTimedOut(
                request=turn.transcript_request, kind="transcript", waited_us=waited
            )
            out.append(Decision(data, turn.turn))

    def _ask(self, state: TurnState, turn: OpenTurn, now: int, out: Out, *, endpoint: bool) -> None:
        turn.asked = True
        turn.transcript_end, turn.transcript_end_us = state.end_sample, state.heard_until
        if endpoint:
            first = max(
                turn.audio_start, state.end_sample - _samples(state.policy.endpoint.max_audio)
            )
            span = AudioSpan(
                channel=state.channel,
                epoch=turn.epoch,
                first_sample=first,
                end_sample=state.end_sample,
            )
            out.append(Decision(EndpointRequested(turn=turn.turn, audio=span), turn.turn))
            turn.endpoint_request = ""
        span = AudioSpan(
            channel=state.channel,
            epoch=turn.epoch,
            first_sample=turn.audio_start,
            end_sample=state.end_sample,
        )
        data = TranscriptRequested(
            turn=turn.turn, audio=span, start_us=turn.audio_start_us, language=state.language
        )
        out.append(Decision(data, turn.turn))
        turn.transcript_request = ""

    def _end(self, state: TurnState, turn: OpenTurn, reason: EndReason, out: Out) -> None:
        for request in (turn.endpoint_request, turn.transcript_request):
            if request:
                state.awaited[request] = turn.turn
        if turn.endpoint_request:
            out.append(
                Decision(
                    RequestSuperseded(request=turn.endpoint_request, reason="turn ended"), turn.turn
                )
            )
        end = state.silent_since
        end = state.heard_until if end is None else end
        text = " ".join(part for part in (*turn.texts, turn.text or "") if part)
        ended = TurnEnded(
            turn=turn.turn,
            start_us=turn.start_us,
            end_us=max(end, turn.start_us),
            text=text,
            reason=reason,
            probability=turn.probability,
            reply=turn.reply,
        )
        out.append(Decision(ended, turn.turn))
        state.turn = None
        state.last_turn_end = max(end, turn.start_us)
        if state.activity.active and state.activity.silence_start is None and reason == "longest":
            # The user goes on: the next turn begins where this one was cut.
            state.activity.start = state.heard_until
            self._started(state, out)

    # --- events

    def step(self, state: TurnState, event: Event, now: int) -> Decisions:
        out: Out = []
        handler = getattr(self, "_on_" + event.type.replace(".", "_"))
        handler(state, event, now, out)
        return out

    def _on_session_configured(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.policy = event.data.policy
        state.channel = event.data.channel
        state.language = event.data.language

    def _on_session_updated(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.policy = state.policy.with_accepted(event.data.policy)

    def _on_session_closed(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.closed_at = now

    _on_session_timed_out = _on_session_closed

    def _on_endpoint_requested(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        if state.turn is not None and state.turn.endpoint_request == "":
            state.turn.endpoint_request = event.id

    def _on_transcript_requested(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        if state.turn is not None and state.turn.transcript_request == "":
            state.turn.transcript_request = event.id

    def _on_endpoint_predicted(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        turn = state.turn
        if turn is None or event.cause != turn.endpoint_request:
            state.awaited.pop(event.cause or "", None)
            return
        turn.endpoint_request = None
        turn.probability = event.data.probability
        if turn.probability <= state.policy.endpoint.threshold and turn.settled is None:
            turn.held = True
            until = (state.silent_since or now) + state.policy.turn.hold_max
            held = TurnHeld(turn=turn.turn, probability=turn.probability, until_us=until)
            out.append(Decision(held, turn.turn))
        self._check(state, turn, now, out)

    def _on_endpoint_failed(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        turn = state.turn
        if turn is None or event.cause != turn.endpoint_request:
            state.awaited.pop(event.cause or "", None)
            return
        turn.endpoint_request = None
        turn.endpoint_failed = True
        self._check(state, turn, now, out)

    def _on_transcript_final(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        turn = state.turn
        if turn is None or event.cause != turn.transcript_request:
            late_for = state.awaited.pop(event.cause or "", None)
            if late_for is not None and event.data.text:
                out.append(Decision(TurnAmended(turn=late_for, text=event.data.text), late_for))
            return
        turn.transcript_request = None
        turn.text = event.data.text
        self._check(state, turn, now, out)

    def _on_transcript_failed(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        turn = state.turn
        if turn is None or event.cause != turn.transcript_request:
            state.awaited.pop(event.cause or "", None)
            return
        turn.transcript_request = None
        self._check(state, turn, now, out)

    def _on_text_input(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.count += 1
        name = f"turn-{state.count}"
        out.append(Decision(TurnStarted(turn=name, start_us=now, by="text"), name))
        ended = TurnEnded(
            turn=name, start_us=now, end_us=now, text=event.data.text.strip(), reason="text"
        )
        out.append(Decision(ended, name))

    def _on_input_committed(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        turn = state.turn
        if turn is None:
            return
        turn.reply = event.data.reply
        if turn.settled is None:
            self._settle(state, turn, "committed", now, out)
        if state.activity.active:
            # Whoever goes on speaking after the commit begins anew.
            self._stopped(state, state.heard_until, out)
        self._check(state, turn, now, out)

    def _on_input_muted(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.muted = True
        if state.activity.active:
            self._stopped(state, state.activity.silence_start or state.heard_until, out)

    def _on_input_unmuted(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        state.muted = False


def _samples(duration_us: int) -> int:
    return duration_us * SAMPLE_RATE // S
