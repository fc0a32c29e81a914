"""Endpoint and transcripts of real recordings."""

import asyncio
import sys
import types
from collections.abc import Awaitable, Callable
from importlib import util
from typing import Any, TypeVar

import numpy as np
import pytest

from infra.triton.client import ModelClient, ModelRejected, Transcript
from infra.triton.parts import REPOSITORY
from infra.triton.server import LocalTriton
from infra.triton.wire import Array

pytestmark = pytest.mark.triton

T = TypeVar("T")


def ask(triton: LocalTriton, question: Callable[[ModelClient], Awaitable[T]]) -> T:
    async def asked() -> T:
        async with ModelClient(triton.url) as client:
            return await question(client)

    return asyncio.run(asked())


def test_a_finished_question_is_complete_and_half_of_it_is_not(
    triton: LocalTriton, recording: Callable[[str], Array]
) -> None:
    audio = recording("weather_question.wav")
    assert ask(triton, lambda client: client.endpoint(audio)) > 0.8
    half = audio[: len(audio) * 6 // 10]
    assert ask(triton, lambda client: client.endpoint(half)) < 0.3


def test_only_the_last_eight_seconds_count_for_the_endpoint(
    triton: LocalTriton, recording: Callable[[str], Array]
) -> None:
    audio = recording("two_speakers.wav")[: 16_000 * 20]
    whole = ask(triton, lambda client: client.endpoint(audio))
    assert whole == ask(triton, lambda client: client.endpoint(audio[-16_000 * 8 :]))
    assert whole != ask(triton, lambda client: client.endpoint(audio[-16_000 * 7 :]))


def test_the_picture_that_the_endpoint_model_sees_is_that_of_transformers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transformers = pytest.importorskip("transformers")
    # The module belongs to the server's own process; here it only lends its function.
    monkeypatch.setitem(
        sys.modules, "triton_python_backend_utils", types.ModuleType("triton_python_backend_utils")
    )
    spec = util.spec_from_file_location("endpoint_model", REPOSITORY / "smart_turn/1/model.py")
    assert spec is not None
    assert spec.loader is not None
    model: Any = util.module_from_spec(spec)
    spec.loader.exec_module(model)
    wave = (np.random.default_rng(3).standard_normal(50_000) * 0.1).astype(np.float32)
    extractor = transformers.WhisperFeatureExtractor(chunk_length=8)
    expected = extractor(
        np.pad(wave, (128_000 - len(wave), 0)),
        sampling_rate=16_000,
        padding="max_length",
        max_length=128_000,
        truncation=True,
        do_normalize=True,
        return_tensors="np",
    ).input_features[0]
    found = model.log_mel(wave)
    assert found.shape == (80, 800)
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weather_question.wav", ("weather", "Paris")),
        ("check_order_12345.wav", ("status", "order", "number")),
        ("hello_world.wav", ("Hello",)),
    ],
)
def test_a_question_is_understood_with_word_times(
    triton: LocalTriton, recording: Callable[[str], Array], name: str, words: tuple[str, ...]
) -> None:
    audio = recording(name)
    heard = ask(triton, lambda client: client.transcribe(audio, "en"))
    assert all(word in heard.text for word in words), heard.text
    assert heard.language == "en"
    times = [time for word in heard.words for time in (word.start_us, word.end_us)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= heard.duration_us == len(audio) * 1_000_000 // 16_000
    assert "".join(word.text for word in heard.words) == heard.text.replace(" ", "")


def test_a_spoken_number_keeps_its_digits(
    triton: LocalTriton, recording: Callable[[str], Array]
) -> None:
    audio = recording("check_order_12345.wav")
    heard = ask(triton, lambda client: client.transcribe(audio))
    assert [letter for letter in heard.text if letter.isdigit()] == list("12345")


@pytest.mark.parametrize("samples", [0, 1, 1600, 4799, 48_000])
def test_nothing_is_heard_in_silence(triton: LocalTriton, samples: int) -> None:
    noise = np.random.default_rng(1).integers(-3, 4, samples).astype(np.int16)
    heard = ask(triton, lambda client: client.transcribe(noise))
    assert heard == Transcript("", "en", (), samples * 1_000_000 // 16_000, 1.0, 0.0)


def test_nothing_is_heard_in_noise_or_babble(
    triton: LocalTriton, recording: Callable[[str], Array]
) -> None:
    noise = (np.random.default_rng(0).standard_normal(32_000) * 300).astype(np.int16)
    assert ask(triton, lambda client: client.transcribe(noise)).text == ""
    babble = recording("people_talking.wav")[: 16_000 * 8]
    assert ask(triton, lambda client: client.transcribe(babble)).text == ""


def test_other_samples_than_int16_are_refused(triton: LocalTriton) -> None:
    with pytest.raises(ModelRejected, match=r"int16 samples \[n\] required, float32 \[5\] came"):
        ask(triton, lambda client: client.transcribe(np.zeros(5, np.float32)))
    with pytest.raises(ModelRejected, match=r"smart_turn at grpc://.*no samples"):
        ask(triton, lambda client: client.endpoint(np.zeros(0, np.int16)))
