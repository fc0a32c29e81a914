"""End of turn: the probability that the speaker has finished, by Smart Turn v3.2.

in   AUDIO [-1] int16          16 kHz mono, the turn so far; of more than 8 s the last 8 count
out  PROBABILITY [1] float32   0..1 that the turn is complete

Method: as `pipecat-ai` runs the same file: silence is put in front up to 8 s, the wave is normalised to mean 0 and
variance 1 with that silence, then Whisper's log-mel picture (80 bands, 800 frames). The picture is
computed here with numpy, so that this model needs neither torch nor transformers; a test holds it
equal to transformers' own.
Weights: BSD-2, Daily (smart-turn-v3.2-cpu.onnx inside the `pipecat-ai` wheel, which is not imported).
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

RATE = 16_000
SAMPLES = 8 * RATE
FFT = 400
HOP = 160
BANDS = 80


def model_path(parameters: dict[str, Any]) -> Path:
    """Environment, then configuration, then the package's own file; one line that says what is missing."""
    chosen = os.environ.get("VENUS_ENDPOINT_MODEL") or parameters["MODEL_PATH"]["string_value"]
    if not chosen:
        package = importlib.util.find_spec("pipecat")
        if package is None or package.origin is None:
            raise FileNotFoundError("smart_turn: no model, run: pip install --no-deps pipecat-ai")
        folder = Path(package.origin).parent / "audio" / "turn" / "smart_turn" / "data"
        chosen = folder / "smart-turn-v3.2-cpu.onnx"
    if not Path(chosen).is_file():
        raise FileNotFoundError(
            f"smart_turn: no model file {chosen} (setting VENUS_ENDPOINT_MODEL)"
        )
    return Path(chosen)


def mel_filters() -> Any:
    """Slaney's mel scale: linear to 1 kHz, logarithmic above, triangles of equal area. [201, 80]."""
    step = np.log(6.4) / 27
    top = 15 + np.log(RATE / 2 / 1000) / step
    mels = np.linspace(0, top, BANDS + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(step * (mels - 15)))
    bins = np.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    low, peak, high = edges[:-2], edges[1:-1], edges[2:]
    triangles = np.minimum((bins - low) / (peak - low), (high - bins) / (high - peak))
    return np.maximum(triangles, 0) * 2 / (high - low)


FILTERS = mel_filters()
WINDOW = np.hanning(FFT + 1)[:-1]


def log_mel(audio: Any) -> Any:
    """Whisper's picture of the last 8 s of a wave in -1..1: [80, 800] float32."""
    wave = np.zeros(SAMPLES, np.float32)
    kept = audio[-SAMPLES:]
    wave[SAMPLES - len(kept) :] = kept
    wave = (wave - wave.mean()) / np.sqrt(wave.var() + 1e-7)
    padded = np.pad(wave.astype(np.float64), FFT // 2, mode="reflect")
    # The reference computes one frame more and drops it.
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT)[:-1:HOP]
    power = np.abs(np.fft.rfft(frames * WINDOW)) ** 2
    logs = np.log10(np.maximum(power @ FILTERS, 1e-10)).T
    return ((np.maximum(logs, logs.max() - 8) + 4) / 4).astype(np.float32)


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        path = model_path(parameters)
        options = onnxruntime.SessionOptions()
        # One thread by default: two halve the time on idle cores, but spin for each other to do so, and on busy
        # ones (two cores, load 2) take 210 ms where one takes 130. They never spin beyond the call.
        threads = os.environ.get("VENUS_ENDPOINT_THREADS") or parameters["THREADS"]["string_value"]
        options.intra_op_num_threads = int(threads)
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        if os.environ.get("VENUS_DEVICE", "cpu") == "cuda":
            providers.insert(0, "CUDAExecutionProvider")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=providers)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        audio = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy()
        if len(audio) == 0:
            error = pb_utils.TritonError("smart_turn: no samples", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        picture = log_mel(audio[-SAMPLES:].astype(np.float32) / np.float32(32768))
        (output,) = self.session.run(None, {"input_features": picture[None]})
        probability = np.asarray(output, np.float32).reshape(1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("PROBABILITY", probability)])
