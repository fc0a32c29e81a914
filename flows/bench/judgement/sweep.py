"""Many policies over the same conversations: ours, and the plain detector's fixed silences and least lengths.

A turn policy is run on the conversations of turns, an overlap policy on those of overlaps. The plain detector's transcript costs it no
time and its endpoint question is answered at once, so that its curve is the best that a fixed silence can do.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from flows.bench.judgement.models import Oracle
from flows.bench.judgement.score import OverlapScore, TurnScore, score_overlaps, score_turns
from flows.bench.judgement.sound import Clip
from flows.bench.judgement.world import World
from schemas.envelope import Event
from schemas.policy import Policy

Family = Literal["plain", "ours"]
PLAIN: dict[str, Any] = {
    "latency.endpoint": 0,
    "latency.transcript": 0,
    "overlap.pause_after": "10s",
    "overlap.side_talk_drop": 0,
}
"""The plain detector never pauses: it stops, or it does not."""
THREADS = 3
"""Conversations that are folded at once; the models are what takes the time."""
DEFAULT = "default policy"


def ms(value: int) -> str:
    return f"{value}ms"


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy under test."""

    name: str
    family: Family
    about: Literal["turns", "overlaps"]
    changes: dict[str, Any] = field(default_factory=dict)
    curve: bool = True
    """Whether it is a point of its family's curve, in this order."""

    @property
    def policy(self) -> Policy:
        return Policy().with_changes((PLAIN if self.family == "plain" else {}) | self.changes)


PLAIN_SILENCES = (200, 300, 400, 500, 600, 700, 800, 1000, 1200, 1400, 1600)
PLAIN_LENGTHS = (100, 200, 300, 400, 500, 600, 800, 1000)
INTERRUPT_AFTER = (600, 900, 1200, 1500, 1900)
PATIENCE = tuple(
    (f"patience {end}/{doubt} ms", {"turn.end_silence": ms(end), "turn.hold_doubt": ms(doubt)})
    for end, doubt in ((320, 500), (320, 750), (320, 1000), (480, 1300), (640, 1600), (800, 2000))
)
"""Of sounds that are at rest, and of those that are not."""


def settings(quick: bool, classifier: bool) -> list[Setting]:
    """`classifier`: the backchannel model is there to be asked."""
    silences = (300, 500, 700, 1000, 1600) if quick else PLAIN_SILENCES
    lengths = (100, 300, 600) if quick else PLAIN_LENGTHS
    found = [
        Setting(f"silence {s} ms", "plain", "turns", {"turn.end_silence": ms(s)}) for s in silences
    ]
    found += [
        Setting(f"{n} ms of speech", "plain", "overlaps", {"overlap.interrupt_after": ms(n)})
        for n in lengths
    ]
    if not quick:
        found += [Setting(n, "ours", "turns", c) for n, c in PATIENCE]
        found += [
            Setting(p, "ours", "turns", {"profile": p}, curve=False) for p in ("brisk", "patient")
        ]
        found += [
            Setting(
                f"interrupt after {n} ms", "ours", "overlaps", {"overlap.interrupt_after": ms(n)}
            )
            for n in INTERRUPT_AFTER
        ]
        if classifier:
            model = {"overlap.backchannel_model": True}
            found.append(Setting("with classifier", "ours", "overlaps", model, curve=False))
    found.append(Setting(DEFAULT, "ours", "turns", curve=False))
    found.append(Setting(DEFAULT, "ours", "overlaps", curve=False))
    return found


@dataclass(slots=True)
class Result:
    """One setting, and how each turn or overlap went."""

    setting: Setting
    turns: list[TurnScore] = field(default_factory=list)
    overlaps: list[OverlapScore] = field(default_factory=list)


def run(
    clips: Sequence[Clip],
    heard: Sequence[Sequence[Event]],
    wanted: Sequence[Setting],
    oracle: Oracle,
    step: Callable[[Setting], None],
) -> list[Result]:
    """Every setting on every conversation that it is about; `step` is told of each conversation."""
    results = []
    with ThreadPoolExecutor(THREADS) as threads:
        for setting in wanted:
            policy, result = setting.policy, Result(setting)
            models = None if setting.family == "plain" else oracle
            about = [
                (clip, windows)
                for clip, windows in zip(clips, heard, strict=True)
                if bool(clip.turns) == (setting.about == "turns")
            ]

            def decide(
                one: tuple[Clip, Sequence[Event]],
                policy: Policy = policy,
                models: Oracle | None = models,
                setting: Setting = setting,
            ) -> list[Event]:
                decisions = World(*one, policy, models).run()
                step(setting)
                return decisions

            for (clip, _), decisions in zip(about, threads.map(decide, about), strict=True):
                result.turns += score_turns(clip.condition, clip.turns, decisions)
                result.overlaps += score_overlaps(clip.condition, clip.overlaps, decisions)
            results.append(result)
    return results
