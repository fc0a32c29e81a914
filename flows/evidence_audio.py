"""The user's own sound that a request rests on, cut from the log when a work wants to hear it.

Few works do, so nothing is kept for them: the session's two lanes are read when one asks.

- It is what perception windows of the session's channel were made of, up to the request's cutoff to the sample, at most `MOST_US` of it
  and no more than the policy's `work.lookback`. Lost media and a muted microphone are silence of their length.
- Only windows that stand before the request in the log count: on those it was decided.
- Samples are counted by the same `ChannelAssembler` as everywhere, and every window must have the level that the log says. So media
  that was redacted, or whose beginning has expired (which moves the count), is known not to be there, instead of being heard.
"""

import asyncio
from collections.abc import Callable, Iterator
from threading import Event as Flag

import numpy as np
from numpy.typing import NDArray

from flows.audio_store import AudioGone
from infra.timeline.port import Timeline
from operators.window import ChannelAssembler, Piece, Samples, levels_db, us_to_samples
from schemas.base import WINDOW_SAMPLES, WINDOW_US
from schemas.cloudevents import decode, wire_type
from schemas.envelope import Event
from schemas.errors import BadRecord
from schemas.perception import PerceptionWindow
from schemas.policy import Policy
from schemas.record import Lane

MOST_US = 30_000_000
WITHIN_S = 10.0
"""Wall time for reading it; a work that hears nothing still has the words."""
SAME_DB = 0.11
"""Levels are logged to .1."""

Int16 = NDArray[np.int16]

_READ = {
    wire_type(name).encode()
    for name in (
        "session.configured",
        "session.updated",
        "input.muted",
        "input.unmuted",
        "perception.window",
        "work.queued",
    )
}


class EvidenceAudio:
    """Cuts the audio of `work.queued` events; see the module."""

    def __init__(self, open_timeline: Callable[[], Timeline]) -> None:
        self._open = open_timeline

    async def __call__(self, request: Event) -> bytes:
        """PCM16 at 16 kHz, mono; empty where the user has no sound, or the policy allows no evidence.

        Raises:
            AudioGone: there was sound, and it cannot be had.
        """
        given_up = Flag()
        try:
            async with asyncio.timeout(WITHIN_S):
                return (await asyncio.to_thread(self._cut, request, given_up)).tobytes()
        except TimeoutError:
            raise AudioGone(f"the media could not be read within {WITHIN_S:g} s") from None
        finally:
            given_up.set()

    def _cut(self, request: Event, given_up: Flag) -> Int16:
        with self._open() as timeline:
            heard = _Heard(request)
            for event in _events(timeline, Lane.TIMELINE, request.session, given_up):
                if event.id == request.id:
                    break
                heard.see(event)
            windows = heard.windows()
            if not windows:
                return np.empty(0, np.int16)
            audio = _windows(timeline, request.session, heard.channel, windows, given_up)
        return _put_together(windows, audio, heard.from_us, heard.cutoff_us)


def _events(timeline: Timeline, lane: Lane, session: str, given_up: Flag) -> Iterator[Event]:
    for record in timeline.scan(lane, timeline.partition_of(session), 0, session):
        if given_up.is_set():
            raise AudioGone("nobody waits for it any more")
        if lane is Lane.TIMELINE and dict(record.headers).get("ce_type") not in _READ:
            continue
        try:
            yield decode(record)
        except BadRecord:
            continue  # perception rejects it; it has no samples


class _Heard:
    """What the timeline lane says of the sound before a request."""

    def __init__(self, request: Event) -> None:
        self.cutoff_us: int = request.data.cutoff_us
        self.channel = "mic"
        self._policy = Policy()
        self._windows: dict[tuple[int, int], PerceptionWindow] = {}
        self._muted = False
        self._again_us = 0

    @property
    def from_us(self) -> int:
        work = self._policy.work
        longest = min(MOST_US, work.lookback) if work.evidence_items else 0
        return max(0, self.cutoff_us - longest)

    def see(self, event: Event) -> None:
        data, at = event.data, event.mediatime
        match event.type:
            case "session.configured":
                self.channel, self._policy = data.channel, data.policy
            case "session.updated":
                self._policy = self._policy.with_accepted(data.policy)
            case "input.muted":
                # Where it names a time, windows may have come before it that belong behind it.
                self._muted = True
                late = [k for k, w in self._windows.items() if at is not None and at < _end(w)]
                for key in late:
                    del self._windows[key]
            case "input.unmuted":
                self._muted, self._again_us = False, at or 0
            case "perception.window":
                wanted = self.cutoff_us - MOST_US < _end(data) and data.start_us < self.cutoff_us
                if wanted and not self._muted and data.start_us >= self._again_us:
                    self._windows.setdefault((data.epoch, data.first_sample), data)

    def windows(self) -> list[PerceptionWindow]:
        """Those that hold any of it, in the order of the samples."""
        found = sorted(self._windows.items())
        return [w for _, w in found if w.channel == self.channel and _end(w) > self.from_us]


def _end(window: PerceptionWindow) -> int:
    return window.start_us + WINDOW_US


def _windows(
    timeline: Timeline,
    session: str,
    channel: str,
    windows: list[PerceptionWindow],
    given_up: Flag,
) -> Int16:
    """The samples of each window, a row for each.

    Raises:
        AudioGone: they are not those that were heard.
    """
    rows = {(w.epoch, w.first_sample): i for i, w in enumerate(windows)}
    audio = np.zeros((len(windows), WINDOW_SAMPLES), np.int16)
    last = (windows[-1].epoch, windows[-1].first_sample + WINDOW_SAMPLES)
    for piece in _pieces(timeline, session, channel, given_up):
        if isinstance(piece, Samples):
            _fill(audio, rows, piece)
            if (piece.epoch, piece.first_sample + len(piece.samples)) >= last:
                break
    levels = zip(levels_db(audio), (w.level_db for w in windows), strict=True)
    if any(abs(found - logged) > SAME_DB for found, logged in levels):
        raise AudioGone("its media is not kept any more, or was redacted")
    return audio


def _pieces(timeline: Timeline, session: str, channel: str, given_up: Flag) -> Iterator[Piece]:
    assembler = ChannelAssembler()
    for event in _events(timeline, Lane.MEDIA, session, given_up):
        if event.type == "media.audio" and (event.correlation or channel) == channel:
            yield from assembler.feed(
                event.source, event.id, event.sequence, event.mediatime, event.data
            )
    yield from assembler.flush()


def _fill(audio: Int16, rows: dict[tuple[int, int], int], piece: Samples) -> None:
    done = 0
    while done < len(piece.samples):
        index, within = divmod(piece.first_sample + done, WINDOW_SAMPLES)
        take = min(len(piece.samples) - done, WINDOW_SAMPLES - within)
        row = rows.get((piece.epoch, index * WINDOW_SAMPLES))
        if row is not None:
            audio[row, within : within + take] = piece.samples[done : done + take]
        done += take


def _put_together(
    windows: list[PerceptionWindow], audio: Int16, from_us: int, cutoff_us: int
) -> Int16:
    """The windows where they were heard, from the first one to the cutoff."""
    begin = max(from_us, min(w.start_us for w in windows))
    out = np.zeros(us_to_samples(cutoff_us - begin), np.int16)
    for window, samples in zip(windows, audio, strict=True):
        at = us_to_samples(window.start_us) - us_to_samples(begin)
        part = samples[max(0, -at) : max(0, len(out) - at)]
        out[max(0, at) : max(0, at) + len(part)] = part
    return out if out.any() else out[:0]
