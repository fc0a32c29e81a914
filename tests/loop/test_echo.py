"""The echo guard with real parts: a spoken question, the assistant's voice back in the microphone, with the guard and without."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from flows.capture import Device, DeviceOptions
from flows.replay import prove_both
from flows.settings import timeline_at
from infra.capture.audiofile import AudioFile
from infra.capture.room import Echo
from infra.timeline.port import Timeline
from operators.fold import Applied
from operators.heard import words
from schemas.envelope import Event, Pcm
from schemas.media import PlaybackAck
from tests.loop.conftest import Running
from tests.loop.test_loop import events, recording
from tests.support.echo_session import NO_GUARD

pytestmark = pytest.mark.loop

ROOMS = {"loud-late": Echo(-6.0, 400_000), "quiet-soon": Echo(-20.0, 40_000)}
VOICE_AFTER_US = 1_500_000
"""So long the assistant has been heard when the user speaks over it."""


@pytest.fixture(scope="module")
def loop(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timeline]:
    url = f"sqlite:///{tmp_path_factory.mktemp('echo')}/timeline.db"
    with running(url), timeline_at(url) as timeline:
        yield timeline


class Interrupting(AudioFile):
    """A file, silence until the assistant has been heard for a while, and then another file, as loud, over it."""

    second: bytes
    began_us: int | None = None
    """Since when the assistant is heard, and the media time that was last applied."""
    now_us = 0

    def see(self, applied: Applied) -> None:
        self.now_us = max(self.now_us, applied.input.mediatime or 0)
        ack = applied.input.data
        if isinstance(ack, PlaybackAck) and ack.state == "playing" and self.began_us is None:
            self.began_us = self.now_us

    def chunks(self, chunk_ms: float) -> Iterator[Pcm]:
        yield from super().chunks(chunk_ms)
        size = self.rate // 10
        while self.began_us is None or self.now_us < self.began_us + VOICE_AFTER_US:
            yield Pcm(self.rate, 1, bytes(2 * size))
        for at in range(0, len(self.second), 2 * size):
            yield Pcm(self.rate, 1, self.second[at : at + 2 * size])


def in_room(
    timeline: Timeline,
    session: str,
    echo: Echo,
    audio: AudioFile,
    until: Callable[[list[Event]], object] = lambda _: False,
    **policy: Any,
) -> None:
    """Play the file in a room, to its end or until enough has happened."""
    seen: list[Event] = []

    def see(applied: Applied) -> None:
        seen.extend((applied.input, *applied.decisions))
        if isinstance(audio, Interrupting):
            audio.see(applied)

    wishes = {"response.max_tokens": "24"} | policy
    options = DeviceOptions(echo=echo, policy=wishes, max_wait=25.0, tail=1.0)
    Device(timeline, session, audio, options, see).run(lambda: bool(until(seen)))


def said(log: list[Event]) -> list[str]:
    return [e.data.text for e in log if e.type == "turn.ended" and e.data.text]


def of(log: list[Event], type_: str) -> list[Event]:
    return [e for e in log if e.type == type_]


@pytest.mark.parametrize("room", ROOMS)
def test_the_assistant_does_not_hear_itself(loop: Timeline, room: str) -> None:
    with AudioFile(recording("weather_question.wav")) as audio:
        in_room(loop, f"guarded-{room}", ROOMS[room], audio)
    log = events(loop, f"guarded-{room}")
    assert len(said(log)) == 1 and {"weather", "paris"} <= set(words(said(log)[0]))
    assert not of(log, "response.cancelled")
    (ended,) = of(log, "response.ended")
    assert ended.data.heard_us > 1_000_000
    voiced = [w for w in of(log, "perception.window") if max(w.data.probabilities or (0,)) >= 0.5]
    echoes = [w for w in voiced if w.data.echo is not None and w.data.echo >= 0.6]
    assert len(echoes) > 10, "nothing came back that could have been taken for the user"


def mistaken(log: list[Event]) -> bool:
    """Whether the assistant has interrupted itself, or taken its own words for the user's."""
    return bool(of(log, "response.cancelled")) or len(said(log)) > 1


@pytest.mark.parametrize("room", ROOMS)
def test_without_the_guard_it_does(loop: Timeline, room: str) -> None:
    with AudioFile(recording("weather_question.wav")) as audio:
        in_room(loop, f"open-{room}", ROOMS[room], audio, until=mistaken, **NO_GUARD)
    seen = events(loop, f"open-{room}")
    reasons = [e.data.reason for e in of(seen, "response.cancelled")]
    assert len(said(seen)) > 1 or any("interruption" in reason for reason in reasons)


@pytest.mark.parametrize("room", ROOMS)
def test_a_user_who_speaks_over_the_echo_is_heard(loop: Timeline, room: str) -> None:
    second, rate = soundfile.read(recording("check_order_12345.wav"), dtype="int16")
    with Interrupting(recording("weather_question.wav")) as audio:
        made = soxr.resample(second.astype(np.float32), rate, audio.rate)
        audio.second = np.clip(np.rint(made), -32768, 32767).astype("<i2").tobytes()
        long = {"response.max_tokens": "60"}
        in_room(loop, f"over-{room}", ROOMS[room], audio, lambda log: len(said(log)) > 1, **long)
    log = events(loop, f"over-{room}")
    first = of(log, "response.cancelled")[0].data
    assert first.response == of(log, "response.started")[0].data.response
    assert first.reason.startswith("interruption") and len(said(log)) == 2
    assert len({"status", "order", "number"} & set(words(said(log)[1]))) > 1


def test_all_of_it_replays(loop: Timeline) -> None:
    results = prove_both(loop)
    assert all(r.same for r in results.values())
