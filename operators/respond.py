"""The response: from a turn's end to the last word heard.

    state       what happens                                        →
    --------    -------------------------------------------------   ----------------------------------------------------
    idle        a turn with words ends                              thinking (response.requested)
    idle        somebody has asked for the floor (floor.requested)  thinking (response.prepared: its text is given)
    thinking    text comes                                          thinking (speech.requested for each finished sentence)
    thinking    its first speech is there, no user turn is open     speaking (response.started)
    thinking    its first speech is there, a user turn is open      thinking: held until that turn ends
    speaking    everything generated, synthesised and heard         idle (response.ended)
    any         nothing could be generated or synthesised           idle (response.failed), after bounded retries
    any         no sign of progress for response.watchdog           idle (response.failed)
    any         response.cancelled (decided by `interrupt` alone)   idle; what the user has said meanwhile is answered next

A turn that means delegated work alone (operators.intents) is not asked of the language model: `deliver` says what there is to say.
What the model delegates itself (operators.spans) is neither shown nor spoken.
At most one response is under way; turns that end meanwhile are queued and answered together. The history holds what was heard:
the user's turns in the order of their speech, and of each response the text up to the last word played (law 10).
"""

import re
from dataclasses import dataclass, field
from typing import Any

from operators.heard import words
from operators.intents import read_turn
from operators.reducer import NEVER, Decision, Decisions, Hop
from operators.spans import TextSpans, public_text
from operators.speaking import EVENTS, Speaking
from operators.words import is_only, lists_for
from operators.works import EVENTS as WORK_EVENTS
from operators.works import WorkBook
from schemas.envelope import Event
from schemas.floor import FloorRequested, ResponsePrepared
from schemas.policy import Policy
from schemas.responses import (
    HeardAmended,
    Message,
    ResponseEnded,
    ResponseFailed,
    ResponseRequested,
    ResponseStarted,
    SpeechRequested,
)

UNANSWERED = frozenset({"backchannel", "noise", "side_talk"})
"""Verdicts on overlaps that ask for no answer."""

_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])")
_SHORTEST = 12
"""Characters below which a sentence is spoken together with the next one."""


@dataclass(slots=True)
class Responding:
    """The response that is under way."""

    response: str
    turn: str | None
    messages: tuple[Message, ...]
    speaking: Speaking
    request: str | None = None
    attempt: int = 1
    text: str = ""
    """Generated text that has not been sent to the synthesis."""
    spans: TextSpans = field(default_factory=TextSpans)
    generated: bool = False
    sentences: int = 0
    speech_attempts: dict[int, int] = field(default_factory=dict)
    progress_at: int = 0


@dataclass(slots=True)
class HeardItem:
    """One item of the history; `response` is None for what the user said."""

    role: str
    content: str
    response: str | None = None
    turn: str | None = None


@dataclass(slots=True)
class RespondState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    acknowledged: bool = False
    history: list[HeardItem] = field(default_factory=list)
    queue: list[tuple[str, str]] = field(default_factory=list)
    """Turns (id, text) that have ended and wait for their answer."""
    floor: list[FloorRequested] = field(default_factory=list)
    """Who has asked for the floor, in order."""
    book: WorkBook = field(default_factory=WorkBook)
    language: str = "en"
    active: Responding | None = None
    last: Speaking | None = None
    """The response before, whose final acknowledgement may still come."""
    turn_open: bool = False
    turn: str = ""
    """The turn that is open or was the last."""
    overlap: str | None = None
    """The turn that overlaps the response and is not judged yet."""
    unanswered: set[str] = field(default_factory=set)
    """Open turns that were judged to want no answer."""
    cut_off: bool = False
    """The assistant was stopped during the present turn."""
    count: int = 0
    epoch: int = 0
    closed: bool = False


