"""What a run showed: the figures of each setting, as JSON and as tables. `docs/judgement.md` defines them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.bench.judgement.score import (
    Compared,
    OverlapScore,
    Rate,
    TurnScore,
    at_equal_latency,
    f1,
    rate,
)
from flows.bench.judgement.script import KINDS
from flows.bench.judgement.sweep import DEFAULT, Result


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Times in s; of the latency all turns that were ended before the next one began."""

    turns: int
    pauses: int
    cut: Rate
    heard: Rate
    cut_pauses: int
    latency_mean: float
    latency_median: float
    latency_p90: float
    answer_mean: float
    answer_median: float
    unanswered: int

    @classmethod
    def of(cls, scores: Sequence[TurnScore]) -> "TurnFigures":
        cut = rate([(s.line, float(s.cut)) for s in scores])
        heard = rate([(s.line, float(s.heard)) for s in scores])
        latency = sorted(s.latency / 1e6 for s in scores if s.latency is not None)
        answers = [s.answer / 1e6 for s in scores if s.answer is not None]
        assert cut is not None and heard is not None
        return cls(
            len(scores),
            sum(s.pauses for s in scores),
            cut,
            heard,
            sum(s.cut_pauses for s in scores),
            _mean(latency),
            _median(latency),
            latency[int(0.9 * (len(latency) - 1))] if latency else float("nan"),
            _mean(answers),
            _median(answers),
            sum(s.latency is None for s in scores),
        )


@dataclass(frozen=True, slots=True)
class OverlapFigures:
    """Times in s. Interruptions are found when the assistant stops; a backchannel when it goes on."""

    stopped: dict[str, Rate]
    """Kind of overlap → share that stopped the assistant."""
    interruption_precision: float
    interruption_recall: float
    interruption_f1: float
    backchannel_precision: float
    """Of the interruptions and backchannels over which the assistant went on."""
    backchannel_recall: float
    backchannel_f1: float
    silent_mean: float
    """Stop latency of interruptions: from their onset to the assistant's silence, …"""
    silent_median: float
    cancelled_mean: float
    """… and to the decision that it stops for good."""
    cancelled_median: float
    backchannel_pause: float
    """How long a backchannel over which the assistant went on held it up, on average."""
    verdicts: dict[str, dict[str, int]]
    missed: int
    """Overlaps that met no speaking assistant: an earlier sound had stopped it."""

    @classmethod
    def of(cls, scores: Sequence[OverlapScore]) -> "OverlapFigures":
        met = [s for s in scores if s.met]
        kinds = {k: [s for s in met if s.kind == k] for k in KINDS.values()}
        shares = {
            k: rate([(s.line, float(s.stopped)) for s in found]) for k, found in kinds.items()
        }
        mine = [s for s in kinds["interruption"] if s.stopped]
        others = [s for s in met if s.stopped and s.kind != "interruption"]
        on = [s for s in kinds["backchannel"] if not s.stopped]
        lost = [s for s in kinds["interruption"] if not s.stopped]
        precision = len(mine) / max(1, len(mine) + len(others))
        recall = len(mine) / max(1, len(kinds["interruption"]))
        b_precision = len(on) / max(1, len(on) + len(lost))
        b_recall = len(on) / max(1, len(kinds["backchannel"]))
        silent = [s.silent_after / 1e6 for s in mine if s.silent_after is not None]
        cancelled = [s.cancelled_after / 1e6 for s in mine if s.cancelled_after is not None]
        return cls(
            {k: r for k, r in shares.items() if r is not None},
            precision,
            recall,
            f1(precision, recall),
            b_precision,
            b_recall,
            f1(b_precision, b_recall),
            _mean(silent),
            _median(silent),
            _mean(cancelled),
            _median(cancelled),
            _mean([s.paused / 1e6 for s in on]),
            {k: dict(Counter(s.verdict for s in found)) for k, found in kinds.items()},
            len(scores) - len(met),
        )


@dataclass(frozen=True, slots=True)
class Point:
    """A setting and its figures; `compared` where it is ours and about turns."""

    name: str
    family: str
    about: str
    curve: bool
    changes: dict[str, Any]
    turns: TurnFigures | None = None
    overlaps: OverlapFigures | None = None
    compared: Compared | None = None


