"""The route `direct` hears the user: which samples leave, and what is done where there are none."""

import asyncio
import io
import json
import wave
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event as Flag
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flows.audio_store import AudioGone
from flows.evidence_audio import MOST_US, EvidenceAudio
from flows.harness import HarnessSettings, HarnessStep, make_executors
from flows.redact import silenced
from flows.work_effects import WORDS_ALONE
from infra.clock import monotonic_s, sleep_s
from infra.harness.config import read_config
from infra.harness.openai import CHAT
from infra.timeline import Timeline, open_timeline
from schemas.base import WINDOW_SAMPLES
from schemas.delegation import Evidence
from schemas.envelope import Event
from schemas.media import InputMuted, InputUnmuted
from schemas.record import Lane, Record, StoredRecord
from schemas.session import SessionUpdated
from tests.harness.chat_server import ChatServer
from tests.harness.support import append, outcomes, queued
from tests.support.perceive import Bench, speech

pytestmark = pytest.mark.flow

S = 1_000_000
Int16 = NDArray[np.int16]


class Place:
    """A log on disk, perception on it, and sessions that somebody speaks in."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/log.db"
        self.log: Timeline = open_timeline(self.url)
        self.bench = Bench(timeline=self.log)

    def talk(
        self, seconds: float, session: str = "s", seed: int = 0, rate: int = 16_000, **facts: Any
    ) -> Int16:
        """A session with so much sound, taken up by perception; returns the samples."""
        sound = speech(seconds, rate, seed=seed)
        self.bench.open(session, **facts)
        self.bench.play(sound, rate, session)
        self.bench.run()
        return sound[:, 0]

    def ask(self, cutoff_us: int, session: str = "s", work: str = "work-1") -> Event:
        said = Evidence(role="user", text="what is that sound", at_us=0)
        request = queued(
            work, None, session=session, route="direct", cutoff_us=cutoff_us, evidence=(said,)
        )
        append(self.log, request)
        return request

    def heard(self, request: Event, log_url: str | None = None) -> Int16:
        hear = EvidenceAudio(partial(open_timeline, log_url or self.url))
        return np.frombuffer(asyncio.run(hear(request)), "<i2")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.log.close()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as made:
        yield made


def harness_step(place: Place, server: ChatServer, folder: Path, **chat: Any) -> HarnessStep:
    path = folder / "harness.json"
    path.write_text(json.dumps({"chat": {"base_url": server.url, "model": "m", **chat}}))
    settings = HarnessSettings(str(folder / "blobs"), folder / "work", installed_skills=False)
    config = read_config(path, {})
    return HarnessStep(partial(make_executors, config, settings, partial(open_timeline, place.url)))


def worked_off(step: HarnessStep, log: Timeline, works: int) -> None:
    """Run the step on the log until so many works are done."""
    read, end = 0, monotonic_s() + 30
    try:
        while sum(e.type in ("work.completed", "work.failed") for e in outcomes(log)) < works:
            assert monotonic_s() < end, [(e.type, e.data) for e in outcomes(log)]
            records = step(step.extra())
            for record in list(log.scan(Lane.TIMELINE, 0, read)):
                read = record.offset + 1
                records += step([record])
            if records:
                log.append(records)
            sleep_s(0.005)
    finally:
        step.close()


def as_record(stored: StoredRecord) -> Record:
    return Record(stored.key or "", stored.headers, stored.value)


def sent(body: dict[str, Any]) -> Int16:
    """The samples of the WAV in a request."""
    _, part = body["messages"][1]["content"]
    assert part["type"] == "input_audio" and part["input_audio"]["format"] == "wav"
    with wave.open(io.BytesIO(b64decode(part["input_audio"]["data"], validate=True))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_the_endpoint_gets_the_words_and_the_very_samples_of_its_own_session(
    place: Place, server: ChatServer, tmp_path: Path
) -> None:
    ada, bob = place.talk(3.0, "ada", seed=1), place.talk(3.0, "bob", seed=2)
    place.ask(2 * S, "ada")
    place.ask(2_500_001, "bob")
    worked_off(harness_step(place, server, tmp_path, audio=True), place.log, 2)
    by_length = sorted((sent(b) for b in server.bodies), key=len)
    assert np.array_equal(by_length[0], ada[:32_000]), "nothing after the cutoff"
    assert np.array_equal(by_length[1], bob[:40_000])
    assert all(
        "user: what is that sound" in b["messages"][1]["content"][0]["text"] for b in server.bodies
    )
    told = {e.session: e.data for e in outcomes(place.log) if e.type == "work.called"}
    assert {s: (c.tool, c.arguments["audio_s"]) for s, c in told.items()} == {
        "ada": (CHAT, 2.0),
        "bob": (CHAT, 2.5),
    }


@pytest.mark.parametrize(("chat", "route"), [({}, "direct"), ({"audio": True}, "general")])
def test_nobody_else_hears(
    place: Place, server: ChatServer, tmp_path: Path, chat: dict[str, Any], route: str
) -> None:
    place.talk(1.0)
    append(place.log, queued("w", None, route=route, cutoff_us=S))
    worked_off(harness_step(place, server, tmp_path, **chat), place.log, 1)
    assert isinstance(server.bodies[0]["messages"][1]["content"], str)


def test_without_its_media_it_goes_by_the_words_and_says_so(
    place: Place, server: ChatServer, tmp_path: Path
) -> None:
    place.talk(2.0)
    place.ask(S)
    redacted = open_timeline(f"sqlite:///{tmp_path}/redacted.db")
    redacted.append([as_record(r) for r in place.log.scan(Lane.TIMELINE, 0)])
    quiet = [silenced(r) for r in place.log.scan(Lane.MEDIA, 0)]
    redacted.append([as_record(r) for r in quiet if r is not None], Lane.MEDIA)
    place.url, place.log = redacted.url, redacted
    worked_off(harness_step(place, server, tmp_path, audio=True), redacted, 1)
    assert isinstance(server.bodies[0]["messages"][1]["content"], str)
    said = {e.type: e.data for e in outcomes(redacted)}
    assert said["work.progress"].text == WORDS_ALONE and said["work.completed"].result == "hello"
    assert "audio_s" not in said["work.called"].arguments


def test_only_the_last_half_minute_is_heard(place: Place) -> None:
    sound = place.talk(40.0)
    heard = place.heard(place.ask(38 * S))
    assert len(heard) == MOST_US // S * 16_000
    assert np.array_equal(heard, sound[8 * 16_000 : 38 * 16_000])


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [({"work.lookback": "2s"}, 2), ({"work.evidence_items": 0}, 0)],
)
def test_no_more_than_the_policy_lets_a_request_rest_on(
    place: Place, policy: dict[str, Any], seconds: int
) -> None:
    sound = place.talk(6.0)
    place.bench.put("s", SessionUpdated(policy=policy), 6 * S)
    heard = place.heard(place.ask(5 * S))
    assert np.array_equal(heard, sound[(5 - seconds) * 16_000 : 5 * 16_000])


def test_what_came_into_the_log_after_the_request_is_not_looked_at(place: Place) -> None:
    place.talk(1.0)
    request = place.ask(3 * S)
    place.bench.play(speech(2.0, seed=9), session="s", start_us=S)
    place.bench.run()
    heard = place.heard(request)
    assert np.any(heard[:15_000]) and not np.any(heard[16_000:])


@pytest.mark.parametrize("at_us", [None, S])
def test_a_muted_microphone_is_silence(place: Place, at_us: int | None) -> None:
    """Where the mute names its time, it holds from there, whenever it comes."""
    first, second, third = (speech(1.0, seed=i) for i in (1, 2, 3))
    place.bench.open()
    place.bench.play(first)
    for at, sound in ((S, second), (2 * S, third)):
        place.bench.run()
        if at == S and at_us is None:
            place.bench.put("s", InputMuted())
        place.bench.play(sound, start_us=at)
        place.bench.run()
        if at == S:
            if at_us is not None:
                place.bench.put("s", InputMuted(), at_us)
            place.bench.put("s", InputUnmuted(), 2 * S)
    heard = place.heard(place.ask(3 * S))
    assert np.any(heard[:15_000]) and np.any(heard[-14_000:])
    assert not np.any(heard[16_000 + WINDOW_SAMPLES : 32_000 - WINDOW_SAMPLES])


def test_media_whose_beginning_has_expired_is_not_mistaken_for_other_sound(
    place: Place, tmp_path: Path
) -> None:
    place.talk(6.0)
    request = place.ask(3 * S)
    left = open_timeline(f"sqlite:///{tmp_path}/left.db")
    left.append([as_record(r) for r in place.log.scan(Lane.TIMELINE, 0)])
    left.append([as_record(r) for r in list(place.log.scan(Lane.MEDIA, 0))[20:]], Lane.MEDIA)
    left.close()
    with pytest.raises(AudioGone, match="not kept"):
        place.heard(request, left.url)


def test_other_rates_and_a_session_without_sound(place: Place) -> None:
    place.talk(3.0, "fast", rate=48_000)
    heard = place.heard(place.ask(2 * S, "fast"))
    assert len(heard) == 32_000 and np.abs(heard).mean() > 500
    place.bench.open("typed")
    place.bench.run()
    assert len(place.heard(place.ask(2 * S, "typed"))) == 0


def test_lost_media_is_silence_of_its_length(place: Place) -> None:
    before, after = speech(1.0, seed=1), speech(1.0, seed=2)
    place.bench.open()
    place.bench.play(before)
    place.bench.play(after, start_us=2 * S)
    place.bench.run()
    heard = place.heard(place.ask(2_900_000))
    assert np.array_equal(heard[:16_000], before[:, 0])
    assert not np.any(heard[16_000:32_000])
    assert np.array_equal(heard[32_000:], after[:14_400, 0])


def test_a_work_that_nobody_waits_for_any_more_reads_no_further(place: Place) -> None:
    place.talk(1.0)
    request, given_up = place.ask(S), Flag()
    given_up.set()
    cut: Callable[..., Any] = EvidenceAudio(partial(open_timeline, place.url))._cut
    with pytest.raises(AudioGone, match="nobody waits"):
        cut(request, given_up)
