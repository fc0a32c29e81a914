"""A whole run of `venus bench judgement`: make the conversations, hear them, run every setting, and write what it showed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import orjson

from flows.bench.judgement.models import Oracle, hear
from flows.bench.judgement.report import Judged, figures
from flows.bench.judgement.script import SCRIPT, Conversation, read
from flows.bench.judgement.sound import Clip, Floats, Studio
from flows.bench.judgement.sweep import run, settings
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.errors import BadInput
from schemas.policy import LatencyPolicy

MODELS = ("silero_vad", "smart_turn", "whisper")
CLASSIFIER = "backchannel"
QUICK_CONDITIONS = ("clean",)
Progress = Callable[[str, float], None]
"""What is being done, and which share of it is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure. `half`: the conversations whose names begin so."""

    half: str = "b"
    quick: bool = False
    script: Path = SCRIPT
    babble: Floats | None = None


def judge(plan: Plan, url: str, classifier: bool, progress: Progress) -> Judged:
    """Measure on the models at `url`; `classifier`: the backchannel model is among them."""
    conversations = _chosen(plan)
    studio = Studio(plan.babble)
    conditions = studio.conditions(QUICK_CONDITIONS if plan.quick else None)
    clips: list[Clip] = []
    wanted = len(conversations) * len(conditions)
    for number, conversation in enumerate(conversations):
        for condition in conditions:
            progress("speaking", len(clips) / wanted)
            clips.append(studio.record(conversation, number, condition))
    windows, heard_of = sum(len(c.samples) // WINDOW_SAMPLES for c in clips), 0

    def step(count: int) -> None:
        nonlocal heard_of
        heard_of += count
        progress("hearing", heard_of / windows)

    heard = hear(clips, url, step)
    tried = settings(plan.quick, classifier)
    done = 0
    total = sum(bool(c.turns) == (s.about == "turns") for s in tried for c in clips)

    def decided(name: str) -> None:
        nonlocal done
        done += 1
        progress(name, min(1.0, done / total))

    with Oracle(url) as oracle:
        results = run(clips, heard, tried, oracle, lambda s: decided(f"{s.family}, {s.name}"))
        took = {kind: median(times) for kind, times in oracle.took.items()}
    assumed = LatencyPolicy()
    judged = Judged(
        [c.name for c in conditions],
        len(conversations),
        sum(len(c.samples) for c in clips) / SAMPLE_RATE,
        {kind: getattr(assumed, kind) / 1e6 for kind in ("endpoint", "transcript", "backchannel")},
        took,
    )
    return figures(judged, results)


def _chosen(plan: Plan) -> Sequence[Conversation]:
    found = [c for c in read(plan.script) if plan.half == "all" or c.name.startswith(plan.half)]
    if plan.quick:
        found = [
            *[c for c in found if c.turns][:4],
            *[c for c in found if c.overlaps][:1],
        ]
    if not any(c.turns for c in found) or not any(c.overlaps for c in found):
        raise BadInput(
            f"{plan.script}: half {plan.half!r} needs conversations of turns and of overlaps"
        )
    return found


def write(judged: Judged, folder: Path) -> tuple[Path, Path]:
    """`judgement.json` and `judgement.png` in `folder`."""
    from flows.bench.judgement.picture import draw

    folder.mkdir(parents=True, exist_ok=True)
    data, picture = folder / "judgement.json", folder / "judgement.png"
    data.write_bytes(orjson.dumps(judged.tree(), option=orjson.OPT_INDENT_2))
    return data, draw(judged, picture)
