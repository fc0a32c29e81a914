"""Interruption: the one place that decides to stop the assistant. Everything else asks it by an event.

    state       what happens                                                    →
    --------    -------------------------------------------------------------   ------------------------------------------
    clear       user speech starts while a response is played                   overlap (overlap.started)
    clear       a device offers words, said while a response is played          overlap (overlap.started)
    overlap     voiced for overlap.pause_after without a pause                  paused (floor.paused)
    overlap/    voiced for overlap.interrupt_after without a pause              cancelled: interruption
      paused    words (operators.judgement)                                     cancelled: interruption, with its kind
                                                                                resumed: backchannel, side_talk, noise
                words that are the assistant's own (operators.own_speech)       resumed: echo
                the rules are not sure, overlap.backchannel_model is on         asked (backchannel.requested)
                interruption, but the response or policy forbids it             resumed: interruption, answered after
                overlap.resume_within without evidence                          resumed; a late transcript still decides
                its turn ends without words                                     resumed: inconclusive
                the response is over                                            clear: inconclusive, a normal user turn
    asked       the classifier's answer, its failure, or its deadline           as with words
    any         a turn with words ends before the response was started          cancelled: superseded
    any         typed text                                                      cancelled: interruption (redirect)
    any         the session closes                                              cancelled: session closed

A voice far below the user's usual level neither pauses nor interrupts by its length; hops that echo the playback are no voice.
An accepted stop raises the epoch. What was heard is taken from the acknowledgements and the time since (operators.speaking).
"""

from collections.abc import Sequence

from operators.heard import words
from operators.interrupt_state import InterruptState, Overlap
from operators.judgement import Judgement, judge_words, just_asked
from operators.offers import is_late, said_from
from operators.own_speech import EVENTS as OWN_EVENTS
from operators.own_speech import is_echo
from operators.reducer import EVERY_HOP, NEVER, Decision, Decisions, Hop, Out
from operators.speaking import EVENTS, Speaking
from operators.words import is_only, lists_for, phrases, starts_with
from schemas.envelope import Event
from schemas.perception import PerceptionWindow
from schemas.responses import ResponseCancelled
from schemas.transcription import BackchannelRequested, RequestSuperseded, RequestTimedOut
from schemas.turns import FloorPaused, FloorResumed, OverlapResolved, OverlapStarted

ASSISTANT_CHARS = 200
"""Of the assistant's last words, for the classifier."""


