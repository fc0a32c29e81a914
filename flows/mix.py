"""The conversation as sound: a stereo wav from a session's records, the user left, the assistant right, on one clock.

Left: the user's media, at the media times that its perception windows name (gaps and pauses are silence of the right length). Right: the
speech that the device's acknowledgements say was played, each stretch where it was played; what was cut or never played is not there.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from infra.timeline.port import Timeline
from operators.fold import SessionFold
from operators.window import ChannelAssembler, Samples
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord
from schemas.record import Lane

RATE = 24_000
Float = NDArray[np.float32]


@dataclass(slots=True)
class _Response:
    rate: int = 0
    pcm: list[bytes] = field(default_factory=list)
    played: list[tuple[int, int, int]] = field(default_factory=list)
    """(media time, from µs, to µs) of each stretch that was heard."""
    since: tuple[int, int] | None = None


def render_mix(timeline: Timeline, session: str, path: Path) -> Path:
    """Write the mix of a session; returns its path.

    Raises:
        BadInput: there is no such session.
    """
    windows, responses, end_us = _heard(timeline, session)
    if end_us == 0:
        raise BadInput(f"no session {session!r} with media on {timeline.url}")
    length = end_us * RATE // 1_000_000
    stereo = np.zeros((length, 2), dtype=np.float32)
    stereo[:, 0] = _user(timeline, session, windows, end_us, length)
    for response in responses.values():
        _place(stereo[:, 1], response)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.clip(stereo, -1, 1), RATE, subtype="PCM_16")
    return path


def _heard(
    timeline: Timeline, session: str
) -> tuple[dict[tuple[str, int, int], int], dict[str, _Response], int]:
    """Windows by (channel, epoch, first sample) → media time, and what was heard of each response."""
    fold = SessionFold(session)
    windows: dict[tuple[str, int, int], int] = {}
    responses: dict[str, _Response] = {}
    end_us = 0
    for record in timeline.scan(Lane.TIMELINE, timeline.partition_of(session), 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        for applied in fold.feed(event):
            for seen in (applied.input, *applied.decisions) if applied.fate == "applied" else ():
                if seen.type == "perception.window":
                    w = seen.data
                    windows[w.channel, w.epoch, w.first_sample] = w.start_us
                    end_us = max(end_us, seen.mediatime or 0)
                else:
                    _follow(responses, seen)
    return windows, responses, end_us


def _follow(responses: dict[str, _Response], event: Event) -> None:
    if event.type == "response.speech":
        response = responses.setdefault(event.correlation or "", _Response())
        response.rate = event.data.rate
        response.pcm.append(event.data.pcm)
    elif event.type == "playback.ack":
        response = responses.setdefault(event.data.response, _Response())
        at, played = event.mediatime or 0, event.data.played_us
        if response.since is not None and played > response.since[1]:
            response.played.append((*response.since, played))
        response.since = (at, played) if event.data.state == "playing" else None


def _user(
    timeline: Timeline,
    session: str,
    windows: dict[tuple[str, int, int], int],
    end_us: int,
    length: int,
) -> Float:
    """The user's side at `RATE`, `length` samples."""
    at_16k = np.zeros(end_us * SAMPLE_RATE // 1_000_000 + WINDOW_SAMPLES, dtype=np.int16)
    assemblers: dict[str, ChannelAssembler] = {}
    default = next((channel for channel, _, _ in windows), "mic")
    for record in timeline.scan(Lane.MEDIA, timeline.partition_of(session), 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        channel = event.correlation or default
        assembler = assemblers.setdefault(channel, ChannelAssembler())
        pieces = assembler.feed(event.source, event.id, event.sequence, event.mediatime, event.data)
        for piece in pieces:
            _put(at_16k, windows, channel, piece)
    for channel, assembler in assemblers.items():
        for piece in assembler.flush():
            _put(at_16k, windows, channel, piece)
    lane: Float = soxr.resample(at_16k.astype(np.float32) / 32768, SAMPLE_RATE, RATE, quality="HQ")
    return np.pad(lane[:length], (0, max(0, length - len(lane))))


def _put(
    lane: NDArray[np.int16], windows: dict[tuple[str, int, int], int], channel: str, piece: object
) -> None:
    """Copy samples to where their windows say that they were heard."""
    if not isinstance(piece, Samples):
        return
    done = 0
    while done < len(piece.samples):
        first = piece.first_sample + done
        window = first // WINDOW_SAMPLES * WINDOW_SAMPLES
        take = min(len(piece.samples) - done, window + WINDOW_SAMPLES - first)
        start_us = windows.get((channel, piece.epoch, window))
        if start_us is not None:
            at = start_us * SAMPLE_RATE // 1_000_000 + first - window
            lane[at : at + take] = piece.samples[done : done + take]
        done += take


def _place(lane: Float, response: _Response) -> None:
    if not response.played:
        return
    pcm = np.frombuffer(b"".join(response.pcm), dtype=np.int16)
    for at_us, from_us, to_us in response.played:
        piece = pcm[from_us * response.rate // 1_000_000 : -(-to_us * response.rate // 1_000_000)]
        sound: Float = soxr.resample(
            piece.astype(np.float32) / 32768, response.rate, RATE, quality="HQ"
        )
        at = at_us * RATE // 1_000_000
        sound = sound[: max(0, len(lane) - at)]
        lane[at : at + len(sound)] += sound
