"""`python -m flows.bench.backchannel_train [FILE]`: train the head of the backchannel classifier on the training part of our data.

A logistic regression with a quadratic penalty, by Newton's method in float64: there is one optimum, no random start and no order of
samples, so the same data gives the same file. The strength of the penalty is chosen by cross-validation over whole blocks of the
training part; the held-out part is not looked at.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.bench.backchannel import MODEL, Row, classifier, embeddings_of, read_rows, said_of
from operators.heard import words

Array = NDArray[np.float64]
FOLDS = 5
PENALTIES = (0.5, 1.0, 2.0, 4.0)
LEAST_SEEN = 2
"""Training rows that a word or pair must be in."""
EMBEDDING_SCALE = 5.0
"""Embeddings have length 1: scaled, one of them weighs as much as a handful of words under the penalty."""
DIGITS = 4


def fit(x: Array, truth: Array, penalty: float, steps: int = 30) -> Array:
    """Weights, the bias last and unpenalised."""
    x = np.hstack([x, np.ones((len(x), 1))])
    ridge = np.full(x.shape[1], 2 * penalty)
    ridge[-1] = 1e-6
    weights = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(x @ weights)))
        gradient = x.T @ (p - truth) + ridge * weights
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def validated(x: Array, truth: Array, blocks: NDArray[np.int_], penalty: float) -> float:
    """Accuracy on blocks that were left out."""
    right = 0
    for fold in range(FOLDS):
        out = blocks % FOLDS == fold
        weights = fit(x[~out], truth[~out], penalty)
        right += int(((x[out] @ weights[:-1] + weights[-1] > 0) == (truth[out] > 0)).sum())
    return right / len(truth)


def train(rows: Sequence[Row]) -> tuple[dict[str, Any], list[str]]:
    """The head as its file holds it, and lines that tell of the training."""
    module = classifier()
    said = said_of(rows)
    grams = [set(module.grams(words(r.text))) for r in rows]
    counts = Counter(g for found in grams for g in found)
    vocabulary = sorted(g for g, n in counts.items() if n >= LEAST_SEEN)
    place = {g: i for i, g in enumerate(vocabulary)}
    bag = np.zeros((len(rows), len(vocabulary)))
    for index, found in enumerate(grams):
        bag[index, [place[g] for g in found if g in place]] = 1
    own = np.array([module.features(s) for s in said])
    mean, spread = own.mean(0), own.std(0) + 1e-6
    embedded = embeddings_of(rows)
    truth = np.array([float(r.backchannel) for r in rows])
    blocks = np.array([r.block for r in rows])
    told = []
    without = np.hstack([bag, (own - mean) / spread])
    x = np.hstack([without, EMBEDDING_SCALE * embedded])
    for name, matrix in (("without embeddings", without), ("with embeddings", x)):
        right = {p: validated(matrix, truth, blocks, p) for p in PENALTIES}
        best = max(right, key=lambda p: right[p])
        told.append(f"{name}: {100 * right[best]:.1f} % right in cross-validation, penalty {best}")
    weights = fit(x, truth, best)
    n, m = len(vocabulary), own.shape[1]
    of_own = weights[n : n + m] / spread
    head = {
        "languages": sorted({r.language for r in rows}),
        "bias": rounded(weights[-1] - of_own @ mean),
        "features": dict(zip(module.FEATURES, map(rounded, of_own), strict=True)),
        "grams": dict(zip(vocabulary, map(rounded, weights[:n]), strict=True)),
        "embedding": [rounded(w * EMBEDDING_SCALE) for w in weights[n + m : -1]],
    }
    return head, told


def rounded(value: float) -> float:
    return round(float(value), DIGITS)


def main(arguments: Sequence[str]) -> int:
    rows = [r for r in read_rows() if not r.held_out]
    head, told = train(rows)
    path = Path(arguments[0]) if arguments else MODEL / "head.json"
    path.write_text(json.dumps(head, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    lines = [f"{len(rows)} rows", *told, f"{path}: {path.stat().st_size / 1024:.0f} kB"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
