"""The conversation as sound: a stereo wav from a session's records, the user left, the assistant right, on one clock.

- Left: the media of the session's channel, where its perception windows say that it was heard; what was lost or never sent is silence of
  the right length.
- Right: the speech that the device's acknowledgements say was played, each stretch where it was played; a pause is silence, and what was
  cut or never played is not there. Without acknowledgements it is what the model of playback assumes (law 10).
- Its length is the session's media time. Both sides are put together in files, since a session may last for hours.
"""

import contextlib
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from infra.capture.loudspeaker import Loudspeaker
from infra.timeline.port import Timeline
from operators.fold import SessionFold
from operators.window import ChannelAssembler, Samples
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES, WINDOW_US
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord
from schemas.media import PlaybackAck
from schemas.record import Lane

RATE = 24_000
S = 1_000_000
JITTER_US = 20_000
"""Acknowledgements that lie this near to where uninterrupted playing puts them belong to one stretch."""
BLOCK_S = 10
Int16 = NDArray[np.int16]


def check_mix_path(path: Path) -> None:
    """See beforehand whether a mix can be written there.

    Raises:
        BadInput: no kind of sound file, or a place where nothing can be written.
    """
    kind = path.suffix.lstrip(".").upper()
    if kind not in soundfile.available_formats():
        raise BadInput(f"{path}: {path.suffix or 'no extension'}: write .wav or .flac")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from None


