"""The inference flow on real models: what was said, whether it was all, an answer, its voice; and a
model server that dies.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as StopFlag
from threading import Thread

import numpy as np
import pytest
from numpy.typing import NDArray

from flows.inference import run_inference
from infra.clock import monotonic_s
from infra.timeline import Timeline, open_timeline
from infra.triton.server import LocalTriton
from schemas.base import WINDOW_SAMPLES
from schemas.envelope import Event
from schemas.record import Lane
from schemas.registry import TERMINALS
from schemas.session import SessionClosed
from schemas.transcription import RequestSuperseded
from tests.flows.inference_support import (
    append,
    media,
    opened,
    wait_for,
    wants_endpoint,
    wants_speech,
    wants_text,
    wants_transcript,
)

pytestmark = pytest.mark.triton


@contextmanager
def inference(timeline: Timeline, url: str) -> Iterator[None]:
    stop = StopFlag()
    thread = Thread(target=run_inference, args=(timeline.url, url), kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def ends(*causes: str) -> Callable[[list[Event]], bool]:
    return lambda found: {e.cause for e in found if e.type in TERMINALS} >= set(causes)


def test_a_spoken_question_is_understood(
    triton: LocalTriton, recording: Callable[[str], NDArray[np.int16]]
) -> None:
    samples = recording("weather_question.wav")
    end = -(-len(samples) // WINDOW_SAMPLES) * WINDOW_SAMPLES
    closed = Event("session.closed", "s", "x", "device", SessionClosed(), end * 1_000 // 16)
    timeline = open_timeline("memory://inference-question")
    append(timeline, opened())
    with inference(timeline, triton.url):
        append(timeline, media(samples), Lane.MEDIA)
        append(timeline, [wants_transcript(0, end, start_us=2_000_000), wants_endpoint(0, end)])
        append(timeline, [closed])
        found = wait_for(timeline, ends("t", "e"), 60)
    by_type = {e.type: e for e in found}
    assert "weather" in by_type["transcript.final"].data.text.lower()
    words = by_type["transcript.final"].data.words
    assert words[0].start_us >= 2_000_000
    assert words[-1].end_us <= 2_000_000 + end * 1_000_000 // 16_000 + 500_000
    assert [w.start_us for w in words] == sorted(w.start_us for w in words)
    assert 0.0 <= by_type["endpoint.predicted"].data.probability <= 1.0


def test_an_answer_streams(triton: LocalTriton) -> None:
    timeline = open_timeline("memory://inference-answer")
    with inference(timeline, triton.url):
        append(timeline, [*opened(), wants_text("Say hello in one sentence.", max_tokens=16)])
        found = wait_for(timeline, ends("g"), 60)
    *parts, last = found
    assert len(parts) > 1 and {p.type for p in parts} == {"response.text"}
    assert last.type == "generation.completed"
    assert "".join(p.data.text for p in parts) == last.data.text
    assert 1 <= last.data.tokens <= 16


def test_a_sentence_is_spoken(triton: LocalTriton) -> None:
    timeline = open_timeline("memory://inference-voice")
    with inference(timeline, triton.url):
        append(timeline, [*opened(), wants_speech("It is sunny, and it will stay so all day.")])
        append(timeline, [wants_speech("...", id_="none")])
        found = wait_for(timeline, ends("v", "none"), 60)
    chunks = [e for e in found if e.type == "response.speech"]
    last = {e.cause: e for e in found if e.type == "speech.completed"}
    samples = sum(c.data.samples for c in chunks)
    assert last["v"].data.duration_us == samples * 1_000_000 // chunks[0].data.rate > 1_000_000
    assert [c.sequence for c in chunks] == list(range(len(chunks)))
    assert last["none"].data.duration_us == 0


def test_what_is_superseded_stops_quickly(triton: LocalTriton) -> None:
    timeline = open_timeline("memory://inference-superseded")
    data = RequestSuperseded(request="g", reason="test")
    with inference(timeline, triton.url):
        append(timeline, [*opened(), wants_text("Tell me a very long story.", max_tokens=2_000)])
        wait_for(timeline, lambda found: len(found) > 2, 60)
        cancel = Event("request.superseded", "s", "x", "conversation", data, 0)
        began = monotonic_s()
        append(timeline, [cancel])
        found = wait_for(timeline, ends("g"), 10)
        took = monotonic_s() - began
        # The model is free again at once.
        append(timeline, [wants_text("Say yes.", id_="next", max_tokens=4)])
        wait_for(timeline, ends("next"), 30)
    assert found[-1].data.reason == "cancelled"
    assert took < 1.0


def test_a_server_that_dies_fails_the_generation(tmp_path: Path) -> None:
    timeline = open_timeline("memory://inference-killed")
    server = LocalTriton(("chat",), log_path=tmp_path / "triton.log")
    with server, inference(timeline, server.url):
        append(timeline, [*opened(), wants_text("Tell me a long story.", max_tokens=2_000)])
        wait_for(timeline, lambda found: len(found) > 2, 60)
        os.kill(server.pid, signal.SIGKILL)
        found = wait_for(timeline, ends("g"), 20)
    assert found[-1].type == "generation.failed"
    assert found[-1].data.reason == "unavailable", found[-1].data
