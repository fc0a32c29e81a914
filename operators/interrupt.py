"""Interruption: the one place that decides to stop the assistant. Everything else asks it by an event.

    state       what happens                                                    →
    --------    -------------------------------------------------------------   ------------------------------------------
    clear       user speech starts while a response is played                   overlap (overlap.started)
    overlap     voiced for overlap.pause_after                                  paused (floor.paused)
    overlap/    voiced for overlap.interrupt_after                              cancelled: interruption
      paused    words: a stop, a correction, anything that is no acknowledgement  cancelled: interruption, with its kind
                words: only acknowledgements, not answering a question          resumed: backchannel
                the same, but overlap.interruptible is off                      resumed: interruption, answered after
                no words                                                        resumed: noise
                overlap.resume_within without evidence                          resumed; a late transcript still decides
                its turn ends without words                                     resumed: inconclusive
                the response is over                                            clear: inconclusive, a normal user turn
    any         a turn with words ends before the response was started          cancelled: superseded
    any         typed text                                                      cancelled: interruption (redirect)
    any         the session closes                                              cancelled: session closed

An accepted stop raises the epoch. What was heard is taken from the acknowledgements and the time since (operators.speaking).
"""

from dataclasses import dataclass, field
from typing import Literal

from operators.heard import words
from operators.reducer import EVERY_HOP, NEVER, Decision, Decisions, Hop, Out
from operators.speaking import EVENTS, Speaking
from operators.words import lists_for, starts_with
from schemas.envelope import Event
from schemas.policy import Policy
from schemas.responses import ResponseCancelled
from schemas.turns import FloorPaused, FloorResumed, OverlapResolved, OverlapStarted

WORDS_PAST_A_QUESTION = 4
"""So many words after its question mark an acknowledgement still answers the question."""

Verdict = Literal["interruption", "backchannel", "side_talk", "noise", "inconclusive"]
Intent = Literal["stop", "repair", "redirect"]


@dataclass(slots=True)
class Overlap:
    """An overlap without a verdict."""

    overlap: str
    start_us: int
    voiced_us: int
    deadline: int
    paused: bool = False
    resumed: bool = False
    """Its time was up, and playback went on without a verdict."""


@dataclass(slots=True)
class InterruptState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    language: str = "en"
    acknowledged: bool = False
    speaking: Speaking | None = None
    overlap: Overlap | None = None
    count: int = 0
    epoch: int = 0