class Respond:
    """See the module."""

    name = "respond"
    version = 1
    handles = (
        EVENTS
        | WORK_EVENTS
        | {
            "floor.requested",
            "floor.withdrawn",
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "turn.started",
            "turn.ended",
            "turn.amended",
            "overlap.started",
            "overlap.resolved",
            "response.requested",
            "response.text",
            "generation.completed",
            "generation.failed",
            "response.cancelled",
            "response.ended",
            "response.failed",
        }
    )

    def initial(self, session: str) -> RespondState:
        return RespondState()

    def advance(self, state: RespondState, now: int, hop: Hop | None) -> Decisions:
        out: list[Decision] = []
        active = state.active
        if active is not None and now >= active.progress_at + state.policy.response.watchdog:
            self._fail(state, active, "timed_out: nothing came of it", now, out)
        self._check(state, now, out)
        return out

    def step(self, state: RespondState, event: Event, now: int) -> Decisions:
        out: list[Decision] = []
        active = state.active
        if event.type in EVENTS:
            self._on_speaking(state, event, now, out)
        elif event.type in WORK_EVENTS:
            state.book.observe(event, now)
            return out
        elif event.type.startswith(("generation.", "response.text")):
            if active is not None and event.cause == active.request:
                active.progress_at = now
                self._on_generation(state, active, event, now, out)
        else:
            self._on_other(state, event, now, out)
        self._check(state, now, out)
        return out

    def _on_other(self, state: RespondState, event: Event, now: int, out: list[Decision]) -> None:
        active, data = state.active, event.data
        match event.type:
            case "session.configured":
                state.policy, state.acknowledged = data.policy, data.playback == "acknowledged"
                state.language = data.language
            case "session.updated":
                state.policy = state.policy.with_accepted(data.policy)
            case "session.closed" | "session.timed_out":
                state.closed = True
                state.floor.clear()
            case "floor.requested" if not state.closed:
                state.floor.append(data)
            case "floor.withdrawn":
                state.floor = [f for f in state.floor if f.request != data.request]
            case "turn.started":
                state.turn_open = True
                state.turn = data.turn
                state.cut_off = False
            case "turn.ended":
                state.turn_open = False
                self._turn_ended(state, data)
            case "turn.amended":
                self._amend(state, data.turn, data.text)
            case "overlap.started":
                state.overlap = state.turn
            case "overlap.resolved":
                if data.verdict in UNANSWERED:
                    state.unanswered.add(state.overlap or "")
                    state.queue = [(t, text) for t, text in state.queue if t != state.overlap]
                else:
                    state.unanswered.discard(state.overlap or "")
                    self._only_stopped(state, data.kind)
                state.overlap = None
            case "response.requested":
                if active is not None and active.response == data.response:
                    active.request = event.id
            case "response.cancelled":
                state.epoch = data.epoch
                state.cut_off = state.turn_open
                if active is not None and active.response == data.response:
                    self._remember(state, active, data.heard_text)

    @staticmethod
    def _only_stopped(state: RespondState, kind: str | None) -> None:
        """The turn that stopped the assistant wants no answer if it said nothing else."""
        stops = lists_for(state.language).stops
        for turn, text in [q for q in state.queue if kind == "stop" and q[0] == state.overlap]:
            if is_only(words(text), stops):
                state.queue.remove((turn, text))
                state.history.append(HeardItem("user", text, turn=turn))

    @staticmethod
    def _turn_ended(state: RespondState, data: Any) -> None:
        """Queue what wants an answer; the rest is only remembered, and a mere "mhm" not even that."""
        if not data.text or data.turn in state.unanswered:
            state.unanswered.discard(data.turn)
            return
        said = words(data.text)
        # Whoever stopped the assistant (or its thinking) with nothing but "wait, stop" has got what they wanted.
        stopped = state.cut_off or state.active is not None
        only_stop = stopped and is_only(said, lists_for(state.language).stops)
        works = read_turn(state.policy.work, state.language, data.text, state.book)
        if data.reply and not only_stop and not works:
            state.queue.append((data.turn, data.text))
        else:
            state.history.append(HeardItem("user", data.text, turn=data.turn))

    # --- the model's side

    def _on_generation(
        self, state: RespondState, active: Responding, event: Event, now: int, out: list[Decision]
    ) -> None:
        if event.type == "response.text":
            active.text += active.spans.public(event.data.text)
            self._speak_sentences(active, False, out)
            return
        if event.type == "generation.failed" and not active.sentences:
            retry = event.data.reason in ("lost", "unavailable", "error", "timed_out")
            if retry and active.attempt <= state.policy.response.retries and not state.closed:
                active.attempt += 1
                active.text, active.spans = "", TextSpans()
                self._ask(state, active, out)
            else:
                self._fail(
                    state, active, f"generation {event.data.reason}: {event.data.message}", now, out
                )
            return
        active.generated = True
        active.text += public_text(active.spans.end(event.type == "generation.completed"))
        self._speak_sentences(active, True, out)

    @staticmethod
    def _speak_sentences(active: Responding, all_of_it: bool, out: list[Decision]) -> None:
        """Ask the synthesis for what is complete (or for all that is left)."""
        parts = _SENTENCE_END.split(active.text)
        ready: list[str] = []
        pending = ""
        for part in parts[:-1]:
            pending = f"{pending} {part}".strip()
            if len(pending) >= _SHORTEST:
                ready.append(pending)
                pending = ""
        rest = f"{pending} {parts[-1]}".strip() if pending else parts[-1]
        if all_of_it:
            ready, rest = ([*ready, rest.strip()] if rest.strip() else ready), ""
        for sentence in ready:
            data = SpeechRequested(response=active.response, index=active.sentences, text=sentence)
            out.append(Decision(data, active.response))
            active.sentences += 1
        active.text = rest

    # --- the loudspeaker's side

    def _on_speaking(
        self, state: RespondState, event: Event, now: int, out: list[Decision]
    ) -> None:
        active = state.active
        if active is not None and active.speaking.observe(event, now):
            active.progress_at = now
            if event.type == "speech.failed" and event.data.reason != "cancelled":
                self._retry_speech(state, active, event, out)
        elif (
            event.type == "playback.ack"
            and state.last is not None
            and state.last.observe(event, now)
        ):
            self._heard_at_last(state, state.last, event, out)

    @staticmethod
    def _retry_speech(
        state: RespondState, active: Responding, event: Event, out: list[Decision]
    ) -> None:
        index = event.data.index
        attempts = active.speech_attempts.get(index, 1)
        voice = active.speaking.voices.get(index)
        if voice is None or voice.samples or attempts > state.policy.response.retries:
            return
        active.speech_attempts[index] = attempts + 1
        data = SpeechRequested(
            response=active.response, index=index, text=voice.text, attempt=attempts + 1
        )
        out.append(Decision(data, active.response))

    @staticmethod
    def _heard_at_last(
        state: RespondState, last: Speaking, event: Event, out: list[Decision]
    ) -> None:
        """The final acknowledgement of a response that was cut: history follows it."""
        if event.data.state != "cut":
            return
        state.last = None
        text = last.text_until(event.data.played_us)
        for item in state.history:
            if item.response == last.response:
                if item.content != text:
                    item.content = text
                    data = HeardAmended(
                        response=last.response, heard_text=text, heard_us=event.data.played_us
                    )
                    out.append(Decision(data, last.response))
                return

    # --- what follows

    def _check(self, state: RespondState, now: int, out: list[Decision]) -> None:
        """Start, end or request whatever the state allows, and set the alarm for what time alone brings."""
        active = state.active
        if active is not None:
            speaking = active.speaking
            # With a newer turn waiting, `interrupt` is about to cancel a response that nobody has heard.
            free = not state.turn_open and not state.queue
            if not speaking.started and speaking.playout.received and free:
                out.append(
                    Decision(
                        ResponseStarted(response=active.response, epoch=state.epoch),
                        active.response,
                    )
                )
                # The event comes back through the agenda; until then it counts as started, so that it is decided once.
                speaking.started = True
            pending = sum(1 for d in out if isinstance(d.data, SpeechRequested))
            if (
                active.generated
                and not pending
                and len(speaking.voices) >= active.sentences
                and speaking.all_spoken
            ):
                self._finish(state, active, now, out)
        if (
            state.active is None
            and state.queue
            and not state.turn_open
            and state.overlap is None
            and not state.closed
        ):
            self._request(state, now, out)
        elif (
            state.active is None
            and state.floor
            and not state.turn_open
            and state.overlap is None
            and not state.closed
        ):
            self._prepare(state, now, out)
        self._set_alarm(state, now)

    def _finish(
        self, state: RespondState, active: Responding, now: int, out: list[Decision]
    ) -> None:
        speaking = active.speaking
        if speaking.playout.received == 0:
            self._fail(
                state,
                active,
                "there was nothing to say" if not active.sentences else "no speech came",
                now,
                out,
            )
        elif speaking.started and speaking.all_heard(now):
            heard_us = speaking.playout.received_us
            text = speaking.text_until(heard_us)
            self._remember(state, active, text)
            state.last = None
            data = ResponseEnded(response=active.response, heard_text=text, heard_us=heard_us)
            out.append(Decision(data, active.response))

    def _prepare(self, state: RespondState, now: int, out: list[Decision]) -> None:
        """Speak what somebody has asked the floor for: all that wait for the same purpose, each sentence once."""
        purpose = state.floor[0].purpose
        taken = [f for f in state.floor if f.purpose == purpose]
        state.floor = [f for f in state.floor if f.purpose != purpose]
        text = " ".join(dict.fromkeys(f.text for f in taken))
        state.count += 1
        name = f"response-{state.count}"
        speaking = Speaking(name, state.policy.playback.ack_interval, state.acknowledged)
        active = Responding(
            name, taken[0].turn, (), speaking, text=text, generated=True, progress_at=now
        )
        state.active = active
        requests = tuple(f.request for f in taken)
        data = ResponsePrepared(
            response=name, epoch=state.epoch, requests=requests, text=text, turn=active.turn
        )
        out.append(Decision(data, name))
        self._speak_sentences(active, True, out)

    def _request(self, state: RespondState, now: int, out: list[Decision]) -> None:
        turn = state.queue[-1][0]
        for turn_id, text in state.queue:
            state.history.append(HeardItem("user", text, turn=turn_id))
        state.queue.clear()
        del state.history[: -2 * state.policy.response.history_turns - 1]
        state.count += 1
        name = f"response-{state.count}"
        messages = [Message(role="system", content=state.policy.response.system_prompt)]
        works = state.book.prompt(now)
        if works is not None:
            messages.append(works)
        for item in state.history:
            if item.content:
                messages.append(
                    Message(
                        role="user" if item.role == "user" else "assistant", content=item.content
                    )
                )
        speaking = Speaking(name, state.policy.playback.ack_interval, state.acknowledged)
        state.active = Responding(name, turn, tuple(messages), speaking, progress_at=now)
        self._ask(state, state.active, out)

    @staticmethod
    def _ask(state: RespondState, active: Responding, out: list[Decision]) -> None:
        response = state.policy.response
        data = ResponseRequested(
            response=active.response,
            epoch=state.epoch,
            turn=active.turn,
            messages=active.messages,
            max_tokens=response.max_tokens,
            temperature=response.temperature,
            seed=response.seed,
            attempt=active.attempt,
        )
        out.append(Decision(data, active.response))

    def _fail(
        self, state: RespondState, active: Responding, reason: str, now: int, out: list[Decision]
    ) -> None:
        heard_us = active.speaking.heard_us(now)
        text = active.speaking.text_until(heard_us)
        self._remember(state, active, text)
        data = ResponseFailed(
            response=active.response, reason=reason.rstrip(": "), heard_text=text, heard_us=heard_us
        )
        out.append(Decision(data, active.response))

    @staticmethod
    def _remember(state: RespondState, active: Responding, text: str) -> None:
        if active.speaking.started:
            state.history.append(HeardItem("assistant", text, response=active.response))
        state.last = active.speaking
        state.active = None

    @staticmethod
    def _amend(state: RespondState, turn: str, text: str) -> None:
        """A late transcript of a turn: it is what the user had said."""
        for item in state.history:
            if item.turn == turn:
                item.content = text
                return
        state.history.append(HeardItem("user", text, turn=turn))

    @staticmethod
    def _set_alarm(state: RespondState, now: int) -> None:
        active = state.active
        if active is None:
            state.alarm = NEVER
            return
        state.alarm = active.progress_at + state.policy.response.watchdog
        playout = active.speaking.playout
        if not active.speaking.acknowledged and playout.state == "playing":
            state.alarm = min(state.alarm, playout.dry_at())
