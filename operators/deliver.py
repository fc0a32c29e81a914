"""Return: what comes of works, said at an eligible moment, once, and known as heard only when it was.

    result      what happens                                              decided
    ---------   -------------------------------------------------------   -----------------------------------------------
    -           a work completes, fails or expires, and is still wanted   reply.prepared (polished to speech)
    ready       neither side speaks, and silence has lasted               work.delivering, floor.requested: all that is
                work.silence, falling to work.silence_least               ready, as one text
    ready       older than work.freshness                                 work.undelivered (stale)
    ready       its work is cancelled or corrected                        work.undelivered (superseded)
    delivering  its response ended: all of it was played                  work.delivered
    delivering  its response was stopped before anything was heard        ready again, up to work.delivery_tries
    delivering  it was stopped in the middle                              work.undelivered (interrupted)
    delivering  spoken, but no acknowledgement within the time            work.undelivered (unknown)
    any         the session closes                                        work.undelivered (closed)
    not told    the user asks for the result                              ready again, at once
    any told    the user asks for it again                                ready again, at once

An answer to the user goes first: while a turn or a response is open nothing is eligible. Beside results, short sentences are asked for:
that a work has begun, still runs, was cancelled or refused. Everything is asked of `respond` by `floor.requested`; nothing here speaks.
"""

from typing import Any, Literal

from operators.delivery import DeliverState, Delivery, Ready
from operators.floor import EVENTS as FLOOR_EVENTS
from operators.floor import needed_silence
from operators.intents import read_turn
from operators.polish import apology, polish
from operators.reducer import EVERY_HOP, NEVER, Decision, Decisions, Hop
from operators.spoken_data import in_words
from operators.works import EVENTS as WORK_EVENTS
from operators.works import Work
from schemas.envelope import Event
from schemas.floor import FloorRequested, FloorWithdrawn, Purpose
from schemas.work import ReplyPrepared, WorkDelivered, WorkDelivering, WorkUndelivered

Lost = Literal["unknown", "stale", "interrupted", "superseded", "failed", "closed"]