class Interrupt:
    """See the module."""

    name = "interrupt"
    version = 1
    handles = (
        EVENTS
        | OWN_EVENTS
        | {
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "speech.started",
            "speech.stopped",
            "endpoint.predicted",
            "transcript.final",
            "transcript.offered",
            "backchannel.requested",
            "backchannel.predicted",
            "backchannel.failed",
            "turn.started",
            "turn.ended",
            "text.input",
            "response.requested",
            "response.prepared",
        }
    )

    def initial(self, session: str) -> InterruptState:
        return InterruptState()

    # --- time

    def advance(self, state: InterruptState, now: int, hop: Hop | None) -> Decisions:
        out: Out = []
        overlap, speaking = state.overlap, state.speaking
        if hop is not None:
            self._hear(state, hop)
        if overlap is not None and speaking is not None:
            self._overlap_goes_on(state, speaking, overlap, now, out)
        self._set_alarm(state)
        return out

    def skims(self, state: InterruptState, windows: Sequence[PerceptionWindow], now: int) -> int:
        return len(windows) if state.overlap is None else 0

    def skim(self, state: InterruptState, windows: Sequence[PerceptionWindow]) -> None:
        for window in windows:
            if window.probabilities is not None and not is_echo(window, state.policy.echo):
                for probability in window.probabilities:
                    if probability >= state.policy.vad.deactivation:
                        state.hear_level(window.level_db)

    @staticmethod
    def _hear(state: InterruptState, hop: Hop) -> None:
        policy, overlap = state.policy, state.overlap
        if overlap is not None and hop.echo is not None:
            overlap.echo = max(overlap.echo or 0.0, hop.echo)
        if is_echo(hop, policy.echo) or hop.probability is None:
            return
        if hop.probability >= policy.vad.deactivation:
            state.listen(hop)

    def _overlap_goes_on(
        self, state: InterruptState, speaking: Speaking, overlap: Overlap, now: int, out: Out
    ) -> None:
        policy = state.policy.overlap
        drop = state.drop_db(overlap)
        aside = bool(policy.side_talk_drop) and drop is not None and drop >= policy.side_talk_drop
        if now >= overlap.request_deadline and overlap.pending is not None:
            waited = now - overlap.asked_at
            timed_out = RequestTimedOut(
                request=overlap.request or "", kind="backchannel", waited_us=waited
            )
            out.append(Decision(timed_out, speaking.response))
            overlap.request = None
            self._resolve(state, speaking, overlap, now, overlap.pending, out)
        elif overlap.burst_us >= policy.interrupt_after and not aside:
            spoke_on = Judgement("interruption", "redirect", "spoke on over the assistant", 0.7)
            self._resolve(state, speaking, overlap, now, spoke_on, out)
        elif (
            overlap.burst_us >= policy.pause_after
            and state.may_stop
            and not (overlap.paused or overlap.resumed or aside)
        ):
            overlap.paused = True
            data = FloorPaused(response=speaking.response, overlap=overlap.overlap)
            out.append(Decision(data, speaking.response))
        elif now >= overlap.deadline:
            # Playback must go on, but what the words were may still be said by a slow transcript.
            overlap.deadline, overlap.resumed = NEVER, True
            self._resume(speaking, overlap, out)

    @staticmethod
    def _set_alarm(state: InterruptState) -> None:
        state.alarm = EVERY_HOP if state.overlap is not None or state.voice else NEVER

    # --- events

    def step(self, state: InterruptState, event: Event, now: int) -> Decisions:
        out: Out = []
        if event.type in OWN_EVENTS:
            state.own.observe(event, now)
        if event.type in EVENTS:
            if state.speaking is not None:
                state.speaking.observe(event, now)
        elif event.type.startswith("session."):
            self._session(state, event, now, out)
        elif event.type.startswith("response."):
            self._response(state, event, out)
        elif event.type.startswith("backchannel."):
            self._classified(state, event, now, out)
        else:
            self._user(state, event, now, out)
        self._set_alarm(state)
        return out

    def _session(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        match event.type:
            case "session.configured":
                state.policy, state.language = event.data.policy, event.data.language
                state.acknowledged = event.data.playback == "acknowledged"
            case "session.updated":
                state.policy = state.policy.with_accepted(event.data.policy)
            case _:
                self._stop(state, "session closed", now, out)

    def _response(self, state: InterruptState, event: Event, out: Out) -> None:
        data, speaking = event.data, state.speaking
        if event.type in ("response.requested", "response.prepared"):
            if getattr(data, "attempt", 1) == 1:
                interval = state.policy.playback.ack_interval
                state.speaking = Speaking(data.response, interval, state.acknowledged)
                state.interruptible = getattr(data, "interruptible", True)
        elif speaking is not None and speaking.response == data.response:
            over = Judgement("inconclusive", None, "the response was over", 0.5)
            self._end_overlap(state, speaking, over, out)
            state.speaking = None

    def _user(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        match event.type:
            case "speech.started":
                state.voice = True
                if state.overlap is not None:
                    state.overlap.burst_us = max(0, now - event.data.start_us)
                self._overlap(state, event.data.start_us, now, out)
            case "speech.stopped":
                state.voice = False
            case "endpoint.predicted":
                state.endpoint = event.data.probability
            case "transcript.final":
                self._words(state, event.data.text, now, out)
            case "transcript.offered":
                self._offered(state, event, now, out)
            case "turn.started":
                state.turn_open = state.turn_open or event.data.by != "text"
            case "turn.ended":
                self._turn_ended(state, event, now, out)
            case "text.input" if state.may_stop:
                self._stop(state, "text.input", now, out)

    def _overlap(self, state: InterruptState, start: int, now: int, out: Out) -> None:
        speaking = state.speaking
        if speaking is None or not speaking.started or state.overlap is not None:
            return
        state.count += 1
        state.endpoint = None
        voiced = max(0, now - start) if state.voice else 0
        deadline = start + state.policy.overlap.resume_within
        state.overlap = Overlap(f"overlap-{state.count}", start, voiced, voiced, deadline)
        data = OverlapStarted(
            overlap=state.overlap.overlap, response=speaking.response, start_us=start
        )
        out.append(Decision(data, speaking.response))

    def _offered(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        """A device's own words: with them an overlap needs no voice activity; an interim text is enough to stop."""
        data, said = event.data, words(event.data.text)
        late = not state.turn_open and is_late(
            data, state.turn_end, state.turn_ended_at, now, state.policy.turn.transcript_deadline
        )
        if not said or late or state.speaking is None or not state.speaking.started:
            return
        self._overlap(state, said_from(data, now, state.turn_end), now, out)
        if data.final or starts_with(said, lists_for(state.language).stops):
            self._words(state, data.text, now, out)

    def _words(self, state: InterruptState, text: str, now: int, out: Out) -> None:
        """What was said over the assistant decides."""
        overlap, speaking, policy = state.overlap, state.speaking, state.policy
        if overlap is None or speaking is None:
            return
        heard = speaking.text_until(speaking.heard_us(now))
        if state.own.is_own(text, overlap.start_us, now, overlap.echo, policy.echo):
            judged = Judgement("echo", None, "the assistant's own words", 0.8)
        elif is_only(words(text), phrases(policy.turn.ignore_words)):
            judged = Judgement("noise", None, f"ignored words {text[:40]!r}", 0.9)
        else:
            judged = judge_words(
                text,
                lists_for(state.language),
                policy.overlap,
                asked=just_asked(heard),
                drop_db=state.drop_db(overlap),
                endpoint=state.endpoint,
            )
            if policy.overlap.backchannel_model and not judged.certain:
                self._ask(state, speaking, overlap, judged, text, heard, now, out)
                return
        self._resolve(state, speaking, overlap, now, judged, out)

    def _turn_ended(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        data, speaking, overlap = event.data, state.speaking, state.overlap
        if data.reason != "text":
            state.turn_open, state.turn_end, state.turn_ended_at = False, data.end_us, now
        if speaking is None:
            return
        if not speaking.started:
            if data.text and data.reply:
                self._cancel(state, speaking, "superseded", now, out)
        elif overlap is not None and overlap.pending is None and data.reason != "text":
            if data.text:
                self._words(state, data.text, now, out)
            else:
                nothing = Judgement("inconclusive", None, "the turn has no words", 0.5)
                self._resolve(state, speaking, overlap, now, nothing, out)

    # --- the learned classifier, where the policy wants one

    @staticmethod
    def _ask(
        state: InterruptState,
        speaking: Speaking,
        overlap: Overlap,
        judged: Judgement,
        text: str,
        heard: str,
        now: int,
        out: Out,
    ) -> None:
        if overlap.request:
            superseded = RequestSuperseded(request=overlap.request, reason="more was said")
            out.append(Decision(superseded, speaking.response))
        overlap.pending, overlap.request, overlap.asked_at = judged, None, now
        overlap.request_deadline = now + state.policy.overlap.backchannel_within
        data = BackchannelRequested(
            overlap=overlap.overlap,
            response=speaking.response,
            text=text,
            assistant=heard[-ASSISTANT_CHARS:],
            speech_us=overlap.voiced_us,
            language=state.language,
        )
        out.append(Decision(data, speaking.response))

    def _classified(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        overlap, speaking = state.overlap, state.speaking
        if overlap is None or speaking is None or overlap.pending is None:
            return
        if event.type == "backchannel.requested":
            if event.data.overlap == overlap.overlap:
                overlap.request = event.id
            return
        if event.cause != overlap.request:
            return
        overlap.request, judged = None, overlap.pending
        if event.type == "backchannel.predicted":
            p = event.data.probability
            evidence = f"{judged.evidence}, classifier {p:.2f}"
            if p >= state.policy.overlap.backchannel_threshold:
                judged = Judgement("backchannel", None, evidence, p)
            elif judged.verdict == "backchannel":
                judged = Judgement("interruption", "redirect", evidence, 1 - p)
            else:
                judged = judged._replace(evidence=evidence, confidence=1 - p)
        self._resolve(state, speaking, overlap, now, judged, out)

    # --- what follows from a verdict

    def _resolve(
        self,
        state: InterruptState,
        speaking: Speaking,
        overlap: Overlap,
        now: int,
        judged: Judgement,
        out: Out,
    ) -> None:
        self._end_overlap(state, speaking, judged, out)
        if judged.verdict == "interruption" and state.may_stop:
            self._cancel(state, speaking, f"interruption: {judged.evidence}", now, out)
        else:
            self._resume(speaking, overlap, out)

    @staticmethod
    def _resume(speaking: Speaking, overlap: Overlap, out: Out) -> None:
        if overlap.paused:
            overlap.paused = False
            data = FloorResumed(response=speaking.response, overlap=overlap.overlap)
            out.append(Decision(data, speaking.response))

    @staticmethod
    def _end_overlap(
        state: InterruptState, speaking: Speaking, judged: Judgement, out: Out
    ) -> None:
        overlap = state.overlap
        if overlap is None:
            return
        state.overlap = None
        if overlap.request:
            superseded = RequestSuperseded(request=overlap.request, reason="the overlap is over")
            out.append(Decision(superseded, speaking.response))
        data = OverlapResolved(
            overlap=overlap.overlap,
            response=speaking.response,
            verdict=judged.verdict,
            kind=judged.kind,
            evidence=judged.evidence,
            confidence=judged.confidence,
            speech_us=overlap.voiced_us,
        )
        out.append(Decision(data, speaking.response))

    def _stop(self, state: InterruptState, reason: str, now: int, out: Out) -> None:
        """Stop whatever is under way, for a reason that needs no judgement."""
        speaking = state.speaking
        if speaking is not None:
            self._end_overlap(state, speaking, Judgement("inconclusive", None, reason, 1.0), out)
            self._cancel(state, speaking, reason, now, out)

    @staticmethod
    def _cancel(state: InterruptState, speaking: Speaking, reason: str, now: int, out: Out) -> None:
        state.epoch += 1
        heard_us = speaking.heard_us(now)
        data = ResponseCancelled(
            response=speaking.response,
            epoch=state.epoch,
            reason=reason,
            heard_text=speaking.text_until(heard_us),
            heard_us=heard_us,
        )
        out.append(Decision(data, speaking.response))
        state.speaking = None