class Interrupt:
    """See the module."""

    name = "interrupt"
    version = 1
    handles = EVENTS | {
        "session.configured",
        "session.updated",
        "session.closed",
        "session.timed_out",
        "speech.started",
        "transcript.final",
        "turn.ended",
        "text.input",
        "response.requested",
        "response.prepared",
        "response.ended",
        "response.failed",
    }

    def initial(self, session: str) -> InterruptState:
        return InterruptState()

    def advance(self, state: InterruptState, now: int, hop: Hop | None) -> Decisions:
        out: Out = []
        overlap, speaking = state.overlap, state.speaking
        if overlap is None or speaking is None:
            state.alarm = NEVER
            return out
        policy = state.policy
        if (
            hop is not None
            and hop.probability is not None
            and hop.probability >= policy.vad.deactivation
        ):
            overlap.voiced_us += hop.end_us - hop.start_us
        if overlap.voiced_us >= policy.overlap.interrupt_after:
            self._resolve(
                state,
                speaking,
                overlap,
                now,
                "interruption",
                "redirect",
                "spoke on over the assistant",
                0.7,
                out,
            )
        elif (
            overlap.voiced_us >= policy.overlap.pause_after
            and not overlap.paused
            and not overlap.resumed
        ):
            overlap.paused = True
            out.append(
                Decision(
                    FloorPaused(response=speaking.response, overlap=overlap.overlap),
                    speaking.response,
                )
            )
        elif now >= overlap.deadline:
            self._out_of_time(speaking, overlap, out)
        return out

    def step(self, state: InterruptState, event: Event, now: int) -> Decisions:
        out: Out = []
        speaking = state.speaking
        if speaking is not None and event.type in EVENTS:
            speaking.observe(event, now)
            return out
        match event.type:
            case "session.configured":
                state.policy, state.language = event.data.policy, event.data.language
                state.acknowledged = event.data.playback == "acknowledged"
            case "session.updated":
                state.policy = state.policy.with_accepted(event.data.policy)
            case "response.requested" | "response.prepared":
                if getattr(event.data, "attempt", 1) == 1:
                    interval = state.policy.playback.ack_interval
                    state.speaking = Speaking(event.data.response, interval, state.acknowledged)
            case "response.ended" | "response.failed":
                self._over(state, out)
            case "speech.started":
                self._overlap(state, event, now, out)
            case "transcript.final":
                self._words(state, event.data.text, now, out)
            case "turn.ended":
                self._turn_ended(state, event, now, out)
            case "text.input" | "session.closed" | "session.timed_out":
                waits = event.type == "text.input" and not state.policy.overlap.interruptible
                if speaking is not None and not waits:
                    reason = "text.input" if event.type == "text.input" else "session closed"
                    self._end_overlap(state, speaking, "inconclusive", None, reason, 1.0, out)
                    self._cancel(state, speaking, reason, now, out)
        return out

    @staticmethod
    def _out_of_time(speaking: Speaking, overlap: Overlap, out: Out) -> None:
        """Playback must go on, but what the words were may still be said by a slow transcript."""
        overlap.deadline = NEVER
        overlap.resumed = True
        if overlap.paused:
            overlap.paused = False
            out.append(
                Decision(
                    FloorResumed(response=speaking.response, overlap=overlap.overlap),
                    speaking.response,
                )
            )

    def _overlap(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        speaking = state.speaking
        if speaking is None or not speaking.started or state.overlap is not None:
            return
        state.count += 1
        start = event.data.start_us
        deadline = start + state.policy.overlap.resume_within
        overlap = state.overlap = Overlap(
            f"overlap-{state.count}", start, max(0, now - start), deadline
        )
        state.alarm = EVERY_HOP
        data = OverlapStarted(overlap=overlap.overlap, response=speaking.response, start_us=start)
        out.append(Decision(data, speaking.response))

    def _words(self, state: InterruptState, text: str, now: int, out: Out) -> None:
        """The transcript of what was said over the assistant decides."""
        overlap, speaking = state.overlap, state.speaking
        if overlap is None or speaking is None:
            return
        said, lists = words(text), lists_for(state.language)
        quoted = f"words {' '.join(said[:8])!r}"
        if not said:
            self._resolve(state, speaking, overlap, now, "noise", None, "no words", 0.8, out)
        elif starts_with(said, lists.stops):
            self._resolve(state, speaking, overlap, now, "interruption", "stop", quoted, 0.95, out)
        elif all(word in lists.acknowledgements for word in said):
            if self._just_asked(speaking.text_until(speaking.heard_us(now))):
                self._resolve(
                    state,
                    speaking,
                    overlap,
                    now,
                    "interruption",
                    "redirect",
                    f"{quoted} answer a question",
                    0.7,
                    out,
                )
            else:
                self._resolve(state, speaking, overlap, now, "backchannel", None, quoted, 0.9, out)
        elif starts_with(said, lists.repairs):
            self._resolve(state, speaking, overlap, now, "interruption", "repair", quoted, 0.9, out)
        else:
            self._resolve(
                state, speaking, overlap, now, "interruption", "redirect", quoted, 0.85, out
            )

    @staticmethod
    def _just_asked(heard: str) -> bool:
        """Whether the assistant's last words were a question, or at most a few words past one."""
        after = max(heard.rfind("?"), heard.rfind("？"))
        return after >= 0 and len(words(heard[after + 1 :])) <= WORDS_PAST_A_QUESTION

    def _turn_ended(self, state: InterruptState, event: Event, now: int, out: Out) -> None:
        speaking = state.speaking
        if speaking is None:
            return
        if not speaking.started:
            if event.data.text and event.data.reply:
                self._cancel(state, speaking, "superseded", now, out)
        elif state.overlap is not None and not event.data.text:
            self._resolve(
                state,
                speaking,
                state.overlap,
                now,
                "inconclusive",
                None,
                "the turn has no words",
                0.5,
                out,
            )

    def _resolve(
        self,
        state: InterruptState,
        speaking: Speaking,
        overlap: Overlap,
        now: int,
        verdict: Verdict,
        kind: Intent | None,
        evidence: str,
        confidence: float,
        out: Out,
    ) -> None:
        self._end_overlap(state, speaking, verdict, kind, evidence, confidence, out)
        if verdict == "interruption" and state.policy.overlap.interruptible:
            self._cancel(state, speaking, f"interruption: {evidence}", now, out)
        elif overlap.paused:
            out.append(
                Decision(
                    FloorResumed(response=speaking.response, overlap=overlap.overlap),
                    speaking.response,
                )
            )

    @staticmethod
    def _end_overlap(
        state: InterruptState,
        speaking: Speaking,
        verdict: Verdict,
        kind: Intent | None,
        evidence: str,
        confidence: float,
        out: Out,
    ) -> None:
        overlap = state.overlap
        if overlap is None:
            return
        state.overlap, state.alarm = None, NEVER
        data = OverlapResolved(
            overlap=overlap.overlap,
            response=speaking.response,
            verdict=verdict,
            kind=kind,
            evidence=evidence,
            confidence=confidence,
            speech_us=overlap.voiced_us,
        )
        out.append(Decision(data, speaking.response))

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

    def _over(self, state: InterruptState, out: Out) -> None:
        if state.speaking is not None:
            self._end_overlap(
                state, state.speaking, "inconclusive", None, "the response was over", 0.5, out
            )
        state.speaking = None
