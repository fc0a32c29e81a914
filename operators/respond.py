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

from typing import Any

from operators.heard import words
from operators.intents import read_turn
from operators.reducer import NEVER, Decision, Decisions, Hop, Out
from operators.respond_state import HeardItem, Responding, RespondState
from operators.sentences import split_sentences
from operators.spans import TextSpans, public_text
from operators.speaking import EVENTS, Speaking
from operators.words import is_only, lists_for
from operators.works import EVENTS as WORK_EVENTS
from schemas.envelope import Event
from schemas.floor import ResponsePrepared
from schemas.responses import (
    HeardAmended,
    ResponseEnded,
    ResponseFailed,
    ResponseRequested,
    ResponseStarted,
    SpeechRequested,
)

UNANSWERED = frozenset({"backchannel", "noise", "side_talk"})
"""Verdicts on overlaps that ask for no answer."""


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
        out: Out = []
        active = state.active
        if active is not None and now >= active.progress_at + state.policy.response.watchdog:
            self._fail(state, active, "timed_out: nothing came of it", now, out)
        self._check(state, now, out)
        return out

    def step(self, state: RespondState, event: Event, now: int) -> Decisions:
        out: Out = []
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

    def _on_other(self, state: RespondState, event: Event, now: int, out: Out) -> None:
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
            case "turn.started" if data.by != "text":
                state.turn_open = True
                state.turn = data.turn
                state.cut_off = False
            case "turn.ended":
                state.turn_open = state.turn_open and data.reason == "text"
                self._turn_ended(state, data)
            case "turn.amended":
                state.amend(data.turn, data.text)
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
        active = state.active
        if active is not None and data.text and data.reply:
            active.superseded = not active.speaking.started
        if not data.text or data.turn in state.unanswered:
            state.unanswered.discard(data.turn)
            return
        said = words(data.text)
        # Whoever stopped the assistant (or its thinking) with nothing but "wait, stop" has got what they wanted.
        stopped = state.cut_off or active is not None
        only_stop = stopped and is_only(said, lists_for(state.language).stops)
        works = read_turn(state.policy.work, state.language, data.text, state.book)
        if data.reply and not only_stop and not works:
            state.queue.append((data.turn, data.text))
        else:
            state.history.append(HeardItem("user", data.text, turn=data.turn))

    # --- the model's side

    def _on_generation(
        self, state: RespondState, active: Responding, event: Event, now: int, out: Out
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
    def _speak_sentences(active: Responding, all_of_it: bool, out: Out) -> None:
        """Ask the synthesis for what is complete (or for all that is left)."""
        ready, active.text = split_sentences(active.text, all_of_it)
        for sentence in ready:
            data = SpeechRequested(response=active.response, index=active.sentences, text=sentence)
            out.append(Decision(data, active.response))
            active.sentences += 1

    # --- the loudspeaker's side

    def _on_speaking(self, state: RespondState, event: Event, now: int, out: Out) -> None:
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
    def _retry_speech(state: RespondState, active: Responding, event: Event, out: Out) -> None:
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
    def _heard_at_last(state: RespondState, last: Speaking, event: Event, out: Out) -> None:
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

    def _check(self, state: RespondState, now: int, out: Out) -> None:
        """Start, end or request whatever the state allows, and set the alarm for what time alone brings."""
        active = state.active
        if active is not None:
            speaking = active.speaking
            free = not state.turn_open and not active.superseded
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

    def _finish(self, state: RespondState, active: Responding, now: int, out: Out) -> None:
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

    def _prepare(self, state: RespondState, now: int, out: Out) -> None:
        """Speak what somebody has asked the floor for: all that wait for the same purpose, each sentence once."""
        first = state.floor[0]
        taken = [
            f
            for f in state.floor
            if (f.purpose, f.interruptible) == (first.purpose, first.interruptible)
        ]
        state.floor = [f for f in state.floor if f not in taken]
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
            response=name,
            epoch=state.epoch,
            requests=requests,
            text=text,
            turn=active.turn,
            interruptible=first.interruptible,
        )
        out.append(Decision(data, name))
        self._speak_sentences(active, True, out)

    def _request(self, state: RespondState, now: int, out: Out) -> None:
        turn = state.queue[-1][0]
        for turn_id, text in state.queue:
            state.history.append(HeardItem("user", text, turn=turn_id))
        state.queue.clear()
        del state.history[: -2 * state.policy.response.history_turns - 1]
        state.count += 1
        name = f"response-{state.count}"
        speaking = Speaking(name, state.policy.playback.ack_interval, state.acknowledged)
        state.active = Responding(name, turn, state.messages(now), speaking, progress_at=now)
        self._ask(state, state.active, out)

    @staticmethod
    def _ask(state: RespondState, active: Responding, out: Out) -> None:
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
        self, state: RespondState, active: Responding, reason: str, now: int, out: Out
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
    def _set_alarm(state: RespondState, now: int) -> None:
        active = state.active
        if active is None:
            state.alarm = NEVER
            return
        state.alarm = active.progress_at + state.policy.response.watchdog
        playout = active.speaking.playout
        if not active.speaking.acknowledged and playout.state == "playing":
            state.alarm = min(state.alarm, playout.dry_at())
