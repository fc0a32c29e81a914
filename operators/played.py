"""What a session's loudspeaker was playing, as samples on the media timeline: 16 kHz mono, sample 0 at media time 0.

The log says it before the echo reaches a microphone: a device acknowledges from which position of a response it plays from when on; until
it says otherwise it is taken to play on, as `operators.playout` does. Rules:
- What was said for a later time than is asked about waits (`until`), so that what was played depends on media time, not on how the
  device slices its sound.
- Nothing is kept but speech and stretches, and sound is put together when it is asked for. What lies behind is forgotten, and speech
  that waits is bounded.
"""

from typing import Any, NamedTuple

import numpy as np
import soxr
from numpy.typing import NDArray

from operators.window import us_to_samples
from schemas.base import SAMPLE_RATE
from schemas.envelope import Event, Pcm

Float = NDArray[np.float32]

EVENTS = frozenset(
    {
        "response.speech",
        "playback.ack",
        "response.ended",
        "response.cancelled",
        "response.failed",
    }
)
"""What `follow` wants to see."""

KEEP = 2 * SAMPLE_RATE
"""Samples that are remembered of what has been played."""
LONGEST = 120 * SAMPLE_RATE
"""Samples of a response that wait to be played; what comes while there are so many, and after, has no guard."""
RESPONSES = 8
"""Responses that are held; a session plays one at a time, and few are made in advance."""
WAITING = 64
"""Things said for a later time that wait; beyond, the oldest counts at once."""
JITTER = SAMPLE_RATE * 6 // 100
"""An acknowledgement this near to where uninterrupted playing puts it moves nothing: its time is less exact than the samples."""
CUT_WITHIN = SAMPLE_RATE // 2
"""A response that is over is not played for longer than this, even if its device says nothing more."""

FOREVER = 1 << 62


class _Stretch(NamedTuple):
    """A response is played from media sample `at` on, beginning with its sample `position`, until media sample `end`."""

    at: int
    position: int
    end: int


class _Speech:
    """The speech of one response that is not far behind, and the stretches of it that were played."""

    __slots__ = (
        "_full",
        "_rate",
        "_resampler",
        "_said",
        "first",
        "last_at",
        "over",
        "pcm",
        "stretches",
    )

    def __init__(self) -> None:
        self.pcm = bytearray()
        self.first = 0
        """The response's sample at which `pcm` begins."""
        self.stretches: list[_Stretch] = []
        self.last_at = -1
        """Time of the newest acknowledgement."""
        self.over = self._full = False
        self._rate = SAMPLE_RATE
        self._resampler: Any = None
        self._said: dict[str | None, int] = {}
        """Request → its last chunk: the raw log may hold a repeat."""

    @property
    def length(self) -> int:
        return self.first + len(self.pcm) // 2

    def add(self, request: str | None, chunk: int, pcm: Pcm) -> None:
        # Once something is left out, what follows would lie in the wrong place.
        self._full = self._full or len(self.pcm) >= 2 * LONGEST
        if chunk <= self._said.get(request, -1) or self._full or self.over:
            return
        self._said[request] = chunk
        raw = np.frombuffer(pcm.pcm, "<i2").reshape(-1, pcm.channels)
        sound = raw.mean(axis=1, dtype=np.float32)
        if pcm.rate != self._rate:
            self._rate = pcm.rate
            self._resampler = soxr.ResampleStream(pcm.rate, SAMPLE_RATE, 1, "float32", "HQ")
        if self._rate != SAMPLE_RATE:
            sound = self._resampler.resample_chunk(sound)
        self.pcm += np.clip(np.rint(sound), -32768, 32767).astype("<i2").tobytes()

    def end_of(self, stretch: _Stretch) -> int:
        """Where a stretch ends, if speech runs out first."""
        return min(stretch.end, stretch.at + self.length - stretch.position)

    def acknowledged(self, at: int, position: int, playing: bool) -> None:
        if at < self.last_at:
            return  # said again by a device that waits, or overtaken
        self.last_at = at
        last = self.stretches[-1] if self.stretches else None
        if last is not None and (last.end == FOREVER or self.over):
            due = last.at + max(0, position - last.position)
            if playing and abs(due - at) <= JITTER:
                return
            end = min(at, due) if playing else due
            self.stretches[-1] = last._replace(end=min(last.end, end))
        if playing and not self.over:
            self.stretches.append(_Stretch(at, position, FOREVER))

    def finished(self, at: int) -> None:
        self.over = True
        until = at + CUT_WITHIN
        self.stretches = [s._replace(end=min(s.end, until)) for s in self.stretches]

    def forget(self, before: int) -> None:
        self.stretches = [s for s in self.stretches if self.end_of(s) > before or s.end == FOREVER]
        if self.stretches:
            behind = self.stretches[0].position + before - self.stretches[0].at
            drop = min(max(0, behind - self.first), len(self.pcm) // 2)
            del self.pcm[: 2 * drop]
            self.first += drop


class Played:
    """See the module. All times are media samples at 16 kHz, unless they are called µs."""

    __slots__ = ("_responses", "_waiting")

    def __init__(self) -> None:
        self._responses: dict[str, _Speech] = {}
        self._waiting: list[tuple[int, Event]] = []

    def follow(self, event: Event, at_us: int) -> None:
        """Take an event of the session at media time `at_us`, in the log's order."""
        if event.type == "response.speech":
            name = event.correlation or ""
            speech = self._responses.get(name)
            if speech is None:
                speech = self._responses[name] = _Speech()
                if len(self._responses) > RESPONSES:
                    del self._responses[next(iter(self._responses))]
            speech.add(event.cause, event.sequence or 0, event.data)
        elif event.data.response in self._responses:
            self._waiting.append((us_to_samples(at_us), event))
            if len(self._waiting) > WAITING:
                self._happened(*self._waiting.pop(0))

    def until(self, end: int) -> None:
        """Take what was said for the time up to `end`, and let go of what lies far behind it."""
        if self._waiting and min(self._waiting, key=lambda said: said[0])[0] <= end:
            waiting, self._waiting = self._waiting, []
            for at, event in waiting:
                if at <= end:
                    self._happened(at, event)
                else:
                    self._waiting.append((at, event))
        for name, speech in list(self._responses.items()):
            speech.forget(end - KEEP)
            if speech.over and not speech.stretches:
                del self._responses[name]

    def _happened(self, at: int, event: Event) -> None:
        speech = self._responses.get(event.data.response)
        if speech is None:
            return
        if event.type == "playback.ack":
            position = us_to_samples(event.data.played_us)
            speech.acknowledged(at, position, event.data.state == "playing")
        else:
            speech.finished(at)

    @property
    def idle(self) -> bool:
        """Whether there is nothing that was, is or may soon be played."""
        return not self._responses

    def sounds(self, first: int, end: int) -> bool:
        """Whether anything was played in between."""
        return any(
            stretch.at < end and speech.end_of(stretch) > first
            for speech in self._responses.values()
            for stretch in speech.stretches
        )

    def samples(self, first: int, count: int) -> Float:
        """What was played from `first` on: float32 [count] within ±1, silence where nothing was."""
        out = np.zeros(count, np.float32)
        for speech in self._responses.values():
            for stretch in speech.stretches:
                start = max(first, stretch.at, stretch.at + speech.first - stretch.position)
                end = min(first + count, speech.end_of(stretch))
                if start < end:
                    at = 2 * (stretch.position + start - stretch.at - speech.first)
                    cut = bytes(speech.pcm[at : at + 2 * (end - start)])
                    out[start - first : end - first] += np.frombuffer(cut, "<i2")
        return out * np.float32(1 / 32768)
