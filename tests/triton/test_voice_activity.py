"""Voice activity: equal to Silero's own way of asking, and the same bits however sessions are batched."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from infra.triton.client import ModelRejected, VadClient, vad_start
from infra.triton.server import LocalTriton
from infra.triton.wire import Array

pytestmark = pytest.mark.triton

WINDOW = 1536


@pytest.fixture(scope="module")
def vad(triton: LocalTriton) -> Iterator[VadClient]:
    with VadClient(triton.url) as client:
        yield client


def voices(sessions: int, windows: int) -> Array:
    """Pitched, breathy, clipped and silent sound of many sessions, loud and quiet: [sessions, samples]."""
    rng = np.random.default_rng(7)
    time = np.arange(windows * WINDOW) / 16_000
    pitch = rng.uniform(80, 300, (sessions, 1))
    tone = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 12))
    beat = np.sin(2 * np.pi * rng.uniform(0.5, 4, (sessions, 1)) * time) > 0
    level = 10 ** rng.uniform(0, 4.5, (sessions, 1))
    sound = tone * beat * level + rng.standard_normal((sessions, len(time))) * level / 30
    sound[0] = 0
    clipped: Array = np.clip(sound, -32768, 32767).astype(np.int16)
    return clipped


def listen(vad: VadClient, sound: Array) -> tuple[Array, Array]:
    """All windows of these sessions in one batch: probabilities [sessions, hops] and the last state."""
    context, state = vad_start(len(sound))
    hops = []
    for first in range(0, sound.shape[1], WINDOW):
        probability, context, state = vad.infer(sound[:, first : first + WINDOW], context, state)
        hops.append(probability)
    return np.concatenate(hops, axis=1), state


def silero(audio: Array) -> Array:
    """The probabilities as Silero's wrapper computes them: 512 samples behind the 64 before them."""
    package = importlib.util.find_spec("silero_vad")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "silero_vad.onnx"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    state = np.zeros((2, 1, 128), np.float32)
    samples = np.concatenate([np.zeros(64, np.int16), audio]).astype(np.float32) / 32768
    found = []
    for first in range(0, len(audio) - 511, 512):
        feed = {"input": samples[None, first : first + 576], "state": state, "sr": np.array(16000)}
        output, state = session.run(None, feed)
        found.append(output[0, 0])
    return np.array(found)


def test_probabilities_are_those_of_silero_itself(
    vad: VadClient, recording: Callable[[str], Array]
) -> None:
    audio = recording("check_order_12345.wav")
    audio = audio[: len(audio) // WINDOW * WINDOW]
    found, _ = listen(vad, audio[None])
    expected = silero(audio)
    np.testing.assert_allclose(found[0], expected, atol=1e-4)
    assert expected.max() > 0.9, "the recording holds speech, else this compares nothing"
    assert expected.min() < 0.1


@pytest.mark.parametrize("batch", [2, 3, 8, 20, 60, 61, 200])
def test_a_session_gets_the_same_bits_in_any_batch(vad: VadClient, batch: int) -> None:
    sound = voices(200, windows=3)[-batch:]
    together, state = listen(vad, sound)
    for row in {0, 1, batch // 2, batch - 1}:
        alone, alone_state = listen(vad, sound[row : row + 1])
        assert alone.tobytes() == together[row].tobytes()
        assert alone_state.tobytes() == state[row].tobytes()


def test_the_order_of_sessions_in_a_batch_does_not_matter(vad: VadClient) -> None:
    sound = voices(20, windows=2)
    forward, _ = listen(vad, sound)
    backward, _ = listen(vad, sound[::-1].copy())
    assert forward.tobytes() == backward[::-1].tobytes()
    assert len(np.unique(forward)) > 60, "rows must differ, else this compares nothing"


def test_context_and_state_carry_over(vad: VadClient) -> None:
    sound = voices(2, windows=2)[1:]
    carried, _ = listen(vad, sound)
    fresh, _ = listen(vad, sound[:, WINDOW:])
    assert carried[:, 3:].tobytes() != fresh.tobytes()


@pytest.mark.parametrize(
    ("audio", "context", "state"),
    [
        ((1, 1535), (1, 64), (1, 2, 128)),
        ((1, 1537), (1, 64), (1, 2, 128)),
        ((1, 512), (1, 64), (1, 2, 128)),
        ((1, 1536), (1, 32), (1, 2, 128)),
        ((1, 1536), (1, 64), (2, 1, 128)),
        ((2, 1536), (1, 64), (1, 2, 128)),
        ((257, 1536), (257, 64), (257, 2, 128)),
    ],
)
def test_a_wrong_shape_is_refused(
    vad: VadClient, audio: tuple[int, ...], context: tuple[int, ...], state: tuple[int, ...]
) -> None:
    with pytest.raises(ModelRejected, match="silero_vad at grpc://"):
        vad.infer(
            np.zeros(audio, np.int16), np.zeros(context, np.float32), np.zeros(state, np.float32)
        )


def test_a_wrong_type_is_refused_before_it_is_sent(vad: VadClient) -> None:
    context, state = vad_start(1)
    with pytest.raises(ModelRejected, match="AUDIO of type int16 required, float32 came"):
        vad.infer(np.zeros((1, WINDOW), np.float32), context, state)
