"""The echo of a window: high where the loudspeaker explains what is heard, low where somebody speaks, nothing where nothing is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soxr

from operators.echo import HISTORY, EchoMeter
from schemas.base import SAMPLE_RATE, WINDOW_US
from schemas.policy import EchoPolicy
from tests.support.echo import Scene, ack, at_level, room, scene, talk

pytestmark = pytest.mark.pure

THRESHOLD = EchoPolicy().threshold
OFFICE = room(0.25, 6.0)
FOUND_WITHIN = 3
"""Windows of audible echo after which it is known."""


def share(values: list[float | None], high: bool) -> float:
    """How many of the values say echo, or say that it is not (or nothing)."""
    return float(np.mean([(v is not None and v >= THRESHOLD) is high for v in values]))


def of_echo(s: Scene, values: list[float | None], skip: int = FOUND_WITHIN) -> list[float | None]:
    """The values of the windows in which echo is heard, without the first few."""
    return [v for i, v in enumerate(values) if s.loud(s.echo, i)][skip:]


@pytest.mark.parametrize("path", [(1.0,), OFFICE, -OFFICE], ids=["copy", "office", "inverted"])
@pytest.mark.parametrize("level_db", [-6, -12, -20])
@pytest.mark.parametrize("delay_ms", [40, 150, 400])
def test_the_assistants_own_sound_is_its_echo(delay_ms: int, level_db: int, path: Any) -> None:
    s, meter = scene(delay_ms, level_db, path), EchoMeter()
    values = s.heard(meter=meter)
    heard = of_echo(s, values)
    assert len(heard) > 30 and share(heard, high=True) >= 0.9
    assert meter.delay is not None and abs(meter.delay - delay_ms * 16) <= 16


@pytest.mark.parametrize("seed", range(6))
def test_another_voice_is_no_echo_though_something_is_played(seed: int) -> None:
    s = scene(100, -200, seed=seed, user=talk(7.0, seed + 50, -26.0))
    assert sum(s.loud(s.user, i) for i in range(s.windows)) > 40
    assert share(s.heard(), high=False) == 1.0


@pytest.mark.parametrize("level_db", [-6, -20])
@pytest.mark.parametrize("delay_ms", [40, 400])
def test_a_user_who_speaks_over_the_echo_is_heard(delay_ms: int, level_db: int) -> None:
    """From 2.5 s on: as loud as the playback itself, and so louder than its echo."""
    s = scene(delay_ms, level_db, OFFICE, seconds=8.0, user=talk(3.0, 9), user_at=2.5)
    values = s.heard()
    both = [v for i, v in enumerate(values) if s.loud(s.user, i, -30.0) and s.loud(s.echo, i)]
    assert len(both) > 12 and share(both, high=False) >= 0.75
    after = [v for i, v in enumerate(values) if i * WINDOW_US > 6_000_000 and s.loud(s.echo, i)]
    assert len(after) > 12 and share(after, high=True) >= 0.9, "it has unlearned the echo"


def test_a_user_who_speaks_after_it_is_heard() -> None:
    s = scene(150, -12, seconds=3.0, user=talk(0.9, 9, -26.0), user_at=4.15)
    values = s.heard()
    alone = [v for i, v in enumerate(values) if s.loud(s.user, i) and not s.loud(s.echo, i)]
    assert len(alone) >= 4 and share(alone, high=False) >= 0.8


@pytest.mark.parametrize("jitter_ms", [10, 20, 30])
def test_acknowledgements_may_be_inexact(jitter_ms: int) -> None:
    s = scene(150, -12, OFFICE)
    heard = of_echo(s, s.heard(s.acks(jitter_ms)))
    assert share(heard, high=True) >= 0.9


@pytest.mark.parametrize("off", [1, 2, 17, -50, 300, -400])
def test_playing_again_may_be_told_some_samples_beside(off: int) -> None:
    """Each time that playing begins again, its acknowledgement is off by so many samples more."""
    s = scene(150, -20, (1.0,), seconds=8.0)
    size, gap = 2 * SAMPLE_RATE, SAMPLE_RATE // 2
    microphone, acks, at = np.zeros(len(s.microphone) + 4 * gap), [], s.start
    for n in range(4):
        position = n * size
        acks += [
            ack("r", at + off * n, position),
            ack("r", at + size, position + size, "drained"),
        ]
        back = at + 2400
        microphone[back : back + size] += 0.1 * s.speech[position : position + size]
        at += size + gap
    paused = s._replace(microphone=microphone, echo=microphone)
    heard = of_echo(paused, paused.heard(acks))
    assert len(heard) > 50 and share(heard, high=True) >= (0.95 if abs(off) < 50 else 0.85)


@pytest.mark.parametrize("ppm", [100, -500])
def test_the_clocks_of_loudspeaker_and_microphone_may_differ(ppm: int) -> None:
    s = scene(150, -12, OFFICE, seconds=8.0)
    fine = soxr.resample(s.microphone, 1, 10)
    at = s.start + (np.arange(len(s.microphone)) - s.start) * (1 + ppm * 1e-6)
    drifted = np.interp(at * 10, np.arange(len(fine)), fine)
    heard = of_echo(s, s._replace(microphone=drifted).heard())
    assert share(heard, high=True) >= 0.9


def test_nothing_is_said_where_nothing_is_played() -> None:
    s = scene(100, -6, user=talk(1.0, 3, -26.0))
    values = s.heard()
    began = s.start // 1536
    assert values[: began - 1] == [None] * (began - 1)
    assert set(s.heard(acks=[])) == {None}, "without acknowledgements nothing is known"


def test_a_delay_that_changes_is_found_again() -> None:
    s = scene(100, -12, OFFICE, seconds=8.0)
    moved = scene(300, -12, OFFICE, seconds=8.0)
    half = 5 * SAMPLE_RATE
    mixed = s._replace(microphone=np.concatenate((s.microphone[:half], moved.microphone[half:])))
    values = mixed.heard()
    later = [v for i, v in enumerate(values) if i * WINDOW_US > 6_000_000 and s.loud(s.echo, i)]
    assert len(later) > 12 and share(later, high=True) >= 0.85


def test_the_delay_is_kept_from_one_response_to_the_next() -> None:
    meter = EchoMeter()
    scene(250, -12, OFFICE).heard(meter=meter)
    again = scene(250, -12, OFFICE, seed=2)
    # The next response of the session: the meter's clock goes on, which only says that there was a pause.
    heard = of_echo(again, again.heard(meter=meter), skip=0)
    assert share(heard[:4], high=True) == 1.0


def test_when_it_was_told_makes_no_difference() -> None:
    """However a device slices its sound, its acknowledgements come before or after more of it: values are the same."""
    s = scene(150, -12, OFFICE, user=talk(1.5, 4), user_at=3.0)
    acks = s.acks(30)
    assert s.heard(acks, known_ahead=True) == s.heard(acks, known_ahead=False)


def test_what_it_holds_is_bounded() -> None:
    meter = EchoMeter()
    s = scene(150, -12, seconds=10.0)
    s.heard(meter=meter)
    assert len(meter._recent) <= HISTORY
    assert len(meter._path.heard) <= 5 and len(meter._path.residual) <= 5


def test_real_voices(recording: Callable[[str], Any]) -> None:
    """A question as what is played, another as the user's."""
    played = recording("check_order_12345.wav") / 32768
    user = at_level(recording("weather_question.wav") / 32768, -20.0)
    for delay_ms, level_db in ((40, -20), (150, -12), (400, -6)):
        s = scene(delay_ms, level_db, OFFICE, speech=played)
        assert share(of_echo(s, s.heard()), high=True) >= 0.9
        s = scene(delay_ms, level_db, OFFICE, speech=played, user=user, user_at=2.0)
        values = s.heard()
        both = [v for i, v in enumerate(values) if s.loud(s.user, i, -30.0) and s.loud(s.echo, i)]
        assert len(both) >= 5 and share(both, high=False) >= 0.6
