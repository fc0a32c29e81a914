"""Turns: when the user begins and ends one. The only authority on it; models and devices advise.

Three layers, each an event: raw speech activity (`speech.started/stopped`), proposals (the endpoint model's prediction, the transcript,
the device's commit), and one decision per turn (`turn.ended`).

    state      what happens                                             →
    -------    ------------------------------------------------------   -----------------------------------------
    idle       speech starts                                            open (turn.started)
    idle       a device offers words that voice activity missed         open, by transcript (turn.started)
    any        typed text                                               as it was (turn.started, turn.ended of its own)
    open       no more words for turn.offered_silence, by transcript    settled: transcript
    open       silence reaches endpoint.ask_after                       asked (endpoint.requested, transcript.requested)
    asked      speech resumes                                           open (both requests superseded)
    asked      endpoint says complete; silence ≥ turn.end_silence       settled: complete
    asked      endpoint says more will come                             held (turn.held)
    asked      no answer by endpoint.give_up_after, or it failed        settled: no_prediction
    settled    complete, but the words break off or end in digits       held (turn.held)
    held       the words do not break off; silence ≥ turn.hold_doubt    settled: hold_expired
    held       silence reaches turn.hold_max                            settled: hold_expired
    open       turn.longest / media idle / commit / session closed      settled at once
    settled    transcript there, failed, or not needed                  idle (turn.ended)
    settled    no transcript by turn.transcript_deadline                settled (request.timed_out), waits on
    settled    the same, but the device has offered words               idle (turn.ended)
    settled    turn.watchdog                                            idle (turn.ended without its text)

With `turn.push_to_talk`, silence settles nothing; the device's commit does. Speech within `turn.reopen_within` of a turn that nobody
has heard an answer to continues it: another turn, which says so (`continues`), and both get one reply. Hops that echo the playback
are silence, and words that are the assistant's own, or that the policy ignores, are not taken as the user's (`ignored`).
Sound and words both speak on a turn's end (`operators.wording`): a voice at rest after "a flight from" has not finished, and a voice
that seems to go on after a whole sentence is waited for only a little. Words that come after their deadline hold nothing up.

All silence is measured from where the speech fell silent. A transcript is asked anew for the whole unsettled audio of the turn at each
pause, so that it sees whole sentences; once that grows beyond `COMMIT_AFTER` what has been transcribed stays, and the next begins there.
"""

from typing import Literal

from operators.closing import media_over
from operators.offers import is_late, said_from, said_until
from operators.own_speech import EVENTS as OWN_EVENTS
from operators.own_speech import is_echo
from operators.reducer import Decision, Decisions, Hop, Out
from operators.turn_requests import ask, resume, supersede
from operators.turn_silence import continued, hold, how_it_ended, is_the_users, weigh
from operators.turn_skim import skim, skims
from operators.turn_state import LastTurn, OpenTurn, TurnState, samples
from operators.wording import wording
from schemas.envelope import Event
from schemas.transcription import RequestTimedOut, TranscriptOffered
from schemas.turns import (
    EndReason,
    SpeechStarted,
    SpeechStopped,
    TurnAmended,
    TurnEnded,
    TurnStarted,
)

FORCED = frozenset({"longest", "committed", "closed"})
"""Reasons that speech which goes on does not take back."""


