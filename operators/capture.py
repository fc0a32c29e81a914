"""Capture: what is to be delegated, and the evidence that it rests on.

    from                        what happens                                    decided
    -------------------------   ---------------------------------------------   --------------------------------------------
    a model's text              `<delegate>` begins                             delegate.opened: the evidence ends here
                                `</delegate>`, or the reply's own end           delegate.captured
                                nested, foreign token, empty, broken off        delegate.malformed
    a user's turn               an intent rule matches (operators.intents)      delegate.captured
    work.requested              a producer asks in a structured way             delegate.captured

A span is plain words (route `auto`), or JSON as a tool call writes it: `{"skill": …, "arguments": {…}}`, or `{"query": …}`; JSON that
does not parse is never run with what could be read of it. With the route `auto` the call that the intent rules make of the words is
noted, for a Harness without a planner. Evidence is what the user said and what was heard of the assistant within
`work.lookback` before the cutoff, nothing later; so a reply that is being spoken is not part of it.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import orjson

from operators.intents import read_request, read_turn
from operators.reducer import NEVER, NOTHING, Decision, Decisions, Hop
from operators.spans import Captured, Found, Malformed, Opened, TextSpans
from operators.works import EVENTS as WORK_EVENTS
from operators.works import WorkBook
from schemas.base import too_deep
from schemas.delegation import (
    DelegateCaptured,
    DelegateMalformed,
    DelegateOpened,
    Evidence,
    Origin,
    Route,
)
from schemas.envelope import Event
from schemas.policy import Policy

HEARD_CHARS = 320
"""Of one thing that was said, as evidence."""
ROUTES: tuple[Route, ...] = ("auto", "general", "skill", "direct")
_HEARD = frozenset({"response.ended", "response.failed", "response.cancelled"})


@dataclass(slots=True)
class Listening:
    """The reply that is being generated."""

    response: str
    request: str
    turn: str | None
    spans: TextSpans = field(default_factory=TextSpans)
    delegate: str = ""
    cutoff_us: int = 0


@dataclass(slots=True)
class CaptureState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    language: str = "en"
    book: WorkBook = field(default_factory=WorkBook)
    said: list[Evidence] = field(default_factory=list)
    reply: Listening | None = None
    count: int = 0
    closed: bool = False


class Capture:
    """See the module."""

    name = "capture"
    version = 1
    handles = (
        WORK_EVENTS
        | _HEARD
        | {
            "session.configured",
            "session.updated",
            "session.closed",
            "session.timed_out",
            "turn.ended",
            "turn.amended",
            "work.requested",
            "response.requested",
            "response.text",
            "generation.completed",
            "generation.failed",
        }
    )

    def initial(self, session: str) -> CaptureState:
        return CaptureState()

    def advance(self, state: CaptureState, now: int, hop: Hop | None) -> Decisions:
        state.alarm = NEVER
        return NOTHING

    def step(self, state: CaptureState, event: Event, now: int) -> Decisions:
        data, out = event.data, list[Decision]()
        if event.type in WORK_EVENTS:
            state.book.observe(event, now)
            return out
        match event.type:
            case "session.configured":
                state.policy, state.language = data.policy, data.language
            case "session.updated":
                state.policy = state.policy.with_accepted(data.policy)
            case "session.closed" | "session.timed_out":
                state.closed = True
            case "turn.ended":
                self._turn(state, data.turn, data.text, data.end_us, data.reply, now, out)
            case "work.requested":
                self._requested(state, data, now, out)
            case "response.requested":
                self._broken_off(state, out)
                state.reply = Listening(data.response, event.id, data.turn)
            case "response.text" | "generation.completed" | "generation.failed":
                if state.reply is not None and event.cause == state.reply.request:
                    self._generated(state, state.reply, event, now, out)
            case _ if event.type in _HEARD:
                if state.reply is not None and data.response == state.reply.response:
                    self._broken_off(state, out)
                if data.heard_text:
                    self._remember(
                        state, Evidence(role="assistant", text=data.heard_text, at_us=now)
                    )
        return out

    # --- a model's text

    def _generated(
        self, state: CaptureState, reply: Listening, event: Event, now: int, out: list[Decision]
    ) -> None:
        if event.type == "response.text":
            self._spans(state, reply, reply.spans.feed(event.data.text), now, out)
            return
        whole = event.type == "generation.completed" and event.data.finish_reason == "stop"
        self._spans(state, reply, reply.spans.end(whole), now, out)
        state.reply = None

    def _broken_off(self, state: CaptureState, out: list[Decision]) -> None:
        """The reply is over before its generation: an open span is no request."""
        if state.reply is not None:
            self._spans(
                state, state.reply, state.reply.spans.end(False), state.reply.cutoff_us, out
            )
            state.reply = None

    def _spans(
        self,
        state: CaptureState,
        reply: Listening,
        found: list[Found[str]],
        now: int,
        out: list[Decision],
    ) -> None:
        for part in found:
            if isinstance(part, Opened):
                reply.delegate, reply.cutoff_us = self._name(state), now
                opened = DelegateOpened(
                    delegate=reply.delegate, cutoff_us=now, response=reply.response, turn=reply.turn
                )
                out.append(Decision(opened, reply.delegate))
            elif isinstance(part, Malformed):
                self._malformed(reply, part.reason, "".join(part.content), out)
            elif isinstance(part, Captured):
                self._span(state, reply, "".join(part.content), out)

    def _span(self, state: CaptureState, reply: Listening, text: str, out: list[Decision]) -> None:
        text = " ".join(text.split())
        if not text:
            self._malformed(reply, "empty", text, out)
            return
        asked = _tool_call(text) if text.startswith("{") else {"query": text}
        if asked is None:
            self._malformed(reply, "bad_arguments", text, out)
            return
        self._capture(
            state,
            reply.delegate,
            "span",
            reply.cutoff_us,
            out,
            response=reply.response,
            turn=reply.turn,
            **asked,
        )

    @staticmethod
    def _malformed(reply: Listening, reason: Any, text: str, out: list[Decision]) -> None:
        data = DelegateMalformed(reason=reason, response=reply.response, text=text[:200])
        out.append(Decision(data, reply.delegate))

    # --- turns and requests

    def _turn(
        self,
        state: CaptureState,
        turn: str,
        text: str,
        end_us: int,
        reply: bool,
        now: int,
        out: list[Decision],
    ) -> None:
        if not text:
            return
        self._remember(state, Evidence(role="user", text=text, at_us=end_us))
        if not reply:
            return
        for meaning in read_turn(state.policy.work, state.language, text, state.book):
            rule = meaning.rule
            if meaning.kind not in ("delegate", "correct") or rule is None:
                continue
            corrects = meaning.work if meaning.kind == "correct" else None
            self._capture(
                state,
                self._name(state),
                "intent",
                now,
                out,
                query=meaning.query,
                route="skill",
                skill=rule.skill,
                arguments=meaning.arguments,
                rule=rule.name,
                turn=turn,
                corrects=corrects,
                continues=None if corrects else meaning.work,
            )

    def _requested(self, state: CaptureState, data: Any, now: int, out: list[Decision]) -> None:
        query = data.query or (
            f"{data.skill} {json.dumps(data.arguments, sort_keys=True)}" if data.skill else ""
        )
        if not query.strip():
            out.append(Decision(DelegateMalformed(reason="empty")))
            return
        route = "skill" if data.skill and data.route == "auto" else data.route
        self._capture(
            state,
            self._name(state),
            "request",
            now,
            out,
            query=query,
            route=route,
            skill=data.skill,
            arguments=data.arguments,
            continues=data.continues,
        )

    def _capture(
        self,
        state: CaptureState,
        delegate: str,
        origin: Origin,
        cutoff_us: int,
        out: list[Decision],
        **asked: Any,
    ) -> None:
        work = state.policy.work
        asked["query"] = asked["query"][: work.query_chars]
        evidence = [e for e in state.said if cutoff_us - work.lookback <= e.at_us <= cutoff_us]
        if work.evidence_items == 0:
            evidence = []
        if asked.get("skill") is None and asked.get("route", "auto") == "auto":
            before = state.book.works.get(asked.get("continues") or "")
            asked["fits"] = read_request(work, state.language, asked["query"], before)
        data = DelegateCaptured(
            delegate=delegate,
            origin=origin,
            cutoff_us=cutoff_us,
            evidence=tuple(evidence[-work.evidence_items :]),
            **asked,
        )
        out.append(Decision(data, delegate))

    @staticmethod
    def _name(state: CaptureState) -> str:
        state.count += 1
        return f"delegate-{state.count}"

    @staticmethod
    def _remember(state: CaptureState, evidence: Evidence) -> None:
        state.said.append(evidence.model_copy(update={"text": evidence.text[:HEARD_CHARS]}))
        del state.said[: -max(1, state.policy.work.evidence_items)]


def _tool_call(text: str) -> dict[str, Any] | None:
    """A tool call written as JSON, complete or not at all."""
    try:
        # Not `json`: what it reads beyond 64 bits, or half characters, could not be written.
        call = orjson.loads(text)
    except ValueError:
        return None
    skill = call.get("skill", call.get("name"))
    arguments = call.get("arguments", {})
    query = call.get("query", text)
    route = call.get("route", "auto" if skill is None else "skill")
    if not (isinstance(query, str) and isinstance(arguments, dict) and route in ROUTES):
        return None
    if skill is not None and not isinstance(skill, str):
        return None
    if too_deep(arguments):
        return None
    return {"query": query, "skill": skill, "arguments": arguments, "route": route}
