"""The sound of a session for its page: one stereo Ogg as a data URL, and a peak for each 20 ms of both sides."""

import base64
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr

from flows.mix import render_mix
from infra.timeline.port import Timeline
from schemas.errors import BadInput

STEP_US = 20_000
RATE = 16_000
BLOCK_S = 30


class Sound(NamedTuple):
    """`url` is None where the sound was left out."""

    url: str | None
    user: bytes
    assistant: bytes


def sound_of(timeline: Timeline, session: str, with_sound: bool = True) -> Sound | None:
    """None where the session has no media."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mix.wav"
        try:
            render_mix(timeline, session, path)
        except BadInput:
            return None
        ogg = Path(folder) / "mix.ogg"
        peaks: list[list[int]] = [[], []]
        with soundfile.SoundFile(path) as mix:
            step = mix.samplerate * STEP_US // 1_000_000
            streams = [
                soxr.ResampleStream(mix.samplerate, RATE, 1, dtype="float32") for _ in range(2)
            ]
            with soundfile.SoundFile(ogg, "w", RATE, 2, format="OGG", subtype="VORBIS") as out:
                while len(block := mix.read(step * 50 * BLOCK_S, dtype="float32", always_2d=True)):
                    last = len(block) < step * 50 * BLOCK_S
                    for side in range(2):
                        lane = np.abs(block[:, side])
                        lane = np.pad(lane, (0, -len(lane) % step))
                        # The square root shows quiet speech.
                        top = np.sqrt(lane.reshape(-1, step).max(axis=1)) * 255
                        peaks[side] += top.clip(0, 255).astype(np.uint8).tolist()
                    if with_sound:
                        halves = [
                            s.resample_chunk(block[:, i].copy(), last=last)
                            for i, s in enumerate(streams)
                        ]
                        out.write(np.stack(halves, axis=1))
        url = None
        if with_sound:
            url = "data:audio/ogg;base64," + base64.b64encode(ogg.read_bytes()).decode()
        if not any(peaks[0]) and not any(peaks[1]):
            return None
        return Sound(url, bytes(peaks[0]), bytes(peaks[1]))
