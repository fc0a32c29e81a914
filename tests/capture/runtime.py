"""The flows of a session in one thread, without models: real perception and decisions, scripted answers that come when they like.

What hears is `LevelVad` (loud is speech); what answers is a table by kind of request. `delay` gives the seconds that each answer takes
in the wall's time, which in an `asap` session must change nothing.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flows.conversation_session import ConversationSession
from flows.perception_batches import WAKE, Perception
from infra.clock import monotonic_s
from infra.timeline.port import Place, Timeline
from operators.fold import operator_versions
from schemas import ids
from schemas.base import Kind
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.record import Lane
from schemas.registry import KINDS, REQUESTS
from schemas.responses import GenerationCompleted, ResponseText, SpeechCompleted
from schemas.transcription import EndpointPredicted, TranscriptFinal
from tests.support.perceive import LevelVad

SPEECH_RATE = 22_050
REPLY = "Here is the answer to your question. And here is one more sentence, to make it longer."


def spoken(text: str, rate: int = SPEECH_RATE) -> NDArray[np.int16]:
    """The speech of a sentence: a ramp, 60 ms a character, so that every sample tells where it belongs."""
    return (np.arange(len(text) * 60 * rate // 1000) % 20_000 + 1).astype(np.int16)


class Runtime:
    """Runs while it is open. `hears` gives each turn's transcript by its number; `speed` lets its clock run faster."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        delay: Callable[[Event], float] = lambda _: 0.0,
        hears: Callable[[int], str] = lambda _: "what is this all about",
        reply: str = REPLY,
        speed: float = 1.0,
        speech_rate: int = SPEECH_RATE,
    ) -> None:
        self.timeline, self.reply, self.speech_rate = timeline, reply, speech_rate
        self._delay, self._hears, self._speed = delay, hears, speed
        self._sessions: dict[str, ConversationSession] = {}
        self._answers: list[tuple[float, int, Event]] = []
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self.error: BaseException | None = None
        self.perception = Perception(
            LevelVad(),
            timeline.partition_of,
            lambda partition: timeline.end(Lane.MEDIA)[partition],
            operator_versions(),
            {},
            lambda: monotonic_s() * speed,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10)
        if self.error is not None:
            raise self.error

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.error = error

    def _run(self) -> None:
        timeline = self.timeline
        reader = timeline.reader(
            {Place(lane, p): 0 for lane in Lane for p in range(timeline.partitions)}
        )
        while not self._stop.is_set():
            records = reader.poll(0.003)
            out = self.perception.on_batch([*records, WAKE])
            if out:
                timeline.append(out)
            for record in records:
                if record.lane is Lane.TIMELINE and record.key:
                    self._decide(record)
            self._answer()

    def _decide(self, record: Any) -> None:
        event = decode(record)
        if event.type in REQUESTS:
            self._count += 1
            self._answers.append((monotonic_s() + self._delay(event), self._count, event))
        session = self._sessions.get(event.session)
        if session is None:
            session = self._sessions[event.session] = ConversationSession(event.session)
        decisions = session.feed(record)
        if decisions:
            self.timeline.append(decisions)

    def _answer(self) -> None:
        now = monotonic_s()
        due = sorted(a for a in self._answers if a[0] <= now)
        self._answers = [a for a in self._answers if a[0] > now]
        for _, _, request in due:
            self.timeline.append([encode(e) for e in self._outcomes(request)])

    def _outcomes(self, request: Event) -> list[Event]:
        data = request.data
        match REQUESTS[request.type]:
            case "endpoint":
                return [_outcome(request, EndpointPredicted(turn=data.turn, probability=0.9))]
            case "transcript":
                heard = self._hears(int(data.turn.rpartition("-")[2]))
                return [_outcome(request, TranscriptFinal(turn=data.turn, text=heard))]
            case "generate":
                done = GenerationCompleted(
                    response=data.response, text=self.reply, tokens=9, finish_reason="stop"
                )
                text = ResponseText(response=data.response, text=self.reply)
                return [_outcome(request, text), _outcome(request, done)]
            case "speak":
                rate = self.speech_rate
                sound = spoken(data.text, rate)
                half = len(sound) // 2
                pieces = [Pcm(rate, 1, part.tobytes()) for part in (sound[:half], sound[half:])]
                end = SpeechCompleted(
                    response=data.response,
                    index=data.index,
                    duration_us=len(sound) * 1_000_000 // rate,
                )
                speech = [_outcome(request, p, i, "response.speech") for i, p in enumerate(pieces)]
                return [*speech, _outcome(request, end)]
        raise AssertionError(f"nobody answers {request.type}")


def _outcome(request: Event, data: Any, index: int = 0, type_: str | None = None) -> Event:
    name = type_ or data.TYPE
    id_ = ids.outcome_id(request.id, 1, name, index)
    cause, belongs = request.id, request.correlation
    return Event(name, request.session, id_, "inference", data, None, cause, belongs, index)


def logged(timeline: Timeline, session: str, lane: Lane = Lane.TIMELINE) -> list[Event]:
    """Every record of a session, in the log's order."""
    return [decode(r) for r in timeline.scan(lane, timeline.partition_of(session), 0, session)]


def decisions(timeline: Timeline, session: str) -> list[tuple[str, int | None, Any]]:
    """The decisions of a session, without what may differ between runs that must agree."""
    return [
        (e.type, e.mediatime, e.data)
        for e in logged(timeline, session)
        if KINDS[e.type] is Kind.DECISION
    ]