def render_mix(timeline: Timeline, session: str, path: Path) -> Path:
    """Write the mix of a session; returns its path.

    Raises:
        BadInput: there is no such session, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lane(path.parent) as user, _lane(path.parent) as assistant:
            heard = _Heard(timeline, session, assistant)
            if heard.end_us == 0:
                raise BadInput(f"no session {session!r} with media on {timeline.url}")
            _write_user(timeline, session, heard, user)
            _put_together(user, assistant, heard.end_us * RATE // S, path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from None
    except soundfile.LibsndfileError as error:
        raise BadInput(f"{path}: cannot be written ({error.error_string.strip()})") from None
    return path


@contextlib.contextmanager
def _lane(folder: Path) -> Iterator[IO[bytes]]:
    """A file of int16 samples, which may be written anywhere; what was not written is silence."""
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file


def _write(lane: IO[bytes], first: int, samples: Int16) -> None:
    if first < 0:
        first, samples = 0, samples[-first:]
    lane.seek(2 * first)
    lane.write(samples.astype("<i2").tobytes())


def _blocks(lane: IO[bytes], size: int) -> Iterator[Int16]:
    """The samples of a lane, and then silence without end."""
    lane.seek(0)
    while True:
        data = lane.read(2 * size)
        block = np.frombuffer(data[: len(data) // 2 * 2], "<i2")
        yield np.pad(block, (0, size - len(block)))


class _Response:
    """The speech of one response, and the stretch of it that is being heard."""

    def __init__(self) -> None:
        self.rate = 0
        self.pcm = bytearray()
        self.since: tuple[int, int] | None = None
        """Media time and position in µs of the acknowledgement since which it plays."""
        self.stretch: tuple[int, int, int] | None = None
        """Media time, first and last position in µs."""
        self.over = False


class _Heard:
    """A pass over the timeline lane: where windows lie, and, written to `lane`, what the assistant was heard to say."""

    def __init__(self, timeline: Timeline, session: str, lane: IO[bytes]) -> None:
        self.channel = "mic"
        self.windows: dict[int, array[int]] = {}
        """Format epoch → where each window of the user's channel begins, µs; -1 where there is none."""
        self.end_us = 0
        self._lane = lane
        self._responses: dict[str, _Response] = {}
        self._assumed: Loudspeaker | None = None
        windows_end = closed = 0
        fold = SessionFold(session)
        for record in timeline.scan(Lane.TIMELINE, timeline.partition_of(session), 0, session):
            try:
                event = decode(record)
            except BadRecord:
                continue
            if event.type == "session.closed":
                closed = max(closed, event.mediatime or 0)
            for applied in fold.feed(event):
                if applied.fate != "applied":
                    continue
                for seen in (applied.input, *applied.decisions):
                    if seen.type == "perception.window":
                        windows_end = max(windows_end, self._window(seen))
                    else:
                        self._see(seen, fold.now if seen.mediatime is None else seen.mediatime)
        if self._assumed is not None:
            self._assume(self._assumed, fold.now)
        for response in self._responses.values():
            self._flush(response)
        # The last window is padded: the close knows better where the media ended.
        heard_until = closed if windows_end - WINDOW_US < closed <= windows_end else windows_end
        self.end_us = max(self.end_us, heard_until)

    def _window(self, event: Event) -> int:
        window = event.data
        if self._assumed is not None:
            self._assume(self._assumed, window.start_us)
        if window.channel != self.channel:
            return 0
        starts = self.windows.setdefault(window.epoch, array("q"))
        index = window.first_sample // WINDOW_SAMPLES
        starts.extend([-1] * (index + 1 - len(starts)))
        starts[index] = window.start_us
        return event.mediatime or 0

    def _see(self, event: Event, at: int) -> None:
        if event.type == "session.configured":
            self.channel = event.data.channel
            self._assumed = Loudspeaker() if event.data.playback == "assumed" else None
        if self._assumed is not None:
            self._assume(self._assumed, at)
            self._assumed.follow(event, at)
            self._assume(self._assumed, at)
        match event.type:
            case "response.speech":
                response = self._responses.setdefault(event.correlation or "", _Response())
                response.rate = response.rate or event.data.rate
                response.pcm += event.data.pcm
            case "playback.ack" if self._assumed is None:
                self._acknowledged(event.data, at)
            case "response.ended" | "response.cancelled" | "response.failed":
                response = self._responses.setdefault(event.data.response, _Response())
                response.over = True
                self._forget(event.data.response, response)

    def _assume(self, loudspeaker: Loudspeaker, until: int) -> None:
        for name, ack in loudspeaker.due(until):
            data = PlaybackAck(response=name, played_us=ack.played_us, state=ack.state)
            self._acknowledged(data, ack.at_us)

    def _acknowledged(self, ack: PlaybackAck, at: int) -> None:
        response = self._responses.setdefault(ack.response, _Response())
        since, stretch = response.since, response.stretch
        if since is not None and ack.played_us > since[1]:
            began, first = since
            if stretch is not None and stretch[2] == first:
                expected = stretch[0] + first - stretch[1]
                if abs(began - expected) <= JITTER_US:
                    began, first = stretch[0], stretch[1]
            if stretch is not None and (began, first) != stretch[:2]:
                self._flush(response)
            response.stretch = (began, first, ack.played_us)
        response.since = (at, ack.played_us) if ack.state == "playing" else None
        self._forget(ack.response, response)

    def _forget(self, name: str, response: _Response) -> None:
        """Let go of a response that will not be heard any more."""
        if response.over and response.since is None:
            self._flush(response)
            self._responses[name] = tombstone = _Response()
            tombstone.over = True

    def _flush(self, response: _Response) -> None:
        """Write the stretch that was heard to where it was heard."""
        stretch, rate = response.stretch, response.rate
        response.stretch = None
        if stretch is None or not rate:
            return
        at_us, from_us, to_us = stretch
        # Positions are rounded down to µs; the sample that they mean is the next one.
        first, last = -(-from_us * rate // S), -(-to_us * rate // S)
        sound = np.frombuffer(bytes(response.pcm[2 * first : 2 * last]), "<i2")
        if rate != RATE:
            resampled = soxr.resample(sound.astype(np.float32), rate, RATE, quality="HQ")
            sound = np.clip(np.rint(resampled), -32768, 32767).astype(np.int16)
        at = round(at_us * RATE / S)
        _write(self._lane, at, sound)
        self.end_us = max(self.end_us, -(-(at + len(sound)) * S // RATE))


def _write_user(timeline: Timeline, session: str, heard: _Heard, lane: IO[bytes]) -> None:
    """The user's side at 16 kHz, each window where it was heard."""
    assembler = ChannelAssembler()
    for record in timeline.scan(Lane.MEDIA, timeline.partition_of(session), 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        if event.type == "media.audio" and (event.correlation or heard.channel) == heard.channel:
            pieces = assembler.feed(
                event.source, event.id, event.sequence, event.mediatime, event.data
            )
            for piece in pieces:
                if isinstance(piece, Samples):
                    _place(lane, heard, piece)
    for piece in assembler.flush():
        if isinstance(piece, Samples):
            _place(lane, heard, piece)


def _place(lane: IO[bytes], heard: _Heard, piece: Samples) -> None:
    starts = heard.windows.get(piece.epoch, array("q"))
    done = 0
    while done < len(piece.samples):
        first = piece.first_sample + done
        index, within = divmod(first, WINDOW_SAMPLES)
        take = min(len(piece.samples) - done, WINDOW_SAMPLES - within)
        if index < len(starts) and starts[index] >= 0:
            at = starts[index] * SAMPLE_RATE // S + within
            _write(lane, at, piece.samples[done : done + take])
        done += take


def _put_together(user: IO[bytes], assistant: IO[bytes], length: int, path: Path) -> None:
    """Write `length` samples of both, the user's side resampled as one stream."""
    resampler = soxr.ResampleStream(SAMPLE_RATE, RATE, 1, dtype="float32", quality="HQ")
    ready = np.empty(0, np.float32)
    left, right = _blocks(user, BLOCK_S * SAMPLE_RATE), _blocks(assistant, BLOCK_S * RATE)
    with soundfile.SoundFile(path, "w", RATE, 2, subtype="PCM_16") as file:
        while length > 0:
            count = min(length, BLOCK_S * RATE)
            # The filter holds some back, so that one block may take two.
            while len(ready) < count:
                made = resampler.resample_chunk(next(left).astype(np.float32))
                ready = np.concatenate((ready, made))
            heard, ready = ready[:count], ready[count:]
            stereo = np.empty((count, 2), np.int16)
            stereo[:, 0] = np.clip(np.rint(heard), -32768, 32767)
            stereo[:, 1] = next(right)[:count]
            file.write(stereo)
            length -= count
