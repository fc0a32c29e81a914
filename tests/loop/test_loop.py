"""The main job with real parts: a spoken question in, a spoken answer out, and its replay; on SQLite and on Kafka.

The questions are real recordings where they are there (`../shared/data`), else the demo's own; what must hold is the same.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from flows.capture import Device, DeviceOptions
from flows.mix import render_mix
from flows.replay import prove_both
from flows.settings import timeline_at
from flows.story import Story
from infra.capture.audiofile import AudioFile
from infra.timeline.port import Timeline
from infra.triton.client import ModelClient
from infra.triton.server import LocalTriton
from operators.heard import words
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.record import Lane
from tests.loop.conftest import Running
from tests.support.kafka import Broker
from tests.support.triton import RECORDINGS, resampled

pytestmark = pytest.mark.loop

BRIEF = {"response.max_tokens": "16"}
QUESTIONS = {
    "weather_question.wav": {"weather", "paris"},
    "check_order_12345.wav": {"status", "order", "number"},
}


def recording(name: str) -> Path:
    path = RECORDINGS / name
    if not path.is_file():
        pytest.skip(f"the recording {name} is not here (looked in ../shared/data)")
    return path


def play(timeline: Timeline, session: str, path: Path, **options: Any) -> Story:
    """Play a file as a capture device; the story of the session as the device's fold saw it."""
    story = Story(session)
    wishes = BRIEF | options.pop("policy", {})
    with AudioFile(path) as audio:
        Device(timeline, session, audio, DeviceOptions(policy=wishes, **options), story.show).run()
    return story


def events(timeline: Timeline, session: str) -> list[Event]:
    records = timeline.scan(Lane.TIMELINE, timeline.partition_of(session), 0, session)
    return [decode(r) for r in records]


def windows(timeline: Timeline, session: str) -> list[bytes]:
    """The bytes of the session's windows, in order."""
    records = timeline.scan(Lane.TIMELINE, timeline.partition_of(session), 0, session)
    return [r.value for r in records if dict(r.headers)["ce_type"] == b"venus.perception.window.v1"]


def turns(timeline: Timeline, session: str) -> list[tuple[str, int | None, Any]]:
    return [
        (e.type, e.mediatime, e.data)
        for e in events(timeline, session)
        if e.type.startswith(("turn.", "speech.st"))
    ]


@pytest.fixture(scope="module")
def loop(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timeline]:
    """One SQLite timeline with all flows on it, for the tests of this module."""
    url = f"sqlite:///{tmp_path_factory.mktemp('loop')}/timeline.db"
    with running(url), timeline_at(url) as timeline:
        yield timeline


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_spoken_question_gets_a_spoken_answer(
    loop: Timeline, triton: LocalTriton, name: str, tmp_path: Path
) -> None:
    story = play(
        loop, f"q-{name}", recording(name), speed=None, policy={"response.max_tokens": "32"}
    )
    assert story.end == "closed" and not story.failures
    (turn,) = story.turns.values()
    assert QUESTIONS[name] <= set(words(turn.text))
    (response,) = story.responses.values()
    assert response.how == "ended" and response.heard_text
    assert response.heard_us > 500_000
    said = _transcript_of_the_answer(
        render_mix(loop, f"q-{name}", tmp_path / "mix.wav"), triton.url
    )
    written = words(response.heard_text)
    understood = sum(word in said for word in written) / len(written)
    assert understood >= 0.7, f"heard {said} for {written}"


def _transcript_of_the_answer(path: Path, triton_url: str) -> list[str]:
    stereo, rate = soundfile.read(path, dtype="int16", always_2d=True)
    assert stereo.shape[1] == 2
    assert np.abs(stereo[:, 0]).max() > 500, "the user's side is silent"
    answer = resampled(np.ascontiguousarray(stereo[:, 1]), rate)
    loud = np.flatnonzero(np.abs(answer) > 200)

    async def ask() -> str:
        async with ModelClient(triton_url) as client:
            return (
                await client.transcribe(answer[max(0, loud[0] - 3200) : loud[-1] + 3200], "en")
            ).text

    return words(asyncio.run(ask()))


def test_any_chunk_size_gives_the_same_windows_and_turns(loop: Timeline) -> None:
    path = recording("weather_question.wav")
    sizes = {"10": 10.0, "20": 20.0, "21.3": 21.3, "100": 100.0, "1000": 1000.0, "whole": 0.0}
    for name, size in sizes.items():
        play(loop, f"chunk-{name}", path, speed=None, chunk_ms=size)
    reference_windows, reference_turns = windows(loop, "chunk-100"), turns(loop, "chunk-100")
    assert len(reference_windows) > 30 and any(t == "turn.ended" for t, _, _ in reference_turns)
    for name in sizes:
        heard = windows(loop, f"chunk-{name}")
        common = min(len(heard), len(reference_windows))
        assert heard[:common] == reference_windows[:common], (
            f"windows differ at chunks of {name} ms"
        )
        assert turns(loop, f"chunk-{name}") == reference_turns, (
            f"turns differ at chunks of {name} ms"
        )


def test_interleaved_sessions_get_what_each_gets_alone(loop: Timeline) -> None:
    import threading

    a, b = recording("weather_question.wav"), recording("check_order_12345.wav")
    play(loop, "alone-a", a, speed=None)
    play(loop, "alone-b", b, speed=None)
    threads = [
        threading.Thread(target=_play_apart, args=(loop.url, f"both-{name}", path))
        for name, path in (("a", a), ("b", b))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in "ab":
        assert turns(loop, f"both-{name}") == turns(loop, f"alone-{name}")
        alone, both = windows(loop, f"alone-{name}"), windows(loop, f"both-{name}")
        common = min(len(alone), len(both))
        assert alone[:common] == both[:common] and common > 30


def _play_apart(url: str, session: str, path: Path) -> None:
    with timeline_at(url) as timeline:
        play(timeline, session, path, speed=None)


@pytest.mark.parametrize("name", ["two_speakers.wav", "jfk.flac"])
def test_long_recordings_run_through(loop: Timeline, name: str) -> None:
    story = play(
        loop, f"long-{name}", recording(name), speed=None, policy={"response.max_tokens": "4"}
    )
    assert story.end == "closed" and story.rejected == 0
    assert story.turns


def test_a_paced_device_is_answered_while_it_speaks(loop: Timeline) -> None:
    story = play(loop, "live", recording("weather_question.wav"), speed=1.0)
    (response,) = story.responses.values()
    latency = story.latency_us(response)
    assert latency is not None and 0 < latency < 30_000_000
    assert response.how == "ended"


def test_every_session_of_these_tests_replays(loop: Timeline) -> None:
    results = prove_both(loop)
    assert results
    different = {name: r.difference for name, r in results.items() if not r.same}
    assert not different
    assert all(r.ended and r.pending == 0 for r in results.values())


@pytest.mark.kafka
def test_kafka_gives_the_same_as_sqlite(
    loop: Timeline, running: Running, kafka_broker: Broker
) -> None:
    path = recording("weather_question.wav")
    play(loop, "same", path, speed=None)
    url = f"kafka://{kafka_broker.server}/{kafka_broker.topic()}?partitions=2"
    with running(url), timeline_at(url) as timeline:
        story = play(timeline, "same", path, speed=None)
        assert story.end == "closed"
        here, there = windows(loop, "same"), windows(timeline, "same")
        common = min(len(here), len(there))
        assert here[:common] == there[:common] and common > 30
        assert turns(loop, "same") == turns(timeline, "same")
        assert all(r.same for r in prove_both(timeline).values())
