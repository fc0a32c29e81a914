"""The real models, each asked once about the same thing: voice activity of whole clips, and answers about spans of them.

Voice activity goes through perception's own rounds (`flows.perception_model`), many clips a call. Endpoint, transcript and classifier are
asked when the operators ask, and remembered by what they were asked about: a sweep over policies asks only about what is new in each.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from flows.bench.judgement.sound import Clip
from flows.perception_channel import Channel, Pending
from flows.perception_model import MAX_BATCH, VadRounds
from infra.clock import monotonic_s
from infra.triton.client import ModelClient, VadClient
from operators.window import Window, samples_to_us
from schemas import ids
from schemas.base import WINDOW_SAMPLES, WINDOW_US
from schemas.envelope import Event
from schemas.perception import PerceptionWindow

T = TypeVar("T")
CHANNEL = "mic"


def hear(clips: Sequence[Clip], url: str, step: Callable[[int], None]) -> list[list[Event]]:
    """The windows of each clip, as perception appends them. `step` is told of how many windows it has just heard."""
    heard: list[list[Event]] = []
    with VadClient(url) as vad:
        for at in range(0, len(clips), MAX_BATCH):
            batch = clips[at : at + MAX_BATCH]
            rounds = VadRounds(vad, monotonic_s)
            channels = [Channel(CHANNEL) for _ in batch]
            windows: list[list[Event]] = [[] for _ in batch]
            for first in range(0, max(len(c.samples) for c in batch), WINDOW_SAMPLES):
                here = [i for i, c in enumerate(batch) if first < len(c.samples)]
                start = samples_to_us(first)
                asked = []
                for i in here:
                    audio = batch[i].samples[first : first + WINDOW_SAMPLES]
                    asked.append((channels[i], Pending(Window(0, first, audio), start, False)))
                for i, one in zip(here, rounds.hear(asked), strict=True):
                    data = PerceptionWindow(
                        channel=CHANNEL,
                        epoch=0,
                        first_sample=first,
                        start_us=start,
                        probabilities=one.probabilities,
                        level_db=one.level_db,
                        reset=one.reset,
                    )
                    windows[i].append(_event(batch[i], data))
                step(len(here))
            heard += windows
    return heard


def session_of(clip: Clip) -> str:
    return f"{clip.name}, {clip.condition}"


def _event(clip: Clip, data: PerceptionWindow) -> Event:
    name = session_of(clip)
    id_ = ids.window_id(name, CHANNEL, 0, data.first_sample)
    return Event(data.TYPE, name, id_, "perception", data, data.start_us + WINDOW_US)


class Oracle:
    """What the models say, by what they are asked about; usable from several threads."""

    def __init__(self, url: str) -> None:
        self._client = ModelClient(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oracle", daemon=True)
        self._thread.start()
        self._known: dict[Any, Future[Any]] = {}
        self._lock = threading.Lock()
        self.took: dict[str, list[float]] = {}
        """Kind → seconds of each call, as long as nothing else was asked of the same model."""

    def endpoint(self, clip: Clip, first: int, end: int) -> "Future[float]":
        audio = clip.samples[max(first, end - 8 * 16_000) : end]
        key = ("endpoint", session_of(clip), max(first, end - 8 * 16_000), end)
        return self._ask("endpoint", key, lambda: self._client.endpoint(audio, 60.0))

    def transcript(self, clip: Clip, first: int, end: int) -> "Future[str]":
        audio = clip.samples[first:end]

        async def text() -> str:
            return (await self._client.transcribe(audio, "en", 60.0)).text

        return self._ask("transcript", ("transcript", session_of(clip), first, end), text)

    def backchannel(self, text: str, assistant: str, speech_us: int) -> "Future[float]":
        key = ("backchannel", text, assistant, speech_us)
        return self._ask(
            "backchannel",
            key,
            lambda: self._client.backchannel(text, assistant, "en", speech_us, 60.0),
        )

    def _ask(
        self, kind: str, key: Any, question: Callable[[], Coroutine[Any, Any, T]]
    ) -> "Future[T]":
        with self._lock:
            known = self._known.get(key)
            if known is None:
                known = asyncio.run_coroutine_threadsafe(self._timed(kind, question), self._loop)
                self._known[key] = known
            return known

    async def _timed(self, kind: str, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        begun = monotonic_s()
        answer = await question()
        self.took.setdefault(kind, []).append(monotonic_s() - begun)
        return answer

    @property
    def asked(self) -> int:
        return len(self._known)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> "Oracle":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
