"""How much of the microphone is the assistant's own speech, come back from the loudspeaker (0..1, per window).

Method, from what acoustic echo cancellers have long done:
- *Delay*: generalised cross-correlation of microphone and playback over the last half second, with the cross spectrum's magnitude
  flattened (Knapp and Carter 1976; here to the power `FLATTEN`, since speech leaves bands empty). A peak counts by how far it stands
  out from the other delays, which needs no threshold on levels; one that is not overwhelming counts when it comes back. It is looked
  for again while something is heard that the known delay does not explain.
- *Echo path*: at that delay, one complex gain per frequency band, fitted by recursive least squares to short spectra (an echo canceller
  with one tap a band). A spectrum weighs the less the worse it is explained, so that somebody who speaks over the echo does not
  spoil the path (iteratively reweighted least squares). Its phases follow the few samples by which a device's times are inexact.
- *Value*: the multiple correlation √(1 − residual / microphone) of the newest spectra, by the path that was known before them: 1 where
  the playback explains all that is heard, near 0 where a user speaks, alone or over the echo.

Nothing is known (None) while nothing was played lately, and until a delay has been found: no claim is better than a wrong one.
Delay and path are kept from one response to the next. Times are media samples at 16 kHz; the state is bounded by `HISTORY`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from operators.played import Played
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES

Float = NDArray[np.float32]
Complex = NDArray[np.complex64]

RECENT = SAMPLE_RATE * 6 // 10
"""Samples after the end of playback in which its echo may still be heard."""
LATEST = SAMPLE_RATE // 2
"""The longest delay that is looked for, in samples."""
EARLIEST = SAMPLE_RATE // 10
"""How much an echo may seem to come before its sound, where acknowledgements are late."""
HISTORY = 16_384 - LATEST - EARLIEST
"""Samples of the microphone in which a delay is looked for: with the delays one FFT of 8192 at half the rate."""
FLATTEN = 0.8
SURE = 8.5
"""A peak this many times as high as the usual correlation at other delays is an echo (unrelated speech: up to 7.5) …"""
LIKELY = 6.0
"""… and one this high is if the next search finds it again …"""
SAME = 16
"""… within this many samples."""
BESIDE = 16
"""Delays (at half the rate) on each side that belong to a peak."""
EDGE = 64
"""Delays at both ends (at half the rate) that do not count: where speech begins or ends, they catch what lies beyond."""
EXPLAINED = 0.6
"""A value from which on the known delay is the right one."""
NEAR, FINE = 64, 4
"""An echo that is expected is looked for within so many samples, by the quarter of a sample."""
PLAUSIBLE = 0.4
"""A delay that explains less of what it was found in is none."""
SEARCHES = 20
"""Searches without success, one a window, after which only every `SELDOM`th window is searched."""
SELDOM = 5
AUDIBLE = 1e-6
"""Mean square (−60 dB of full scale) below which no delay is looked for."""

SEGMENT, HOP = 1024, 512
_TAPER = np.hanning(SEGMENT + 1)[:-1].astype(np.float32)
_FREQUENCY = np.fft.rfftfreq(SEGMENT, 1 / SAMPLE_RATE)
_BANDS = slice(int(np.searchsorted(_FREQUENCY, 150)), int(np.searchsorted(_FREQUENCY, 7000)))
_WEIGHT = (np.abs(1 - 0.9 * np.exp(-2j * np.pi * _FREQUENCY[_BANDS] / SAMPLE_RATE)) ** 2).astype(
    np.float32
)
"""Of each band in the value: voiced speech has most of its power below 500 Hz, where small loudspeakers have none."""
MEMORY = 0.97
"""What remains of the path's evidence after a further segment: about 1 s."""
TAIL = 0.01
"""Share of a segment that no path explains (reverberation, noise): bounds how much one segment can weigh."""
VALUE_SEGMENTS = 5
"""Segments that a value is taken from: 192 ms."""
DIGITS = 3
"""Decimals of a value; more would be the arithmetic's noise."""


class Peak(NamedTuple):
    """A delay in samples, and how far its correlation stands out."""

    delay: int
    height: float


