"""The room of a virtual device: what its loudspeaker plays comes back into its microphone, later and quieter (`--echo`).

The loudspeaker tells what it has played, stretch by stretch (`infra.capture.loudspeaker`); the room keeps that on a tape in media time
and mixes the tape into the sound that is sent. An echo comes after its sound, so nothing is mixed that is still to be decided.
"""

import re
from typing import Any, NamedTuple, Self

import numpy as np
import soxr
from numpy.typing import NDArray

from schemas.base import parse_duration
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput

Float = NDArray[np.float32]
S = 1_000_000
LONGEST_US = 5 * S
_LEVEL = re.compile(r"\s*([+-]?[0-9]*\.?[0-9]+)\s*dB\s*", re.IGNORECASE)
OVER = ("response.ended", "response.cancelled", "response.failed")
JOINT = 2
"""Stretches that begin this many samples beside the end of the one before go on without a joint."""


class Echo(NamedTuple):
    """How much quieter than it was played a sound comes back, and how much later."""

    level_db: float
    delay_us: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `-12dB,150ms`.

        Raises:
            BadInput: it is something else.
        """
        level, _, delay = text.partition(",")
        match = _LEVEL.fullmatch(level)
        try:
            delay_us: Any = parse_duration(delay)
        except ValueError:
            delay_us = None
        if match is None or delay_us is None or not -90 <= float(match[1]) <= 20:
            raise BadInput(f"--echo {text}: a level up to 20dB and a delay, as in -12dB,150ms")
        if delay_us > LONGEST_US:
            raise BadInput(f"--echo {text}: the delay is at most {LONGEST_US // S} s")
        return cls(float(match[1]), delay_us)


class Room:
    """See the module. Everything is mono, at the rate of the device's microphone."""

    def __init__(self, echo: Echo, rate: int) -> None:
        self.rate = rate
        self._gain = np.float32(10 ** (echo.level_db / 20))
        self._delay = round(echo.delay_us * rate / S)
        self._speech: dict[str, list[Float]] = {}
        self._resamplers: dict[str, Any] = {}
        self._tape: Float = np.zeros(0, np.float32)
        self._first = 0
        """The sample of media time at which the tape begins; nobody asks for what lies before."""
        self._end = 0
        """Where the last stretch ends."""

    def follow(self, event: Event) -> None:
        """Speech is kept as long as it may be played."""
        if event.type == "response.speech":
            self._add(event.correlation or "", event.data)
        elif event.type in OVER:
            self._speech.pop(event.data.response, None)
            self._resamplers.pop(event.data.response, None)

    def _add(self, response: str, pcm: Pcm) -> None:
        sound = np.frombuffer(pcm.pcm, "<i2").reshape(-1, pcm.channels).mean(axis=1, dtype="f4")
        if pcm.rate != self.rate:
            resampler = self._resamplers.get(response)
            if resampler is None:
                resampler = soxr.ResampleStream(pcm.rate, self.rate, 1, "float32", "HQ")
                self._resamplers[response] = resampler
            sound = resampler.resample_chunk(sound)
        self._speech.setdefault(response, []).append(sound)

    def plays(self, response: str, at_us: int, from_us: int, until_us: int) -> None:
        """A stretch of a response, by its positions, was played from `at_us` on."""
        pieces = self._speech.get(response)
        if not pieces:
            return
        if len(pieces) > 1:
            self._speech[response] = pieces = [np.concatenate(pieces)]
        first, last = (round(us * self.rate / S) for us in (from_us, until_us))
        sound = pieces[0][first:last]
        at = round(at_us * self.rate / S)
        if abs(at - self._end) <= JOINT:
            at = self._end
        self._end = at + len(sound)
        sound = sound[max(0, self._first - at) :]
        start = max(0, at - self._first)
        if len(self._tape) < start + len(sound):
            self._tape = np.pad(self._tape, (0, start + len(sound) - len(self._tape)))
        self._tape[start : start + len(sound)] = sound

    def mix(self, pcm: Pcm, at_us: int) -> Pcm:
        """The sound of the microphone from `at_us` on, with the echo in it."""
        begin = round(at_us * self.rate / S) - self._delay
        heard = np.zeros(pcm.samples, np.float32)
        start = max(begin, self._first)
        part = self._tape[start - self._first : max(0, begin + pcm.samples - self._first)]
        heard[start - begin : start - begin + len(part)] = part
        drop = max(0, begin + pcm.samples - self._first)
        self._tape, self._first = self._tape[drop:], self._first + drop
        sound = np.frombuffer(pcm.pcm, "<i2").reshape(-1, pcm.channels).astype(np.float32)
        mixed = np.clip(np.rint(sound + self._gain * heard[:, None]), -32768, 32767)
        return Pcm(pcm.rate, pcm.channels, mixed.astype("<i2").tobytes())
