"""From media records to 16 kHz mono samples, and from samples to windows (laws 6 and 7).

However a device slices its audio, the samples and windows are byte-identical: everything here is a
function of the media lane alone, counted in samples. Perception and inference run the same class over
the same records and so name the same samples.

Rules:
- A *format epoch* of a channel begins with its first media, with each change of rate or channel
  count, with each new `source` (a device that restarted), and after lost media too long to fill.
  Samples count from 0 in each.
- A channel has one source at a time, the newest: what a replaced source still sends is late.
- Resampling streams in float32 (int16 streams of soxr change with the chunking), then rounds and
  clips. 16 kHz mono passes through bit by bit. Stereo is averaged; more channels are refused.
- Media whose time lies more than `TOLERANCE_US` behind what the sample count expects was lost: up to
  `FILL_US` becomes silence, put in *after* resampling up to the absolute place that the media time
  names, so that a thousand gaps drift as little as one.
- Repeats are dropped silently. What fills a declared gap is late, and so is media of a source without
  sequence numbers whose time runs backwards.
- A window is 3 hops of 512 samples; what an epoch leaves over is padded with silence.
"""

from typing import Literal, NamedTuple

import numpy as np
import soxr
from numpy.typing import NDArray

from operators.admission import Admission, SourceWatermark
from operators.audio_ring import AudioRing
from operators.pcm_format import Rejected, checked_pcm
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.envelope import Pcm

__all__ = [
    "AudioRing",
    "ChannelAssembler",
    "EpochStarted",
    "Gap",
    "Piece",
    "Rejected",
    "Samples",
    "VadResets",
    "Window",
    "Windower",
    "levels_db",
    "samples_to_us",
    "us_to_samples",
]

Int16 = NDArray[np.int16]

TOLERANCE_US = 20_000
"""Media times may be this far from the sample count before media counts as lost (or late)."""
FILL_US = 2_000_000
"""Lost media up to this long becomes silence; longer begins a new epoch."""
IDS_KEPT = 1024
"""Ids remembered of a source that does not number its records."""
SOURCES_KEPT = 64
"""Replaced sources that are still recognised."""

RESET_BELOW = 0.1
"""A window whose hops all lie below this probability is confirmed silence."""
RESET_AFTER_WINDOWS = 21
"""Confirmed silence (2.016 s) after which the voice activity model's state is reset."""


def samples_to_us(samples: int) -> int:
    """µs of a number of 16 kHz samples; exact for whole windows."""
    return samples * 125 // 2


def us_to_samples(us: int) -> int:
    """The nearest number of 16 kHz samples."""
    return (2 * us + 62) // 125


class Samples(NamedTuple):
    """int16 at 16 kHz, mono; `first_sample` counts from the epoch's start."""

    epoch: int
    first_sample: int
    samples: Int16


class EpochStarted(NamedTuple):
    """Samples count from 0 again. `device_us` is the device's media time of sample 0, if it said so."""

    epoch: int
    rate: int
    channels: int
    previous_rate: int | None
    previous_channels: int | None
    device_us: int | None
    reason: Literal["first", "source", "format", "gap"]


class Gap(NamedTuple):
    """Media is missing before `first_sample` (not filled), or silence stands for it from there on."""

    epoch: int
    first_sample: int
    reason: Literal["lost", "sequence"]
    missing_us: int
    filled: bool


Piece = Samples | EpochStarted | Gap | Rejected


class _Source:
    """What one source has sent so far: numbers where it numbers its records, else its last ids."""

    __slots__ = ("ids", "mark")

    def __init__(self) -> None:
        self.mark = SourceWatermark()
        self.ids: dict[str, None] = {}

    def admit(self, id_: str, sequence: int | None) -> Admission:
        if sequence is not None:
            return self.mark.admit(id_, sequence)
        if id_ in self.ids:
            return "repeat"
        self.ids[id_] = None
        if len(self.ids) > IDS_KEPT:
            del self.ids[next(iter(self.ids))]
        return "new"