def find_delay(microphone: Float, played: Float) -> Peak:
    """The likeliest delay of what was played in the microphone.

    Args:
        microphone: [n], the newest last.
        played: [LATEST + n + EARLIEST], from `LATEST` before the microphone's first sample on.
    """
    half_mic = microphone[0::2] + microphone[1::2]
    half_ref = played[0::2] + played[1::2]
    size = 1 << (len(half_ref) - 1).bit_length()
    cross = np.fft.rfft(half_ref, size) * np.conj(np.fft.rfft(half_mic, size))
    magnitude = np.abs(cross)
    cross *= (magnitude + 1e-6 * magnitude.max() + 1e-30) ** -FLATTEN
    # A loudspeaker may turn the sound upside down.
    correlation = np.abs(np.fft.irfft(cross, size)[: (LATEST + EARLIEST) // 2 + 1])
    best = int(correlation.argmax())
    height = float(correlation[best])
    # Where one of the two is silent for a part, most delays correlate with nothing, and the median says too little.
    correlation[max(0, best - BESIDE) : best + BESIDE] = 0.0
    if not EDGE <= best < len(correlation) - EDGE:
        return Peak(LATEST - 2 * best, 0.0)
    usual = max(
        float(np.median(correlation)) / 0.6745,
        float(np.sqrt(np.mean(correlation * correlation))),
    )
    return Peak(LATEST - 2 * best, height / usual if usual else 0.0)


def spectra(sound: Float) -> Complex:
    """Short spectra of [SEGMENT + HOP * k] samples, one every `HOP`: [k + 1, bands]."""
    cut = np.lib.stride_tricks.sliding_window_view(sound, SEGMENT)[::HOP]
    bands: Complex = np.fft.rfft(cut * _TAPER, axis=1)[:, _BANDS].astype(np.complex64)
    return bands


class EchoPath:
    """One gain per band from playback to microphone, and how well it explains what comes."""

    __slots__ = ("_cross", "_power", "heard", "residual")

    def __init__(self) -> None:
        self._power = np.zeros(len(_WEIGHT), np.float32)
        self._cross = np.zeros(len(_WEIGHT), np.complex64)
        self.heard: list[float] = []
        self.residual: list[float] = []

    def copy(self) -> "EchoPath":
        other = EchoPath()
        other._power, other._cross = self._power, self._cross
        return other

    def hear(self, microphone: Complex, played: Complex) -> None:
        """Further segments, [k, bands] each: first judge them by the path so far, then learn from them."""
        power = (played.real**2 + played.imag**2).astype(np.float32)
        echo = self._gain() * played
        heard, residual = _weighed(microphone), _weighed(microphone - echo)
        if residual.sum() > (1 - EXPLAINED**2) * heard.sum():
            turn = _turn(echo, microphone)
            turned = _weighed(microphone - turn * echo)
            if turned.sum() < min(0.8 * residual.sum(), (1 - PLAUSIBLE**2) * heard.sum()):
                self._cross, residual = self._cross * turn, turned
        residual = np.minimum(residual, heard)
        self.heard = [*self.heard, *heard.tolist()][-VALUE_SEGMENTS:]
        self.residual = [*self.residual, *residual.tolist()][-VALUE_SEGMENTS:]
        # Pauses of the playback say nothing of the path and must not make it fade.
        loud = power.mean(axis=1) > 1e-7 * SEGMENT
        if loud.any():
            weight = (loud / (residual + TAIL * heard + 1e-9))[:, None].astype(np.float32)
            fade = np.float32(MEMORY ** int(loud.sum()))
            self._power = fade * self._power + (weight * power).sum(axis=0)
            self._cross = fade * self._cross + (weight * np.conj(played) * microphone).sum(axis=0)

    def _gain(self) -> Complex:
        floor = 1e-3 * self._power.mean() + np.float32(1e-12)
        gain: Complex = (self._cross / (self._power + floor)).astype(np.complex64)
        return gain

    @property
    def value(self) -> float:
        """The multiple correlation of the newest segments with the playback, 0..1."""
        heard = sum(self.heard)
        share = 1.0 - sum(self.residual) / heard if heard > 0.0 else 0.0
        return round(math.sqrt(max(0.0, share)), DIGITS)


def _weighed(spectrum: Complex) -> NDArray[np.float32]:
    """Power of each segment over the bands, [k]."""
    power: Float = ((spectrum.real**2 + spectrum.imag**2) @ _WEIGHT).astype(np.float32)
    return power


def _turn(echo: Complex, microphone: Complex) -> Complex:
    """What turns the phases of an expected echo so that it comes when it is heard: the few samples that the device's times are off."""
    cross = (np.conj(echo) * microphone).sum(axis=0) * _WEIGHT
    wide = np.zeros(SEGMENT * FINE // 2 + 1, np.complex64)
    wide[_BANDS] = cross / np.sqrt(np.abs(cross) + np.float32(1e-30))
    correlation = np.fft.irfft(wide)
    late = np.concatenate((correlation[-NEAR * FINE :], correlation[: NEAR * FINE]))
    shift = (int(late.argmax()) - NEAR * FINE) / FINE
    turn: Complex = np.exp(_FREQUENCY[_BANDS] * (-2j * np.pi * shift / SAMPLE_RATE)).astype("c8")
    return turn


class EchoMeter:
    """Of one microphone: delay, path, and the last half second."""

    __slots__ = ("_candidate", "_known", "_path", "_recent", "_searched", "_since", "delay")

    def __init__(self) -> None:
        self.delay: int | None = None
        """Samples from loudspeaker to microphone; None until it is known."""
        self._path = EchoPath()
        self._recent: Float = np.zeros(0, np.float32)
        """The microphone's last samples, up to `HISTORY`, while something is played."""
        self._known = 0
        """The media sample at which they end."""
        self._candidate: Peak | None = None
        self._searched = 0
        """Searches in vain since playback began or its echo was last explained."""
        self._since = 0
        """Windows since the last search."""

    def hear(self, window: NDArray[np.int16], first: int, played: Played) -> float | None:
        """The echo of the next window, int16 [n·HOP] from media sample `first` on; None where nothing can be said."""
        if played.idle:
            return None
        end = first + len(window)
        played.until(end)
        if not played.sounds(first - RECENT, end):
            return None
        sound = window.astype(np.float32) * np.float32(1 / 32768)
        if first != self._known:
            self._recent, self._searched = self._recent[:0], 0
            self._path.heard, self._path.residual = [], []
        self._recent = np.concatenate((self._recent[len(sound) - HISTORY :], sound))
        self._known = end
        audible = float(np.dot(sound, sound)) >= AUDIBLE * len(sound)
        if self.delay is not None:
            count = min(len(sound) + HOP, len(self._recent))
            self._follow(self._path, self.delay, count, played)
            if not audible or self._path.value >= EXPLAINED:
                self._searched, self._candidate = 0, None
                return self._path.value
        self._since += 1
        enough = len(self._recent) >= 2 * WINDOW_SAMPLES
        if audible and enough and self._due and played.sounds(first, end):
            self._search(played)
        return None if self.delay is None else self._path.value

    @property
    def _due(self) -> bool:
        """Whether to look for the delay now: while something is heard that it does not explain, and seldom if that is long."""
        return self._searched < SEARCHES or self._since >= SELDOM

    def _search(self, played: Played) -> None:
        self._since, self._searched = 0, self._searched + 1
        count = len(self._recent)
        start, length = self._known - count - LATEST, LATEST + count + EARLIEST
        peak = find_delay(self._recent, played.samples(start, length))
        before, self._candidate = self._candidate, None
        if peak.height < LIKELY or (
            self.delay is not None and abs(peak.delay - self.delay) <= SAME
        ):
            return
        if peak.height < SURE and (before is None or abs(peak.delay - before.delay) > SAME):
            self._candidate = peak
            return
        # The room may be the one that is known, or another.
        new = max(
            (self._learned(path, peak.delay, played) for path in (EchoPath(), self._path.copy())),
            key=lambda path: path.value,
        )
        if new.value >= max(PLAUSIBLE, self._path.value):
            self.delay, self._path, self._searched = peak.delay, new, 0

    def _learned(self, path: EchoPath, delay: int, played: Played) -> EchoPath:
        """A path after all that is held was heard by it, and what is newest once more, to be judged by a path that is known."""
        for count in (len(self._recent), min(len(self._recent), WINDOW_SAMPLES + HOP)):
            self._follow(path, delay, count, played)
        return path

    def _follow(self, path: EchoPath, delay: int, count: int, played: Played) -> None:
        """Let a path hear the last `count` samples, whole segments of them."""
        count = SEGMENT + (count - SEGMENT) // HOP * HOP
        sound = played.samples(self._known - count - delay, count)
        path.hear(spectra(self._recent[len(self._recent) - count :]), spectra(sound))