class Turn:
    """See the module."""

    name = "turn"
    version = 1
    handles = OWN_EVENTS | frozenset(
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
            "transcript.offered",
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
        if state.activity.active and media_over(state.closed_at, state.heard_until, now):
            self._stopped(state, state.activity.silence_start or state.heard_until, out)
        if state.turn is not None:
            self._check(state, state.turn, max(now, state.heard_until), out)
        state.looked_at = None if out else max(now, state.heard_until)
        state.calm_until = None
        return out

    skims, skim = staticmethod(skims), staticmethod(skim)

    def _hear(self, state: TurnState, hop: Hop, out: Out) -> None:
        if hop.epoch != state.epoch and state.activity.active:
            self._stopped(state, state.activity.silence_start or state.heard_until, out)
        state.epoch, state.end_sample, state.heard_until = hop.epoch, hop.end_sample, hop.end_us
        activity = state.activity
        silent_before = activity.silence_start
        probability = hop.probability
        if state.muted or (hop.echo is not None and is_echo(hop, state.policy.echo)):
            probability = 0.0
        if hop.echo is not None and state.turn is not None:
            state.turn.echo = max(state.turn.echo or 0.0, hop.echo)
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
        begin_us = max(start - state.policy.vad.pre_roll, state.last_turn_end, 0)
        begin = max(0, state.end_sample - samples(state.heard_until - begin_us))
        if turn is None:
            opened: Out = []
            turn = self._open(state, start, "speech", opened)
            turn.audio_start, turn.audio_start_us = begin, begin_us
            last = continued(state, start)
            forgotten = last is None or start - last.end_us >= state.policy.endpoint.forget_after
            turn.context_start = begin if forgotten or last is None else last.context_start
            out.append(Decision(SpeechStarted(start_us=start), turn.turn))
            out += opened
            return
        out.append(Decision(SpeechStarted(start_us=start), turn.turn))
        if turn.by == "transcript":
            turn.by, turn.audio_start, turn.audio_start_us = "speech", begin, begin_us
            turn.context_start = begin
        elif start - state.activity.stop >= state.policy.endpoint.forget_after:
            turn.context_start = begin
        self._resumed(state, turn, out)

    def _open(
        self, state: TurnState, start: int, by: Literal["speech", "transcript"], out: Out
    ) -> OpenTurn:
        state.count += 1
        name = f"turn-{state.count}"
        turn = state.turn = OpenTurn(name, start, state.epoch, state.end_sample, start, by)
        last = continued(state, start)
        before = None if last is None else last.turn
        data = TurnStarted(turn=name, start_us=start, by=by, continues=before)
        out.append(Decision(data, name))
        return turn

    def _stopped(self, state: TurnState, at_us: int, out: Out) -> None:
        state.activity.close(at_us)
        out.append(
            Decision(SpeechStopped(start_us=state.activity.start, end_us=at_us), state.turn_id)
        )

    @staticmethod
    def _resumed(state: TurnState, turn: OpenTurn, out: Out) -> None:
        if turn.settled not in FORCED:
            resume(state, turn, out)

    def _check(self, state: TurnState, turn: OpenTurn, now: int, out: Out) -> None:
        """Work off every deadline that `now` has reached."""
        policy = state.policy
        if turn.settled is None and now - turn.start_us >= policy.turn.longest:
            self._settle(state, turn, "longest", now, out)
        if state.closed_at is not None:
            if turn.settled is None and media_over(state.closed_at, state.heard_until, now):
                self._settle(state, turn, "closed", now, out)
            if now >= state.closed_at + policy.session.drain:
                self._end(state, turn, turn.settled or "closed", out)
                return
        if turn.settled is None and not policy.turn.push_to_talk:
            weigh(state, turn, now, out)
        if turn.settled is not None:
            self._conclude(state, turn, turn.settled, now, out)

    def _settle(
        self, state: TurnState, turn: OpenTurn, reason: EndReason, now: int, out: Out
    ) -> None:
        """The turn is over whatever the models say; only its transcript is awaited."""
        turn.settled, turn.settled_at = reason, state.silent_since or now
        if reason in FORCED:
            turn.settled_at = now
        if not turn.asked:
            ask(state, turn, out, endpoint=False)

    def _conclude(
        self, state: TurnState, turn: OpenTurn, reason: EndReason, now: int, out: Out
    ) -> None:
        policy = state.policy.turn
        waited = now - turn.settled_at
        if turn.transcript_request is None:
            self._end(state, turn, reason, out)
            return
        if waited >= policy.transcript_deadline and not turn.deadline_told:
            turn.deadline_told = True
            data = RequestTimedOut(
                request=turn.transcript_request, kind="transcript", waited_us=waited
            )
            out.append(Decision(data, turn.turn))
        if turn.deadline_told and turn.offered:
            self._end(state, turn, reason, out)
        elif waited >= policy.watchdog:
            self._end(state, turn, "watchdog", out)

    def _end(self, state: TurnState, turn: OpenTurn, reason: EndReason, out: Out) -> None:
        for request in (turn.endpoint_request, turn.transcript_request):
            if request:
                state.await_late(request, turn.turn)
        supersede(turn, turn.endpoint_request, "turn ended", out)
        ended = how_it_ended(state, turn, reason)
        out.append(Decision(ended, turn.turn))
        state.turn, state.last_turn_end = None, ended.end_us
        state.last = LastTurn(
            turn.turn,
            turn.start_us,
            ended.end_us,
            max(state.heard_until, ended.end_us),
            turn.epoch,
            turn.context_start,
            turn.echo,
            ended.text,
            bool(ended.text) and turn.reply and reason not in FORCED,
        )
        if state.activity.active and state.activity.silence_start is None and reason == "longest":
            # The user goes on: the next turn begins where this one was cut.
            state.activity.start = state.heard_until
            self._started(state, out)

    # --- events

    def step(self, state: TurnState, event: Event, now: int) -> Decisions:
        out: Out = []
        if event.type in OWN_EVENTS:
            state.own.observe(event, now)
            if event.type == "response.started" and state.last is not None:
                state.last.may_continue = False
            if event.type != "session.configured":
                return out
        state.looked_at = None
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
        hold(state, turn, now, out)
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
                self._amend(state, late_for, event.data.text, out)
            return
        turn.transcript_request = None
        turn.text = event.data.text
        turn.wording = wording(turn.words(), state.language)
        hold(state, turn, now, out)
        self._check(state, turn, now, out)

    def _amend(self, state: TurnState, turn: str, text: str, out: Out) -> None:
        last = state.last
        if last is not None and last.turn == turn:
            if not is_the_users(state, text, last.start_us, last.echo):
                return
            last.text = text
        out.append(Decision(TurnAmended(turn=turn, text=text), turn))

    def _on_transcript_offered(self, state: TurnState, event: Event, now: int, out: Out) -> None:
        data: TranscriptOffered = event.data
        text, turn = data.text.strip(), state.turn
        if state.muted or state.closed_at is not None:
            return
        if turn is None:
            turn = self._offered_unheard(state, data, text, now, out)
            if turn is None:
                return
        turn.interim = "" if data.final else text
        if not text:
            return
        if data.final:
            turn.offered.append(text)
        turn.offered_at = now
        turn.offered_end = max(turn.offered_end, said_until(data, now, turn.start_us))
        self._check(state, turn, now, out)

    def _offered_unheard(
        self, state: TurnState, data: TranscriptOffered, text: str, now: int, out: Out
    ) -> OpenTurn | None:
        """Words where voice activity heard nothing: late ones of the turn before, an echo, or a turn that they open."""
        last, start = state.last, said_from(data, now, state.last_turn_end)
        lag = state.policy.turn.transcript_deadline
        if last is not None and is_late(data, last.end_us, last.ended_at, now, lag):
            if text and data.final and not last.text:
                self._amend(state, last.turn, text, out)
            return None
        if not text or not is_the_users(state, text, start, None):
            return None
        return self._open(state, start, "transcript", out)

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
        if state.last is not None:
            state.last.may_continue = False
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