class _Run:
    """Media without a break within an epoch: device samples in, 16 kHz samples out."""

    __slots__ = ("channels", "fed", "first", "made", "rate", "resampler")

    def __init__(self, rate: int, channels: int, first: int) -> None:
        self.rate, self.channels, self.first = rate, channels, first
        self.fed = self.made = 0
        self.resampler = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
        )

    @property
    def next_us(self) -> int:
        """Time since the epoch's start at which the next device sample is due."""
        return samples_to_us(self.first) + self.fed * 1_000_000 // self.rate

    @property
    def next_sample(self) -> int:
        return self.first + self.made

    def convert(self, pcm: bytes) -> Int16:
        raw = np.frombuffer(pcm, "<i2")
        if self.channels == 2:
            mixed = raw[0::2].astype(np.int32) + raw[1::2]
            self.fed += len(mixed)
            if self.resampler is None:
                return self._count((mixed >> 1).astype(np.int16))
            return self._resample(mixed.astype(np.float32) * np.float32(1 / 65536), last=False)
        self.fed += len(raw)
        if self.resampler is None:
            return self._count(raw)
        return self._resample(raw.astype(np.float32) * np.float32(1 / 32768), last=False)

    def finish(self) -> Int16:
        """What the filter still holds."""
        if self.resampler is None or self.fed == 0:
            return np.empty(0, np.int16)
        return self._resample(np.empty(0, np.float32), last=True)

    def _resample(self, mono: NDArray[np.float32], last: bool) -> Int16:
        assert self.resampler is not None
        made = self.resampler.resample_chunk(mono, last=last)
        return self._count(np.clip(np.rint(made * 32768), -32768, 32767).astype(np.int16))

    def _count(self, samples: Int16) -> Int16:
        self.made += len(samples)
        return samples


class ChannelAssembler:
    """State of one channel of one session: media records in, pieces out. See the module's rules."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._replaced: dict[str, None] = {}
        self._source: str | None = None
        self._epoch = -1
        self._run: _Run | None = None
        self._format: tuple[int, int] | tuple[None, None] = (None, None)
        self._zero_us: int | None = None
        """The device's media time of the epoch's sample 0."""

    def feed(
        self, source: str, id: str, sequence: int | None, mediatime: int | None, pcm: Pcm
    ) -> list[Piece]:
        """The next record of the channel, in the log's order. `mediatime` is its first sample's, µs."""
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Source()
            self._forget_sources()
        before = known.mark.last
        admission = known.admit(id, sequence)
        if admission == "repeat":
            return []
        if source in self._replaced:
            return [
                Rejected("late", f"source {source} was replaced by {self._source} on this channel")
            ]
        if admission == "late":
            return [
                Rejected("late", f"sequence {sequence} came after {before}; its gap was declared")
            ]
        fresh = source != self._source
        data = checked_pcm(pcm, mediatime, fresh)
        if isinstance(data, Rejected):
            return [data]
        if not data:
            return []
        if fresh or self._run is None:
            return self._first(source, mediatime, pcm, data)
        skipped = sequence is not None and before is not None and sequence > before + 1
        return self._next(sequence, skipped, mediatime, pcm, data)

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, µs since its start) of the next device sample; epoch -1 before the first."""
        return self._epoch, 0 if self._run is None else self._run.next_us

    def flush(self) -> list[Piece]:
        """The media has ended: what the resampler still holds. Later media begins a new epoch."""
        pieces = self._finish_run()
        self._run = None
        return pieces

    def _first(self, source: str, mediatime: int | None, pcm: Pcm, data: bytes) -> list[Piece]:
        """The first record of the channel, of a source, or after a flush."""
        reason: Literal["first", "source", "gap"] = "first"
        if self._source == source:
            reason = "gap"
        elif self._source is not None:
            reason = "source"
            self._replaced[self._source] = None
        self._source = source
        return [*self._begin(mediatime, pcm, reason), *self._samples(data)]

    def _next(
        self, sequence: int | None, skipped: bool, mediatime: int | None, pcm: Pcm, data: bytes
    ) -> list[Piece]:
        """A further record of the same source."""
        run = self._run
        assert run is not None
        lost = 0
        if mediatime is not None:
            if self._zero_us is None:
                self._zero_us = mediatime - run.next_us
            lost = mediatime - self._zero_us - run.next_us
        if lost < -TOLERANCE_US and sequence is None:
            due = mediatime - lost if mediatime is not None else 0
            return [Rejected("late", f"media time {mediatime} came where {due} was due")]
        pieces: list[Piece] = []
        changed = pcm.rate != run.rate or pcm.channels != run.channels
        if changed or lost > FILL_US:
            pieces += self._begin(mediatime, pcm, "format" if changed else "gap")
            if lost > TOLERANCE_US:
                pieces.append(Gap(self._epoch, 0, "lost", lost, False))
        elif lost > TOLERANCE_US:
            pieces += self._fill(run.next_us + lost)
        elif skipped and mediatime is None:
            pieces.append(Gap(self._epoch, run.next_sample, "sequence", 0, False))
        return [*pieces, *self._samples(data)]

    def _begin(
        self, mediatime: int | None, pcm: Pcm, reason: Literal["first", "source", "format", "gap"]
    ) -> list[Piece]:
        pieces = self._finish_run()
        self._epoch += 1
        self._zero_us = mediatime
        self._run = _Run(pcm.rate, pcm.channels, 0)
        rate, channels = self._format
        self._format = (pcm.rate, pcm.channels)
        started = EpochStarted(
            self._epoch, pcm.rate, pcm.channels, rate, channels, mediatime, reason
        )
        return [*pieces, started]

    def _fill(self, until_us: int) -> list[Piece]:
        """Silence up to the sample that the media time names; resampling begins anew behind it."""
        pieces = self._finish_run()
        run = self._run
        assert run is not None
        at, until = run.next_sample, us_to_samples(until_us)
        silence = np.zeros(until - at, np.int16)
        pieces.append(Gap(self._epoch, at, "lost", samples_to_us(len(silence)), True))
        pieces.append(Samples(self._epoch, at, silence))
        self._run = _Run(run.rate, run.channels, until)
        return pieces

    def _samples(self, data: bytes) -> list[Piece]:
        run = self._run
        assert run is not None
        at = run.next_sample
        samples = run.convert(data)
        return [Samples(self._epoch, at, samples)] if len(samples) else []

    def _finish_run(self) -> list[Piece]:
        if self._run is None:
            return []
        at = self._run.next_sample
        tail = self._run.finish()
        return [Samples(self._epoch, at, tail)] if len(tail) else []

    def _forget_sources(self) -> None:
        if len(self._sources) > SOURCES_KEPT:
            oldest = next(name for name in self._sources if name != self._source)
            del self._sources[oldest]
            self._replaced.pop(oldest, None)


