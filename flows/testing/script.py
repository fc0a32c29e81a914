"""Compact scripts for the operators: a session written as a few lines of what happens, without models or a log.

`Session` feeds a `SessionFold` hop by hop: `speak(ms)` and `silence(ms)` make perception windows, requests are answered by `answers`
(or left open), playback is acknowledged by the virtual loudspeaker's own model. It records all that was decided.
"""

from collections.abc import Callable, Iterable
from typing import Any

from operators.fold import Applied, SessionFold
from operators.pipeline import operator_versions
from operators.playout import Playout
from schemas import ids
from schemas.base import HOP_US, WINDOW_HOPS, WINDOW_SAMPLES, WINDOW_US
from schemas.envelope import Event, Pcm
from schemas.media import PlaybackAck
from schemas.perception import PerceptionWindow
from schemas.policy import Pacing, Policy
from schemas.registry import REQUESTS
from schemas.responses import GenerationCompleted, ResponseText, SpeechCompleted
from schemas.session import ClockTick, SessionClosed, SessionConfigured, SessionOpened
from schemas.transcription import BackchannelPredicted, EndpointPredicted, TranscriptFinal

Answer = Callable[["Session", Event], Iterable[Event]]
RATE = 16_000


class Session:
    """A scripted session; `events` is everything that was applied or decided, in causal order."""

    def __init__(
        self,
        name: str = "s",
        *,
        pacing: Pacing = "live",
        playback: str = "acknowledged",
        policy: dict[str, Any] | None = None,
        transcript: str | Callable[[Event], str | None] = "hello there",
        endpoint: float | Callable[[Event], float | None] = 0.9,
        backchannel: float | Callable[[Event], float | None] = 0.5,
        reply: str = "This is the answer to your question.",
        speech_us_per_char: int = 60_000,
        hold: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.fold = SessionFold(name)
        self.events: list[Event] = []
        self.inputs: list[Event] = []
        self.transcript, self.endpoint, self.reply = transcript, endpoint, reply
        self.backchannel = backchannel
        self.speech_us_per_char = speech_us_per_char
        self.held = set(hold)
        """Kinds of requests that nobody answers until `answer` is called."""
        self.open: dict[str, Event] = {}
        self.at = 0
        self.level_db = -30.0
        self.echo: float | None = None
        """Of the windows to come; `echo` as in `perception.window`."""
        self._hops: list[float | None] = []
        self._sequence = 0
        self.playout: Playout | None = None
        self.policy = Policy().with_changes(policy or {})
        opened = SessionOpened(pacing=pacing, playback=playback)  # type: ignore[arg-type]
        self.observe(opened, 0)
        configured = SessionConfigured(
            channel="mic",
            pacing=pacing,
            playback=opened.playback,
            language="en",
            policy=self.policy,
            operators=operator_versions(),
            models={},
        )
        self.feed(
            Event(configured.TYPE, name, "configured", "perception", configured, None, "opened")
        )

    # --- what happens

    def speak(self, ms: int, probability: float = 0.95) -> "Session":
        return self.hops(ms, probability)

    def silence(self, ms: int) -> "Session":
        return self.hops(ms, 0.02)

    def hops(self, ms: int, probability: float | None) -> "Session":
        for _ in range(round(ms * 1000 / HOP_US)):
            self._hops.append(probability)
            if len(self._hops) == WINDOW_HOPS:
                self._window()
        return self

    def _window(self) -> None:
        first = self.at // WINDOW_US * WINDOW_SAMPLES
        answered = tuple(p for p in self._hops if p is not None)
        data = PerceptionWindow(
            channel="mic",
            epoch=0,
            first_sample=first,
            start_us=self.at,
            # A call of the model answers for all hops of a window or for none.
            probabilities=answered if len(answered) == len(self._hops) else None,
            level_db=self.level_db,
            echo=self.echo,
        )
        self._hops = []
        self.at += WINDOW_US
        self.feed(
            Event(
                data.TYPE,
                self.name,
                ids.window_id(self.name, "mic", 0, first),
                "perception",
                data,
                self.at,
            )
        )
        self.acknowledge(self.at)

    def observe(self, data: Any, at: int | None = None) -> "Session":
        """The device appends an observation."""
        sequence = self._sequence
        self._sequence += 1
        id_ = ids.observation_id(self.name, "device", sequence, data.TYPE)
        self.feed(
            Event(
                data.TYPE,
                self.name,
                id_,
                "device",
                data,
                self.at if at is None else at,
                sequence=sequence,
            )
        )
        return self

    def tick(self, ms: int) -> "Session":
        self.at += ms * 1000
        id_ = f"tick-{self.at}"
        self.feed(Event("clock.tick", self.name, id_, "perception/ticker", ClockTick(), self.at))
        self.acknowledge(self.at)
        return self

    def close(self, ticks: int = 4) -> "Session":
        self.observe(SessionClosed())
        for _ in range(ticks):
            if not self.fold.ended:
                self.tick(1000)
        return self

    # --- the outside world's answers

    def feed(self, event: Event) -> list[Applied]:
        self.inputs.append(event)
        applied = self.fold.feed(event)
        if self.fold.fault is not None:
            raise self.fold.fault.__cause__ or self.fold.fault
        for step in applied:
            if step.fate != "applied":
                continue
            self.events.extend((step.input, *step.decisions))
            for seen in (step.input, *step.decisions):
                self._play(seen)
        for step in applied:
            for decision in step.decisions:
                if decision.type in REQUESTS:
                    self.open[decision.id] = decision
                    if REQUESTS[decision.type] not in self.held:
                        self.answer(decision)
        return applied

    def answer(self, request: Event) -> None:
        """Answer a request as the models would."""
        self.open.pop(request.id, None)
        for outcome in self.outcomes(request):
            self.feed(outcome)

    def answer_kind(self, kind: str) -> None:
        """Answer all open requests of a kind."""
        for request in [r for r in self.open.values() if REQUESTS[r.type] == kind]:
            self.answer(request)

    def outcome(self, request: Event, data: Any, index: int = 0, type_: str | None = None) -> Event:
        name = type_ or data.TYPE
        id_ = ids.outcome_id(request.id, 1, name, index)
        return Event(
            name, self.name, id_, "inference", data, None, request.id, request.correlation, index
        )

    def outcomes(self, request: Event) -> list[Event]:
        data = request.data
        match REQUESTS[request.type]:
            case "endpoint":
                p = self.endpoint(request) if callable(self.endpoint) else self.endpoint
                return (
                    []
                    if p is None
                    else [self.outcome(request, EndpointPredicted(turn=data.turn, probability=p))]
                )
            case "backchannel":
                p = self.backchannel(request) if callable(self.backchannel) else self.backchannel
                if p is None:
                    return []
                predicted = BackchannelPredicted(overlap=data.overlap, probability=p)
                return [self.outcome(request, predicted)]
            case "transcript":
                text = self.transcript(request) if callable(self.transcript) else self.transcript
                return (
                    []
                    if text is None
                    else [self.outcome(request, TranscriptFinal(turn=data.turn, text=text))]
                )
            case "generate":
                half = len(self.reply) // 2
                return [
                    self.outcome(
                        request, ResponseText(response=data.response, text=self.reply[:half]), 0
                    ),
                    self.outcome(
                        request, ResponseText(response=data.response, text=self.reply[half:]), 1
                    ),
                    self.outcome(
                        request,
                        GenerationCompleted(
                            response=data.response, text=self.reply, tokens=9, finish_reason="stop"
                        ),
                    ),
                ]
            case _:
                samples = len(data.text) * self.speech_us_per_char * RATE // 1_000_000
                pcm = Pcm(RATE, 1, bytes(2 * samples))
                done = SpeechCompleted(
                    response=data.response, index=data.index, duration_us=pcm.duration_us
                )
                return [
                    self.outcome(request, pcm, 0, "response.speech"),
                    self.outcome(request, done),
                ]

    def _play(self, event: Event) -> None:
        if self.fold.config is None or self.fold.config.playback != "acknowledged":
            return
        now = event.mediatime if event.mediatime is not None else self.fold.now
        interval = self.policy.playback.ack_interval
        name = getattr(event.data, "response", None) or event.correlation
        if event.type == "response.started" or event.type == "response.speech":
            if self.playout is None or self.playout.response != name:
                self.playout = Playout(name or "", interval)
            if event.type == "response.started":
                self.playout.start(now)
            else:
                self.playout.speech(now, event.data.samples, event.data.rate)
        elif self.playout is not None and name == self.playout.response:
            match event.type:
                case "floor.paused":
                    self.playout.pause(now)
                case "floor.resumed":
                    self.playout.resume(now)
                case "response.cancelled" | "response.failed":
                    self.playout.cut(now)
                case "response.ended":
                    self.playout.finish(now)

    def acknowledge(self, until: int) -> None:
        """Append the acknowledgements that are due by media time `until`."""
        while self.playout is not None:
            ack = self.playout.next_ack()
            if ack is None or ack.at_us > until:
                return
            self.playout.take_ack(ack)
            data = PlaybackAck(
                response=self.playout.response, played_us=ack.played_us, state=ack.state
            )
            self.observe(data, ack.at_us)

    # --- looking

    def types(self, *wanted: str) -> list[str]:
        """The types of what happened, in causal order; only the wanted ones (by prefix) if any are named."""
        return [e.type for e in self.events if not wanted or e.type.startswith(wanted)]

    def of(self, type_: str) -> list[Event]:
        return [e for e in self.events if e.type == type_]

    def data(self, type_: str) -> list[Any]:
        return [e.data for e in self.of(type_)]

    def text(self) -> str:
        """The session as lines, for looking at it in a failing test."""
        return "\n".join(
            f"{(e.mediatime or 0) / 1e6:8.3f} {e.type:22} {e.data if not isinstance(e.data, Pcm) else e.data.samples}"
            for e in self.events
            if e.type != "perception.window"
        )
