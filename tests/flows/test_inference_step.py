"""The inference flow with a scripted model server: audio by sample range, outcomes, restarts, and
Bytewax around it.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from threading import Event as StopFlag
from threading import Thread
from typing import Any

import numpy as np
import pytest
from bytewax.testing import run_main

from flows.audio_store import KEEP_S, UNCONFIGURED_SESSIONS
from flows.effect_flow import build_effect_flow
from flows.inference import LANES, InferenceStep
from flows.model_effects import InferenceSettings, model_effects
from infra.clock import sleep_s
from infra.timeline import Place, Timeline, open_timeline
from infra.triton.client import Delta, ModelRejected, ModelUnavailable, SpeechChunk
from schemas.envelope import Event
from schemas.record import Lane
from schemas.responses import ResponseCancelled
from schemas.session import SessionClosed
from schemas.transcription import Word
from tests.flows.inference_support import (
    RATE,
    FakeClient,
    StepRig,
    append,
    ended,
    media,
    opened,
    wait_for,
    wants_endpoint,
    wants_speech,
    wants_text,
    wants_transcript,
)

pytestmark = pytest.mark.flow

NOISE = np.random.default_rng(1).integers(-9_000, 9_000, 4 * RATE).astype(np.int16)


def test_the_model_hears_exactly_the_samples_that_were_asked_for() -> None:
    with StepRig() as rig:
        rig.read(opened())
        rig.read(media(NOISE), Lane.MEDIA)
        rig.read([wants_endpoint(1_000, 20_000)])
        rig.settle()
        assert rig.out[0].type == "endpoint.predicted" and rig.out[0].data.probability == 0.75
        assert np.array_equal(rig.client.heard[0], NOISE[1_000:20_000])


@pytest.mark.parametrize("rate", [16_000, 48_000, 44_100])
def test_slicing_and_laziness_change_no_sample(rate: int) -> None:
    heard = []
    for chunk, batch in ((rate // 10, 1), (rate // 47, 7), (len(NOISE), 1)):
        with StepRig() as rig:
            rig.read(opened())
            pieces = media(NOISE, chunk=chunk, rate=rate)
            for at in range(0, len(pieces), batch):
                rig.read(pieces[at : at + batch], Lane.MEDIA)
                if at == batch:
                    rig.read([wants_endpoint(0, 512)])
                    rig.settle()
            rig.read([wants_endpoint(640, 16_000, id_="later")])
            rig.settle()
            heard.append(rig.client.heard[-1])
    assert len(heard[0]) == 16_000 - 640
    assert all(np.array_equal(h, heard[0]) for h in heard)


def test_a_request_waits_for_samples_that_come_later() -> None:
    with StepRig() as rig:
        rig.read(
            [wants_endpoint(0, 3_000)]
        )  # the lanes have no mutual order: even the session is unknown yet
        rig.read(media(NOISE[:1_600]), Lane.MEDIA)
        rig.read(opened())
        rig.read(media(NOISE[1_600:4_800], first=1), Lane.MEDIA)
        rig.settle()
        assert np.array_equal(rig.client.heard[0], NOISE[:3_000])


def test_samples_that_never_come_time_out_without_blocking_others() -> None:
    settings = InferenceSettings(endpoint_limit=1, audio_s=0.3)
    with StepRig(settings=settings) as rig:
        rig.read(opened() + opened("t"))
        rig.read(media(NOISE[:1_600], "t"), Lane.MEDIA)
        rig.read([wants_endpoint(0, 999, id_=f"e{i}") for i in range(3)])
        rig.read([wants_endpoint(0, 999, "t", "ok")])
        rig.settle()
    assert rig.out[0].cause == "ok"
    assert [e.data.reason for e in rig.out[1:]] == ["timed_out"] * 3


def test_samples_that_are_too_old_fail_at_once() -> None:
    with StepRig() as rig:
        rig.read(opened())
        rig.read(media(np.tile(NOISE, KEEP_S // 4 + 2), chunk=RATE), Lane.MEDIA)
        rig.read(
            [wants_endpoint(0, 999), wants_endpoint(4 * RATE * 16, 4 * RATE * 16 + 999, id_="new")]
        )
        rig.settle(2.0)
    by_cause = {e.cause: e for e in rig.out}
    assert by_cause["e"].data.reason == "error" and by_cause["new"].type == "endpoint.predicted"


def test_what_lies_beyond_the_end_of_an_epoch_or_a_closed_session_is_silence() -> None:
    closed = Event("session.closed", "s", "x", "device", SessionClosed(), 1_000_000)
    with StepRig() as rig:
        rig.read(opened())
        rig.read(media(NOISE[:8_000]), Lane.MEDIA)
        rig.read([wants_endpoint(0, 9_000, id_="first")])
        rig.read(media(NOISE[:24_000], rate=48_000, chunk=4_800, first=5), Lane.MEDIA)
        rig.settle()
        rig.read([wants_endpoint(0, 9_000, id_="second", epoch=1), closed])
        rig.settle()
    assert [e.type for e in rig.out] == ["endpoint.predicted"] * 2
    first, second = rig.client.heard
    assert np.array_equal(first[:8_000], NOISE[:8_000]) and not first[8_000:].any()
    assert len(second) == 9_000 and second[:7_900].any() and not second[8_000:].any()


def test_channels_are_kept_apart() -> None:
    with StepRig() as rig:
        rig.read(opened(channel="head"))
        rig.read(media(NOISE[:1_600]), Lane.MEDIA)
        rig.read(media(NOISE[8_000:9_600], channel="room"), Lane.MEDIA)
        rig.read(
            [
                wants_endpoint(0, 999, channel="head"),
                wants_endpoint(0, 999, id_="r", channel="room"),
            ]
        )
        rig.settle()
    first = {int(h[0]) for h in rig.client.heard}
    assert first == {int(NOISE[0]), int(NOISE[8_000])}


def test_media_of_unknown_and_ended_sessions_is_bounded() -> None:
    with StepRig() as rig:
        for i in range(UNCONFIGURED_SESSIONS + 9):
            rig.read(media(NOISE[:160], f"u{i}"), Lane.MEDIA)
        assert len(rig.step.audio._sessions) == UNCONFIGURED_SESSIONS
        rig.read([*opened(), ended()])
        rig.read(media(NOISE), Lane.MEDIA)
        assert "s" not in rig.step.audio._sessions


def test_word_times_become_media_time() -> None:
    with StepRig() as rig:
        rig.read(opened())
        rig.read(media(NOISE), Lane.MEDIA)
        rig.read([wants_transcript(RATE, 2 * RATE, start_us=1_000_000)])
        rig.settle()
    (final,) = rig.out
    assert (final.type, final.data.text, final.correlation) == ("transcript.final", "hello", "t")
    word = Word(text="hello", start_us=1_100_000, end_us=1_350_000, probability=0.9)
    assert final.data.words == (word,)


def test_text_streams_and_completes() -> None:
    with StepRig() as rig:
        rig.read([*opened(), wants_text("how are you?")])
        rig.settle()
    *parts, last = rig.out
    assert [p.data.text for p in parts] == ["It", " is fine."]
    assert (last.data.text, last.data.finish_reason) == ("It is fine.", "stop")


def test_speech_streams_as_pcm_and_its_length_is_exact() -> None:
    with StepRig() as rig:
        rig.read([*opened(), wants_speech("It is fine.")])
        rig.settle()
    *chunks, last = rig.out
    assert [(c.type, c.data.samples, c.data.rate, c.sequence) for c in chunks] == [
        ("response.speech", 441, 22_050, 0),
        ("response.speech", 441, 22_050, 1),
        ("response.speech", 100, 22_050, 2),
    ]
    assert {(c.cause, c.correlation) for c in rig.out} == {("v", "r")}
    assert last.data.duration_us == 982 * 1_000_000 // 22_050


def test_nothing_to_speak_is_no_failure() -> None:
    with StepRig(FakeClient(chunks=())) as rig:
        rig.read([*opened(), wants_speech("...")])
        rig.settle()
    assert [(e.type, e.data.duration_us) for e in rig.out] == [("speech.completed", 0)]


class Refuses(FakeClient):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def endpoint(self, audio: Any, **_: Any) -> float:
        raise self.error

    async def speak(self, text: str, **_: Any) -> AsyncGenerator[SpeechChunk, None]:
        yield SpeechChunk(bytes(20), 22_050)
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailable("here", "chat", "down"), "unavailable"),
        (ModelRejected("here", "chat", "too long"), "rejected"),
        (ValueError("odd"), "error"),
    ],
    ids=["unavailable", "rejected", "error"],
)
def test_errors_have_reasons(error: Exception, reason: str) -> None:
    with StepRig(Refuses(error), InferenceSettings(endpoint_s=0.5)) as rig:
        rig.read(opened())
        rig.read(media(NOISE[:1_600]), Lane.MEDIA)
        rig.read([wants_endpoint(0, 999), wants_speech("hello")])
        rig.settle()
    endings = {e.type: e.data.reason for e in rig.out if e.type.endswith("failed")}
    assert endings == {"endpoint.failed": reason, "speech.failed": reason}


# --- with a log


@contextmanager
def flow(timeline: Timeline, client: Any) -> Iterator[None]:
    """The whole flow in a thread of its own."""
    step = InferenceStep(lambda audio: model_effects(client, audio))
    stop = StopFlag()
    dataflow = build_effect_flow(
        "inference", LANES, lambda: open_timeline(timeline.url), step, stop
    )
    thread = Thread(target=run_main, args=(dataflow,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        step.close()
        assert not thread.is_alive()


def done(count: int) -> Any:
    return lambda found: (
        sum(e.type.endswith(("completed", "failed", "final", "predicted")) for e in found) == count
    )


def test_the_flow_answers_and_survives_a_restart_in_the_middle() -> None:
    timeline = open_timeline("memory://inference-restart?partitions=3")
    sessions = ("a", "b", "c", "d")
    for s in sessions:
        append(timeline, opened(s))
    with flow(timeline, FakeClient(deltas=tuple(" word" for _ in range(100)), pause_s=0.01)):
        for s in sessions:
            append(timeline, media(NOISE, s), Lane.MEDIA)
            append(timeline, [wants_endpoint(0, 8_000, s, f"e-{s}"), wants_text("go", s, f"g-{s}")])
        wait_for(timeline, lambda found: sum(e.type == "response.text" for e in found) > 6)
    append(timeline, [wants_transcript(0, 8_000, s, f"t-{s}") for s in sessions])
    client = FakeClient()
    with flow(timeline, client):
        found = wait_for(timeline, done(12))
    assert all(np.array_equal(h, NOISE[:8_000]) for h in client.heard)
    endings = {e.cause: e for e in found if done(1)([e])}
    begun = {e.cause for e in found if e.type == "response.text" and " word" in e.data.text}
    for s in sessions:
        assert endings[f"e-{s}"].type == "endpoint.predicted"
        assert endings[f"t-{s}"].type == "transcript.final"
        text = endings[f"g-{s}"]
        if f"g-{s}" in begun:
            assert text.data.reason == "lost"
        else:
            assert text.data.text == "It is fine."
    assert len({e.id for e in found}) == len(found)


def test_a_cancel_in_the_log_stops_the_model() -> None:
    timeline = open_timeline("memory://inference-cancel")
    stopped: list[bool] = []

    class Endless(FakeClient):
        async def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Delta, None]:
            try:
                while True:
                    yield Delta(" word", "", 1)
                    await asyncio.sleep(0.005)
            finally:
                stopped.append(True)

    append(timeline, [*opened(), wants_text("go")])
    with flow(timeline, Endless()):
        wait_for(timeline, lambda found: len(found) > 2)
        data = ResponseCancelled(response="r", epoch=1, reason="stop", heard_text="", heard_us=0)
        append(timeline, [Event("response.cancelled", "s", "x", "conversation", data, 0)])
        # The log may have the outcome a moment before the model's last line has run.
        found = wait_for(timeline, lambda found: done(1)(found) and stopped == [True])
    assert found[-1].data.reason == "cancelled"


def test_after_a_restart_requests_wait_until_the_media_is_read_again() -> None:
    timeline = open_timeline("memory://inference-catch-up")
    append(timeline, [*opened(), wants_endpoint(0, 3_200), wants_text("hello")])
    append(timeline, media(NOISE), Lane.MEDIA)
    with StepRig(settings=InferenceSettings(audio_s=0.2)) as rig:
        rig.step.start(timeline, [0])
        rig.settle_some(1)
        assert {e.cause for e in rig.out} == {"g"} and rig.step.desk.open == 1
        sleep_s(0.4)
        rig.step(list(timeline.scan(Lane.MEDIA, 0)))
        rig.settle()
    assert rig.out[-1].type == "endpoint.predicted"


def test_media_is_read_again_from_the_first_open_session() -> None:
    timeline = open_timeline("memory://inference-media")
    append(timeline, [*opened("old"), ended("old"), *opened("new")])
    append(timeline, media(NOISE[:16_000], "old"), Lane.MEDIA)
    append(timeline, media(NOISE[:3_200], "new"), Lane.MEDIA)
    with StepRig() as rig:
        offsets, first = rig.step.start(timeline, [0])
    assert offsets == {Place(Lane.TIMELINE, 0): 5, Place(Lane.MEDIA, 0): 10} and first == []
    append(timeline, [ended("new")])
    with StepRig() as rig:
        assert rig.step.start(timeline, [0])[0][Place(Lane.MEDIA, 0)] == 12