class Window(NamedTuple):
    """Exactly `WINDOW_SAMPLES` samples of an epoch; the last `padded` are not media but silence."""

    epoch: int
    first_sample: int
    audio: Int16
    padded: int = 0


class Windower:
    """Cuts an epoch's samples into windows and carries the rest; gaps in the samples there are none."""

    __slots__ = ("_epoch", "_next", "_rest")

    def __init__(self) -> None:
        self._epoch, self._next = 0, 0
        self._rest: Int16 = np.empty(0, np.int16)

    def feed(self, piece: Samples) -> list[Window]:
        """The windows that are complete now; one of another epoch first finishes the epoch before."""
        done = self.finish() if piece.epoch != self._epoch else []
        self._epoch = piece.epoch
        held = np.concatenate((self._rest, piece.samples)) if len(self._rest) else piece.samples
        count = len(held) // WINDOW_SAMPLES
        for i in range(count):
            cut = held[i * WINDOW_SAMPLES : (i + 1) * WINDOW_SAMPLES]
            done.append(Window(self._epoch, self._next + i * WINDOW_SAMPLES, cut))
        self._next += count * WINDOW_SAMPLES
        # A copy: a view would keep the whole chunk.
        self._rest = held[count * WINDOW_SAMPLES :].copy() if count else held
        return done

    def finish(self) -> list[Window]:
        """The epoch has ended: its unfinished window, padded with silence."""
        rest, at = self._rest, self._next
        self._rest, self._next = rest[:0].copy(), 0
        if not len(rest):
            return []
        padded = WINDOW_SAMPLES - len(rest)
        return [Window(self._epoch, at, np.pad(rest, (0, padded)), padded)]


class VadResets:
    """When the recurrent model starts afresh: at an epoch's start, after a window it did not answer,
    and each time confirmed silence has lasted `RESET_AFTER_WINDOWS` since speech or the last reset.
    """

    __slots__ = ("_due", "_quiet")

    def __init__(self) -> None:
        self._due, self._quiet = True, 0

    def before(self, window: Window) -> bool:
        """Whether the state is reset before this window; call once a window."""
        due = self._due or window.first_sample == 0
        if due:
            self._due, self._quiet = False, 0
        return due

    def after(self, probabilities: tuple[float, ...] | None) -> None:
        """What the model said of the window; None if it did not answer."""
        if probabilities is None:
            self._due = True
        elif max(probabilities) < RESET_BELOW:
            self._quiet += 1
            self._due = self._quiet >= RESET_AFTER_WINDOWS
        else:
            self._quiet = 0


def levels_db(windows: Int16) -> list[float]:
    """RMS of each row of int16 [B, N], dB relative to full scale, rounded to .1; -100 at least."""
    # Squares of int16 sum exactly in float64, so that no order of summing changes the level.
    wide = windows.astype(np.float64)
    mean = np.einsum("ij,ij->i", wide, wide) / windows.shape[1]
    decibels = 10.0 * np.log10(np.maximum(mean / 32768.0**2, 1e-10))
    return [round(value, 1) for value in decibels.tolist()]
