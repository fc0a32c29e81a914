"""What the tests of the inference flow share: short requests and media, a scripted model server."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.effects import Produced
from flows.inference import InferenceStep
from flows.model_effects import InferenceSettings, model_effects
from infra.clock import monotonic_s, sleep_s
from infra.timeline import Timeline
from infra.triton.client import Delta, SpeechChunk
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.perception import AudioSpan
from schemas.policy import Policy
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import PARTIALS, TERMINALS
from schemas.responses import Message, ResponseRequested, SpeechRequested
from schemas.session import SessionConfigured, SessionEnded, SessionOpened
from schemas.transcription import BackchannelRequested, EndpointRequested, TranscriptRequested

RATE = 16_000
OUTCOME_TYPES = frozenset(PARTIALS) | frozenset(TERMINALS)


def opened(session: str = "s", channel: str = "mic") -> list[Event]:
    configured = SessionConfigured(
        channel=channel,
        pacing="live",
        playback="assumed",
        language="en",
        policy=Policy(),
        operators={},
        models={},
    )
    return [
        Event(
            "session.opened", session, f"{session}-o", "device", SessionOpened(channel=channel), 0
        ),
        Event("session.configured", session, f"{session}-c", "perception", configured, 0),
    ]


def ended(session: str = "s") -> Event:
    data = SessionEnded(reason="closed", turns=0, responses=0)
    return Event("session.ended", session, f"{session}-e", "conversation", data, 0)


def media(
    samples: NDArray[np.int16],
    session: str = "s",
    *,
    chunk: int = 1_600,
    rate: int = RATE,
    channel: str | None = None,
    first: int = 0,
) -> list[Event]:
    """The audio as a device would slice it; `first` is the number of its first record."""
    events = []
    for number, at in enumerate(range(0, len(samples), chunk)):
        data = Pcm(rate, 1, samples[at : at + chunk].tobytes())
        id_ = f"{session}-{channel}-{first + number}"
        time = at * 1_000_000 // rate
        events.append(
            Event("media.audio", session, id_, "device", data, time, None, channel, first + number)
        )
    return events


def span(first: int, end: int, channel: str = "mic", epoch: int = 0) -> AudioSpan:
    return AudioSpan(channel=channel, epoch=epoch, first_sample=first, end_sample=end)


def wants_endpoint(first: int, end: int, session: str = "s", id_: str = "e", **where: Any) -> Event:
    data = EndpointRequested(turn="t", audio=span(first, end, **where))
    return Event("endpoint.requested", session, id_, "conversation", data, 0, "c", "t")


def wants_transcript(
    first: int, end: int, session: str = "s", id_: str = "t", start_us: int = 0
) -> Event:
    data = TranscriptRequested(turn="t", audio=span(first, end), start_us=start_us)
    return Event("transcript.requested", session, id_, "conversation", data, 0, "c", "t")


def wants_text(
    words: str, session: str = "s", id_: str = "g", max_tokens: int = 24, response: str = "r"
) -> Event:
    data = ResponseRequested(
        response=response,
        epoch=0,
        turn="t",
        messages=(Message(role="user", content=words),),
        max_tokens=max_tokens,
        temperature=0.0,
        seed=0,
    )
    return Event("response.requested", session, id_, "conversation", data, 0, "c", response)


def wants_speech(words: str, session: str = "s", id_: str = "v", response: str = "r") -> Event:
    data = SpeechRequested(response=response, index=0, text=words)
    return Event("speech.requested", session, id_, "conversation", data, 0, "c", response)


def wants_opinion(
    text: str, session: str = "s", id_: str = "b", assistant: str = "", language: str = "en"
) -> Event:
    data = BackchannelRequested(
        overlap="o",
        response="r",
        text=text,
        assistant=assistant,
        speech_us=400_000,
        language=language,
    )
    return Event("backchannel.requested", session, id_, "conversation", data, 0, "c", "r")


def append(timeline: Timeline, events: Iterable[Event], lane: Lane = Lane.TIMELINE) -> None:
    timeline.append([encode(event) for event in events], lane)


def outcomes(timeline: Timeline, session: str | None = None) -> list[Event]:
    found = []
    for partition in range(timeline.partitions):
        for record in timeline.scan(Lane.TIMELINE, partition, session=session):
            try:
                event = decode(record)
            except BadRecord:
                continue
            if event.type in OUTCOME_TYPES:
                found.append(event)
    return found


def wait_for(
    timeline: Timeline, enough: Callable[[list[Event]], bool], limit_s: float = 10.0
) -> list[Event]:
    """The outcomes in the log as soon as they are enough."""
    deadline = monotonic_s() + limit_s
    while True:
        found = outcomes(timeline)
        if enough(found):
            return found
        assert monotonic_s() < deadline, f"still waiting after {limit_s} s; so far {found}"
        sleep_s(0.02)


class FakeWord(NamedTuple):
    text: str
    start_us: int
    end_us: int
    probability: float | None


class FakeTranscript(NamedTuple):
    text: str
    language: str
    words: tuple[FakeWord, ...]


@dataclass
class FakeClient:
    """Stands in for `infra.triton.client.ModelClient`."""

    heard: list[NDArray[np.int16]] = field(default_factory=list)
    deltas: tuple[str, ...] = ("It", " is", " fine", ".")
    pause_s: float = 0.0
    chunks: tuple[int, ...] = (441, 441, 100)

    async def endpoint(self, audio: NDArray[np.int16], **_: Any) -> float:
        self.heard.append(audio)
        return 0.75

    async def transcribe(self, audio: NDArray[np.int16], language: str, **_: Any) -> FakeTranscript:
        self.heard.append(audio)
        return FakeTranscript("hello", language, (FakeWord("hello", 100_000, 350_000, 0.9),))

    async def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
        for number, delta in enumerate(self.deltas, 1):
            await asyncio.sleep(self.pause_s)
            finish = "stop" if number == len(self.deltas) else ""
            yield Delta(delta, finish, number)

    async def speak(self, text: str, **_: Any) -> AsyncGenerator[SpeechChunk, None]:
        for samples in self.chunks:
            yield SpeechChunk(np.full(samples, 7, np.int16).tobytes(), 22_050)


class StepRig:
    """An `InferenceStep` with a scripted client, called by hand; nothing of Bytewax."""

    def __init__(self, client: Any = None, settings: InferenceSettings | None = None) -> None:
        self.client: Any = client or FakeClient()
        limits = settings or InferenceSettings()
        self.step = InferenceStep(lambda audio: model_effects(self.client, audio, limits))
        self.out: list[Event] = []

    def __enter__(self) -> "StepRig":
        return self

    def __exit__(self, *_: object) -> None:
        self.step.close()

    def read(self, events: Iterable[Event], lane: Lane = Lane.TIMELINE) -> None:
        stored = []
        for event in events:
            record = encode(event)
            stored.append(StoredRecord(lane, 0, 0, 0, record.key, record.headers, record.value))
        self._take(stored)

    def settle(self, limit_s: float = 5.0) -> list[Event]:
        return self.settle_some(0, limit_s)

    def settle_some(self, still_open: int, limit_s: float = 5.0) -> list[Event]:
        deadline = monotonic_s() + limit_s
        while self.step.desk.open > still_open:
            assert monotonic_s() < deadline, f"still open after {limit_s} s; so far {self.out}"
            self._take(self.step.extra())
            sleep_s(0.001)
        return self.out

    def _take(self, items: Iterable[StoredRecord | Produced | Record]) -> None:
        self.out += map(decode, self.step(list(items)))
