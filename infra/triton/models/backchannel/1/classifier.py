"""The classifier behind the model, without Triton: training and comparison run the very same code.

What it looks at:
- the user's words: each word and pair of words that the training part of the data has twice, the first and the last one apart;
- how many they are, how many of them the assistant has just said, and whether it has just asked something;
- English only, since the encoder knows no other language: the words' embedding, alone and read after the assistant's last sentence.
One logistic head over all of it. How long the speech was is no feature: the data that it learned from has no sound.
"""

import json
import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Words and "has just asked" as the rules see them (operators.heard, operators.judgement; tests hold them equal): a model repository is
# copied to its server by itself and can import nothing of this project.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0e7f"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+(?:['’-][^\W_{_UNSPACED}]+)*")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*")
WORDS_PAST_A_QUESTION = 4

ENCODED = "en"
WIDTH = 384
TOKENS = 96
"""Of the assistant's sentence and the user's words together; the rest is cut off."""


class Said(NamedTuple):
    """What the user said, over which words of the assistant."""

    text: str
    assistant: str
    language: str = "en"


def words(text: str) -> list[str]:
    return [w.lower() for w in _WORD.findall(text)]


def just_asked(heard: str) -> bool:
    after = max(heard.rfind("?"), heard.rfind("？"))
    return after >= 0 and len(words(heard[after + 1 :])) <= WORDS_PAST_A_QUESTION


def last_sentence(heard: str) -> str:
    return next((s for s in reversed(_SENTENCE.split(heard)) if words(s)), "")


def grams(said: Sequence[str]) -> list[str]:
    """Words, pairs of neighbours, and the words at both ends."""
    if not said:
        return []
    pairs = [f"{a} {b}" for a, b in pairwise(said)]
    return [f"^{said[0]}", *said, *pairs, f"{said[-1]}$"]


FEATURES = (
    "just asked",
    "log words",
    "one word",
    "at most two",
    "five or more",
    "echoed",
    "Chinese",
    "log words, Chinese",
)


def features(row: Said) -> list[float]:
    """See FEATURES."""
    said = words(row.text)
    count, of_assistant = len(said), set(words(row.assistant))
    echoed = sum(w in of_assistant for w in set(said)) / max(1, count)
    chinese, length = float(row.language[:2].lower() == "zh"), math.log1p(count)
    asked = float(just_asked(row.assistant))
    return [
        asked,
        length,
        float(count == 1),
        float(count <= 2),
        float(count >= 5),
        echoed,
        chinese,
        chinese * length,
    ]


class Encoder:
    """Sentence embeddings by all-MiniLM-L6-v2: mean over the tokens, length 1."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._torch, self._device = torch, device
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModel.from_pretrained(folder).eval().to(device)

    def __call__(self, rows: Sequence[Said]) -> Any:
        """[rows, 2 * WIDTH]: the user's words alone, and read after the assistant's last sentence; zeros where it cannot read."""
        found = np.zeros((len(rows), 2 * WIDTH))
        known = [i for i, r in enumerate(rows) if r.language[:2].lower() == ENCODED]
        if not known:
            return found
        said = [" ".join(words(rows[i].text)) for i in known]
        before = [last_sentence(rows[i].assistant) for i in known]
        # Both kinds in one batch: a small model on few tokens waits more for its calls than for its products.
        alone = [self._tokenizer(s, truncation=True, max_length=TOKENS) for s in said]
        after = [
            self._tokenizer(b, s, truncation="longest_first", max_length=TOKENS)
            for b, s in zip(before, said, strict=True)
        ]
        pooled = self._pooled([*alone, *after], len(alone))
        found[known, :WIDTH], found[known, WIDTH:] = pooled[: len(alone)], pooled[len(alone) :]
        return found

    def _pooled(self, encoded: list[Any], alone: int) -> Any:
        torch = self._torch
        longest = max(len(e["input_ids"]) for e in encoded)
        ids, mask, second = (torch.zeros(len(encoded), longest, dtype=torch.long) for _ in range(3))
        for i, e in enumerate(encoded):
            size = len(e["input_ids"])
            ids[i, :size] = torch.tensor(e["input_ids"])
            mask[i, :size] = 1
            second[i, :size] = torch.tensor(e["token_type_ids"])
        pooling = second.clone()
        pooling[:alone] = mask[:alone]
        with torch.inference_mode():
            hidden = self._model(
                input_ids=ids.to(self._device),
                attention_mask=mask.to(self._device),
                token_type_ids=second.to(self._device),
            ).last_hidden_state.float()
            weight = pooling[..., None].to(self._device)
            mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
            return torch.nn.functional.normalize(mean, dim=1).cpu().numpy().astype(np.float64)


class Head:
    """The weights of a file that the training script wrote."""

    def __init__(self, path: Path) -> None:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tuple(tree["features"]) != FEATURES or len(tree["embedding"]) != 2 * WIDTH:
            raise ValueError(f"backchannel: {path} was trained for other features; train it again")
        self.languages = frozenset(tree["languages"])
        self._grams: dict[str, float] = tree["grams"]
        self._features = np.array([tree["features"][name] for name in FEATURES])
        self._embedding = np.array(tree["embedding"])
        self._bias = float(tree["bias"])

    def knows(self, language: str) -> bool:
        return language[:2].lower() in self.languages

    def __call__(self, rows: Sequence[Said], embeddings: Any) -> Any:
        """Probability of each being a backchannel."""
        own = np.array([features(r) for r in rows]) @ self._features
        said = [sum(self._grams.get(g, 0.0) for g in set(grams(words(r.text)))) for r in rows]
        logits = own + np.array(said) + embeddings @ self._embedding + self._bias
        return 1 / (1 + np.exp(-logits))