@dataclass(slots=True)
class Judged:
    """A whole run."""

    conditions: list[str]
    conversations: int
    audio_s: float
    latencies: dict[str, float]
    """The policy's time of each answer, in s: what the outcomes were given."""
    took: dict[str, float]
    """Median time of each model's answers in this run, in s: where it differs much, the assumed one is wrong here."""
    points: list[Point] = field(default_factory=list)
    by_condition: dict[str, dict[str, Any]] = field(default_factory=dict)

    def point(self, about: str, name: str = DEFAULT, family: str = "ours") -> Point:
        return next(p for p in self.points if (p.about, p.name, p.family) == (about, name, family))

    def curve(self, about: str, family: str) -> list[Point]:
        return [p for p in self.points if (p.about, p.family, p.curve) == (about, family, True)]

    @property
    def best_plain(self) -> Point:
        """The plain detector's least length with which it does best at both kinds: chosen in its favour, on this very material."""
        return max(
            self.curve("overlaps", "plain"),
            key=lambda p: (
                0.0
                if p.overlaps is None
                else p.overlaps.interruption_f1 + p.overlaps.backchannel_f1
            ),
        )

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def figures(judged: Judged, results: Sequence[Result]) -> Judged:
    """Fill in the points."""
    plain = [r.turns for r in results if r.setting.family == "plain" and r.setting.about == "turns"]
    for r in results:
        s = r.setting
        mine = s.family == "ours" and s.about == "turns"
        judged.points.append(
            Point(
                s.name,
                s.family,
                s.about,
                s.curve,
                s.changes,
                TurnFigures.of(r.turns) if r.turns else None,
                OverlapFigures.of(r.overlaps) if r.overlaps else None,
                at_equal_latency(r.turns, plain) if mine else None,
            )
        )
    turns, overlaps = (_default(results, about) for about in ("turns", "overlaps"))
    best = next(
        r
        for r in results
        if r.setting.family == "plain" and r.setting.name == judged.best_plain.name
    )
    for name in judged.conditions:
        here = _of(turns.turns, name)
        compared = at_equal_latency(here, [_of(p, name) for p in plain])
        judged.by_condition[name] = {
            "turns": TurnFigures.of(here),
            "compared": compared,
            "overlaps": OverlapFigures.of(_of(overlaps.overlaps, name)),
            "plain overlaps": OverlapFigures.of(_of(best.overlaps, name)),
        }
    return judged


def _of(scores: Iterable[Any], condition: str) -> list[Any]:
    return [s for s in scores if s.condition == condition]


def _default(results: Sequence[Result], about: str) -> Result:
    return next(r for r in results if r.setting.name == DEFAULT and r.setting.about == about)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")


def _median(values: Sequence[float]) -> float:
    return median(values) if values else float("nan")


# --- tables


def percent(value: Rate) -> str:
    return f"{100 * value.rate:.0f} % [{100 * value.low:.0f}–{100 * value.high:.0f}]"


def show(judged: Judged, console: Console) -> None:
    one = judged.point("turns").turns
    assert one is not None
    console.print(
        f"{judged.conversations} conversations, each under {', '.join(judged.conditions)}: "
        f"{judged.audio_s / 60:.0f} min; {one.turns} turns with {one.pauses} pauses inside"
    )
    console.print(_turn_table(judged), "", _overlap_table(judged), "", _condition_table(judged))
    c = judged.point("turns").compared
    if c is not None:
        console.print(
            f"\nAt the same mean latency of {c.latency_s:.2f} s the default policy cuts off {percent(c.ours)} of the turns, "
            f"a fixed silence {100 * c.plain:.0f} %: {100 * c.fewer:.0f} % fewer "
            f"[{100 * c.fewer_low:.0f}–{100 * c.fewer_high:.0f}]."
        )


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, box=None, title_justify="left")
    for name in names:
        table.add_column(name, justify="right" if table.columns else "left")
    return table


def _turn_table(judged: Judged) -> Table:
    table = _table(
        "turns: false cut-offs against latency (s, from the true end)",
        "policy", "cut off", "heard", "pauses cut", "mean", "median", "p90", "to first sound", "plain there", "fewer",
    )  # fmt: skip
    for p in judged.points:
        t, c = p.turns, p.compared
        if t is None:
            continue
        there = ("", "") if c is None else (f"{100 * c.plain:.0f} %", f"{100 * c.fewer:.0f} %")
        table.add_row(
            f"{p.family}, {p.name}",
            percent(t.cut),
            percent(t.heard),
            f"{t.cut_pauses}/{t.pauses}",
            *(f"{v:.2f}" for v in (t.latency_mean, t.latency_median, t.latency_p90, t.answer_mean)),
            *there,
        )
    return table


def _overlap_table(judged: Judged) -> Table:
    table = _table(
        "overlaps: precision, recall and F1 in %; what stopped the assistant wrongly; stop latency (s, from the onset)",
        "policy", "interruption P", "R", "F1", "backchannel P", "R", "F1", "side talk stops", "noise stops",
        "silent", "cancelled", "held up",
    )  # fmt: skip
    for p in judged.points:
        o = p.overlaps
        if o is None:
            continue
        shares = (
            o.interruption_precision, o.interruption_recall, o.interruption_f1,
            o.backchannel_precision, o.backchannel_recall, o.backchannel_f1,
        )  # fmt: skip
        stops = (o.stopped.get(k) for k in ("side_talk", "noise"))
        table.add_row(
            f"{p.family}, {p.name}",
            *(f"{100 * v:.0f}" for v in shares),
            *("" if s is None else f"{s.events:.0f}/{s.of}" for s in stops),
            *(f"{v:.2f}" for v in (o.silent_mean, o.cancelled_mean, o.backchannel_pause)),
        )
    return table


def _condition_table(judged: Judged) -> Table:
    table = _table(
        f"by condition: default policy, and the plain detector at the same latency (turns) or at {judged.best_plain.name} (overlaps)",
        "condition", "cut off", "plain", "mean latency", "interruption F1", "plain", "backchannel F1", "plain",
    )  # fmt: skip
    for name, found in judged.by_condition.items():
        t, c, o, p = (found[k] for k in ("turns", "compared", "overlaps", "plain overlaps"))
        table.add_row(
            name,
            percent(t.cut),
            "" if c is None else f"{100 * c.plain:.0f} %",
            f"{t.latency_mean:.2f}",
            *(
                f"{100 * v:.0f}"
                for v in (o.interruption_f1, p.interruption_f1, o.backchannel_f1, p.backchannel_f1)
            ),
        )
    return table
