"""The echo in perception's windows: from the speech and the acknowledgements in the log, whatever the chunks, and after a restart."""

from typing import Any

import numpy as np
import pytest

from schemas.base import SAMPLE_RATE
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.media import PlaybackAck
from schemas.policy import EchoPolicy
from schemas.responses import ResponseCancelled
from tests.support.echo import Scene, int16, room, scene, speech_events
from tests.support.perceive import Bench

pytestmark = pytest.mark.flow

THRESHOLD = EchoPolicy().threshold
OFFICE = room(0.25, 6.0)


class EchoBench(Bench):
    """A bench with a loudspeaker in the room."""

    def speech(self, s: Scene) -> None:
        """All of the response's speech has been made, before any of it is played."""
        self.timeline.append([encode(e) for e in speech_events("r", int16(s.speech))])

    def listen(self, s: Scene, chunk_ms: int = 100, until_ms: int = 1 << 30, **more: Any) -> None:
        """The device sends its sound from where it is, and says at its due time what it plays."""
        acks = [(e.mediatime or 0, e.data) for e in s.acks()]
        sound = int16(s.microphone)[:, None]
        size = SAMPLE_RATE * chunk_ms // 1000
        for at in range(0, len(sound), size):
            end_us = min(at + size, len(sound)) * 1_000_000 // SAMPLE_RATE
            if end_us > until_ms * 1000:
                return
            while acks and acks[0][0] <= end_us:
                at_us, data = acks.pop(0)
                self.put("s", data, at_us)
            self.put("s", Pcm(SAMPLE_RATE, 1, sound[at : at + size].tobytes()), None, **more)
            self.run()

    def echoes(self) -> list[float | None]:
        return [e.data.echo for e in self.windows()]


def heard(s: Scene, chunk_ms: int = 100, **facts: Any) -> list[float | None]:
    b = EchoBench()
    b.open(**facts)
    b.speech(s)
    b.listen(s, chunk_ms)
    b.close(at_us=len(s.microphone) * 125 // 2)
    b.run(seconds=1)
    return b.echoes()


def of_echo(s: Scene, values: list[float | None]) -> list[float | None]:
    return [v for i, v in enumerate(values[: s.windows]) if s.loud(s.echo, i)][3:]


@pytest.mark.parametrize(("delay_ms", "level_db"), [(40, -20), (400, -6)])
def test_windows_say_how_much_of_them_was_played(delay_ms: int, level_db: int) -> None:
    s = scene(delay_ms, level_db, OFFICE)
    values = heard(s)
    known = of_echo(s, values)
    assert len(known) > 30 and np.mean([(v or 0) >= THRESHOLD for v in known]) >= 0.9
    assert values[:9] == [None] * 9, "before anything was played"


def test_chunks_do_not_matter_to_the_echo() -> None:
    s = scene(150, -12, OFFICE)
    reference = heard(s)
    assert any(reference)
    for chunk_ms in (10, 21, 250, 1000, 10_000):
        assert heard(s, chunk_ms) == reference, f"differs at chunks of {chunk_ms} ms"


def test_without_acknowledgements_nothing_is_said() -> None:
    s = scene(150, -12)
    b = EchoBench()
    b.open()
    b.speech(s)
    b.play(int16(s.microphone)[:, None])
    b.run()
    assert set(b.echoes()) == {None}


def test_an_asap_session_has_no_echo() -> None:
    """Its sound is sent before it is decided what is played: whatever it correlates with would depend on the machine."""
    assert set(heard(scene(150, -12), pacing="asap")) == {None}


def test_only_the_users_channel_has_an_echo() -> None:
    s = scene(150, -12, OFFICE)
    b = EchoBench()
    b.open()
    b.speech(s)
    b.listen(s, correlation="second")
    assert {e.data.channel for e in b.windows()} == {"second"} and set(b.echoes()) == {None}


def test_a_device_that_gives_no_times_is_guarded_too() -> None:
    s = scene(150, -12, OFFICE)
    b = EchoBench()
    b.open()
    b.speech(s)
    acks = [(e.mediatime or 0, e.data) for e in s.acks()]
    sound = int16(s.microphone)[:, None]
    for at in range(0, len(sound), 320):
        while acks and acks[0][0] <= at * 125 // 2:
            b.put("s", acks.pop(0)[1])
        b.put("s", Pcm(SAMPLE_RATE, 1, sound[at : at + 320].tobytes()))
        b.run()
    known = of_echo(s, b.echoes())
    assert np.mean([(v or 0) >= THRESHOLD for v in known]) >= 0.9


@pytest.mark.parametrize("at_ms", [1500, 3000])
def test_a_restart_goes_on_guarding(at_ms: int) -> None:
    s = scene(150, -12, OFFICE)
    reference = heard(s)
    b = EchoBench()
    b.open()
    b.speech(s)
    acks = [(e.mediatime or 0, e.data) for e in s.acks()]
    sound = int16(s.microphone)[:, None]
    restarted = False
    for at in range(0, len(sound), 1600):
        if at >= at_ms * 16 and not restarted:
            b.start()
            restarted = True
        while acks and acks[0][0] <= (at + 1600) * 125 // 2:
            at_us, data = acks.pop(0)
            b.put("s", data, at_us)
        b.put("s", Pcm(SAMPLE_RATE, 1, sound[at : at + 1600].tobytes()))
        b.run()
    windows = b.windows()
    assert [e.data.first_sample for e in windows] == [1536 * i for i in range(len(windows))]
    known = of_echo(s, b.echoes())
    assert np.mean([(v or 0) >= THRESHOLD for v in known]) >= 0.9
    done = at_ms // 96
    assert b.echoes()[:done] == reference[:done]


def test_a_restart_does_not_read_what_is_over() -> None:
    s = scene(150, -12)
    b = EchoBench()
    b.open()
    b.speech(s)
    b.listen(s, until_ms=3000)
    over = ResponseCancelled(response="r", epoch=1, reason="x", heard_text="", heard_us=0)
    b.timeline.append(
        [encode(Event(over.TYPE, "s", "over", "conversation/interrupt", over, 3_000_000))]
    )
    b.run()
    b.start()
    assert len(b._first) == 2, "more than the history and the opening"


def test_acknowledgements_of_nothing_are_harmless() -> None:
    b = EchoBench()
    b.open()
    for state in ("playing", "paused", "cut"):
        b.put("s", PlaybackAck(response="nobody", played_us=7, state=state), 0)  # type: ignore[arg-type]
    s = scene(100, -12)
    b.play(int16(s.microphone)[:, None])
    b.run()
    assert len(b.windows()) > 60 and set(b.echoes()) == {None}