class Deliver:
    """See the module."""

    name = "deliver"
    version = 1
    handles = (
        WORK_EVENTS
        | FLOOR_EVENTS
        | {
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "delegate.captured",
            "delegate.refused",
            "response.started",
            "response.speech",
            "playback.ack",
            "floor.withdrawn",
        }
    )

    def initial(self, session: str) -> DeliverState:
        return DeliverState()

    # --- time

    def advance(self, state: DeliverState, now: int, hop: Hop | None) -> Decisions:
        out: list[Decision] = []
        work = state.policy.work
        for result in [r for r in state.ready if not r.asked and now - r.since_us > work.freshness]:
            state.ready.remove(result)
            self._lose(result, "stale", None, out)
        current = state.current
        if current is not None and now >= current.asked_us + work.acknowledged_within:
            self._overdue(state, current, out)
        if state.current is None and state.ready and self._eligible(state, now):
            self._ask(state, now, out)
        self._set_alarm(state)
        return out

    @staticmethod
    def _eligible(state: DeliverState, now: int) -> bool:
        if state.closed or not state.floor.free:
            return False
        work = state.policy.work
        needed = work.silence_least
        if not any(r.asked for r in state.ready):
            waited = now - state.ready[0].since_us
            needed = needed_silence(waited, work.silence, work.silence_least, work.silence_decay)
        return state.floor.silence(now) >= needed

    def _ask(self, state: DeliverState, now: int, out: list[Decision]) -> None:
        results, state.ready = state.ready, []
        state.deliveries += 1
        name = f"delivery-{state.deliveries}"
        for result in results:
            state.tries[result.work] = state.tries.get(result.work, 0) + 1
        state.current = Delivery(name, results, now)
        text = " ".join(r.text for r in results)
        data = WorkDelivering(
            delivery=name,
            works=tuple(r.work for r in results),
            text=text,
            attempt=max(state.tries[r.work] for r in results),
            waited_us=now - results[0].since_us,
        )
        out.append(Decision(data, name))
        out.append(Decision(FloorRequested(request=name, text=text, purpose="delivery"), name))

    def _overdue(self, state: DeliverState, current: Delivery, out: list[Decision]) -> None:
        state.current = None
        if not current.started:
            withdrawn = FloorWithdrawn(request=current.delivery, reason="no eligible moment")
            out.append(Decision(withdrawn, current.delivery))
        for result in current.results:
            reason: Lost = "unknown" if current.started else "stale"
            self._lose(result, reason, current.delivery, out)

    @staticmethod
    def _set_alarm(state: DeliverState) -> None:
        state.alarm = EVERY_HOP if state.ready or state.current is not None else NEVER

    # --- events

    def step(self, state: DeliverState, event: Event, now: int) -> Decisions:
        out: list[Decision] = []
        if event.type in FLOOR_EVENTS:
            state.floor.observe(event, now)
        if event.type in WORK_EVENTS:
            changed = state.book.observe(event, now)
            if changed is not None:
                self._work(state, changed, event, now, out)
        elif event.type.startswith(("session.", "turn.ended")):
            self._situation(state, event, now, out)
        elif event.type.startswith("delegate."):
            self._delegated(state, event, out)
        elif not event.type.startswith(("speech.", "turn.")):
            self._response(state, event, now, out)
        self._set_alarm(state)
        return out

    def _situation(self, state: DeliverState, event: Event, now: int, out: list[Decision]) -> None:
        data = event.data
        match event.type:
            case "session.configured":
                state.policy, state.language = data.policy, data.language
            case "session.updated":
                state.policy = state.policy.with_accepted(data.policy)
            case "session.closed" | "session.timed_out":
                self._close(state, out)
            case "turn.ended" if data.reply and data.text:
                self._asked(state, data, now, out)

    def _close(self, state: DeliverState, out: list[Decision]) -> None:
        state.closed = True
        results = [*(state.current.results if state.current else ()), *state.ready]
        delivery = state.current.delivery if state.current else None
        state.current, state.ready = None, []
        for result in results:
            self._lose(result, "closed", delivery, out)

    # --- works

    def _work(
        self, state: DeliverState, work: Work, event: Event, now: int, out: list[Decision]
    ) -> None:
        policy = state.policy.work
        match event.type:
            case "work.queued" if event.data.rule is not None:
                rule = next((r for r in policy.intents if r.name == event.data.rule), None)
                self._say(state, (rule.say if rule else "") or policy.holding, "holding", out)
            case "work.progress" if policy.tell_progress and not work.untold and not state.ready:
                text = polish(event.data.text, 1, 160)
                if text and state.floor.free:
                    self._say(state, text, "progress", out)
            case "work.cancelling":
                self._drop(state, work, out)
                if event.data.reason == "user":
                    self._say(state, policy.cancelled, "answer", out)
            case "work.completed" if not work.untold:
                rule = next((r for r in policy.intents if r.name == work.rule), None)
                said = in_words(work.result, rule.answer if rule else "")
                text = polish(said, policy.sentences, policy.spoken_chars) or "It is done."
                out.append(Decision(ReplyPrepared(work=work.work, text=text), work.work))
            case "work.failed" | "work.expired":
                tell = policy.tell_failures and not work.untold and event.data.reason != "closed"
                if tell and not state.closed:
                    text = apology(policy.failed, event.data.reason)
                    out.append(
                        Decision(ReplyPrepared(work=work.work, text=text, ok=False), work.work)
                    )
            case "reply.prepared":
                result = Ready(work.work, event.data.text, now)
                if state.closed:
                    self._lose(result, "closed", None, out)
                else:
                    state.ready.append(result)

    def _drop(self, state: DeliverState, work: Work, out: list[Decision]) -> None:
        """The result of this work is not wanted any more."""
        for result in [r for r in state.ready if r.work == work.work]:
            state.ready.remove(result)
            self._lose(result, "superseded", None, out)
        current = state.current
        if current is None or current.started:
            return
        for result in [r for r in current.results if r.work == work.work]:
            # The text that was asked for holds it: take that back, and ask anew for the others.
            current.results.remove(result)
            self._lose(result, "superseded", current.delivery, out)
            withdrawn = FloorWithdrawn(request=current.delivery, reason="superseded")
            out.append(Decision(withdrawn, current.delivery))
            state.ready = [*current.results, *state.ready]
            state.current = None

    @staticmethod
    def _lose(
        result: Ready, reason: Lost, delivery: str | None, out: list[Decision], heard: str = ""
    ) -> None:
        data = WorkUndelivered(work=result.work, reason=reason, delivery=delivery, heard_text=heard)
        out.append(Decision(data, result.work))

    # --- what the user asks, and what is refused

    def _asked(self, state: DeliverState, turn: Any, now: int, out: list[Decision]) -> None:
        policy = state.policy.work
        for meaning in read_turn(policy, state.language, turn.text, state.book):
            work = state.book.works.get(meaning.work or "")
            if meaning.kind == "progress":
                known = polish(work.progress, 1, 160) if work is not None else ""
                text = f"{policy.still_running} {known}".strip()
                self._say(state, text, "answer", out, turn.turn)
            elif meaning.kind == "recall" and work is None:
                running = bool(state.book.running)
                text = policy.still_running if running else policy.nothing_found
                self._say(state, text, "answer", out, turn.turn)
            elif meaning.kind == "recall" and work is not None:
                waiting = [r for r in state.ready if r.work == work.work]
                if waiting:
                    waiting[0].asked = True
                elif state.current is None or work.work not in {
                    r.work for r in state.current.results
                }:
                    state.ready.insert(0, Ready(work.work, work.text, now, asked=True))

    def _delegated(self, state: DeliverState, event: Event, out: list[Decision]) -> None:
        data = event.data
        if event.type == "delegate.captured":
            state.origins = {data.delegate: data.origin, **dict(list(state.origins.items())[:7])}
            if data.origin == "span" and data.response is not None:
                state.spans[data.response] = data.delegate
            return
        state.spans = {r: d for r, d in state.spans.items() if d != data.delegate}
        if state.origins.get(data.delegate) == "request" or data.reason == "closed":
            return
        if data.reason == "running":
            text = f"{state.policy.work.still_running} {polish(data.detail, 1, 160)}".strip()
            self._say(state, text, "answer", out)
        else:
            self._say(state, apology(state.policy.work.failed, data.reason), "answer", out)

    def _say(
        self,
        state: DeliverState,
        text: str,
        purpose: Purpose,
        out: list[Decision],
        turn: str | None = None,
    ) -> None:
        if state.closed:
            return
        state.floors += 1
        name = f"floor-{state.floors}"
        out.append(
            Decision(FloorRequested(request=name, text=text, purpose=purpose, turn=turn), name)
        )

    # --- responses

    def _response(self, state: DeliverState, event: Event, now: int, out: list[Decision]) -> None:
        data, current = event.data, state.current
        name = (
            event.correlation
            if event.type == "response.speech"
            else getattr(data, "response", None)
        )
        ours = current is not None and name is not None and name == current.response
        match event.type:
            case "response.prepared":
                if current is not None and current.delivery in data.requests:
                    current.response = data.response
            case "floor.withdrawn":
                if current is not None and current.delivery == data.request and not current.started:
                    state.current = None
                    state.ready = [*current.results, *state.ready]
            case "response.started" if ours and current is not None:
                current.started = True
            case "response.speech" if ours and current is not None:
                current.speech_us += data.duration_us
            case "playback.ack" if ours and current is not None:
                current.played_us = max(current.played_us, data.played_us)
                if current.over and current.played_us + 1_000 >= current.speech_us:
                    self._delivered(state, current, current.played_us, out)
            case "response.ended" | "response.failed" | "response.cancelled":
                silent_span = data.response in state.spans and not data.heard_text
                state.spans.pop(data.response, None)
                if silent_span and event.type == "response.failed":
                    self._say(state, state.policy.work.holding, "holding", out)
                if ours and current is not None:
                    self._over(state, current, event, out)

    def _over(
        self, state: DeliverState, current: Delivery, event: Event, out: list[Decision]
    ) -> None:
        """The response that was to tell the results is over."""
        data = event.data
        if event.type == "response.ended":
            self._delivered(state, current, data.heard_us, out)
            return
        if event.type == "response.failed" and current.started and current.speech_us:
            current.over = True  # it was spoken: perhaps the acknowledgement still comes
            return
        state.current = None
        for result in current.results:
            if data.heard_us and data.heard_text:
                self._lose(result, "interrupted", current.delivery, out, data.heard_text)
            elif state.tries[result.work] < state.policy.work.delivery_tries:
                state.ready.append(result)
            else:
                self._lose(result, "failed", current.delivery, out)

    @staticmethod
    def _delivered(
        state: DeliverState, current: Delivery, heard_us: int, out: list[Decision]
    ) -> None:
        state.current = None
        for result in current.results:
            state.tries.pop(result.work, None)
            data = WorkDelivered(
                work=result.work,
                delivery=current.delivery,
                response=current.response or "",
                heard_us=heard_us,
            )
            out.append(Decision(data, result.work))
