"""The picture of `venus bench judgement`: both curves, what became of each kind of overlap, and the conditions one by one."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from flows.bench.judgement.report import Judged, OverlapFigures, Point, TurnFigures
from flows.bench.judgement.score import Rate

OURS, PLAIN, BEST, INK = "#2a6f97", "#e07a1f", "#c9a227", "#333333"
KIND_NAMES = {
    "interruption": "interruption:\nstops",
    "backchannel": "backchannel:\ngoes on",
    "side_talk": "side talk:\ngoes on",
    "noise": "noise:\ngoes on",
}
FIRST_LENGTH = "200 ms of speech"
"""The plain detector that takes whatever is speech for an interruption."""


def draw(judged: Judged, path: Path) -> Path:
    """Write the picture as PNG; returns its path."""
    figure, axes = plt.subplots(2, 2, figsize=(14, 10))
    _turns(axes[0, 0], judged)
    _overlaps(axes[0, 1], judged)
    _kinds(axes[1, 0], judged)
    _conditions(axes[1, 1], judged)
    turns, overlaps = judged.point("turns").turns, judged.point("overlaps").overlaps
    assert turns is not None and overlaps is not None
    many = sum(r.of for r in overlaps.stopped.values()) + overlaps.missed
    figure.suptitle(
        f"Judgement on made conversations: {turns.turns} turns with {turns.pauses} pauses, {many} overlaps; "
        f"{', '.join(judged.conditions)}",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    figure.subplots_adjust(0.06, 0.07, 0.985, 0.915, wspace=0.15, hspace=0.28)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    return path


def _bare(axis: Axes, title: str) -> None:
    axis.set_title(title, loc="left", fontsize=10.5, color=INK)
    axis.grid(color="#eeeeee")
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _errors(rates: list[Rate]) -> Any:
    """Below and above, as matplotlib wants them."""
    return np.array([[r.rate - r.low for r in rates], [r.high - r.rate for r in rates]]).clip(0)


def _turns(axis: Axes, judged: Judged) -> None:
    _bare(axis, "Turns: false cut-offs against response latency")
    for family, colour, label in (
        ("plain", PLAIN, "plain voice activity, a fixed silence (ms)"),
        ("ours", OURS, "ours, by patience"),
    ):
        found = [(p, p.turns) for p in judged.curve("turns", family) if p.turns is not None]
        _curve(
            axis,
            [t.latency_mean for _, t in found],
            [t.cut for _, t in found],
            colour,
            label,
        )
        if family == "plain":
            for p, t in found:
                _note(axis, _number(p), t.latency_mean, t.cut.rate, colour, (6, 6))
    for p in judged.points:
        if p.about == "turns" and p.family == "ours" and not p.curve and p.turns is not None:
            t, default = p.turns, p.compared is not None and not p.changes
            axis.plot(
                t.latency_mean,
                t.cut.rate,
                "*" if default else "D",
                color=OURS,
                ms=17 if default else 7,
                mec="white",
                zorder=5,
            )
            _note(axis, p.name, t.latency_mean, t.cut.rate, OURS, (-11, -13), right=True)
    compared = judged.point("turns").compared
    if compared is not None:
        x = compared.latency_s
        axis.annotate(
            "",
            (x, compared.ours.rate),
            (x, compared.plain),
            arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.2, "shrinkB": 9},
        )
        axis.annotate(
            f"{100 * compared.fewer:.0f} % fewer at equal latency\n"
            f"[{100 * compared.fewer_low:.0f} to {100 * compared.fewer_high:.0f}]",
            (x, (compared.ours.rate + compared.plain) / 2),
            xytext=(0.55, 0.66),
            textcoords="axes fraction",
            fontsize=9,
            color=INK,
            va="center",
            arrowprops={"arrowstyle": "-", "color": INK, "lw": 0.6},
        )
    axis.set_xlabel("mean time from the true end of speech to the decision, s")
    axis.set_ylabel("turns ended in one of their pauses")
    axis.set_ylim(0)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.legend(frameon=False, fontsize=9, loc="upper right")


def _number(point: Point) -> str:
    return "".join(c for c in point.name if c.isdigit())


def _curve(axis: Axes, x: list[float], rates: list[Rate], colour: str, label: str) -> None:
    axis.errorbar(
        x,
        [r.rate for r in rates],
        yerr=_errors(rates),
        fmt="o-",
        color=colour,
        label=label,
        ms=5,
        lw=1.8,
        elinewidth=0.7,
        capsize=2,
        ecolor=colour + "88",
    )


def _note(
    axis: Axes,
    text: str,
    x: float,
    y: float,
    colour: str,
    by: tuple[int, int],
    right: bool = False,
) -> None:
    axis.annotate(
        text,
        (x, y),
        xytext=by,
        textcoords="offset points",
        fontsize=8.5,
        color=colour,
        ha="right" if right else "left",
    )


def _overlaps(axis: Axes, judged: Judged) -> None:
    _bare(axis, "Overlaps: wrong stops against stop latency")
    found = [(p, p.overlaps) for p in judged.curve("overlaps", "plain") if p.overlaps is not None]
    latencies, wrong = [o.silent_mean for _, o in found], [_wrong(o) for _, o in found]
    name = "plain voice activity, stops after so much speech (ms)"
    axis.plot(latencies, wrong, "o-", color=PLAIN, label=name, ms=5, lw=1.8)
    for p, o in found:
        note = _number(p) + (f", {_missed(o)}" if o.interruption_recall < 0.995 else "")
        _note(axis, note, o.silent_mean, _wrong(o), PLAIN, (7, 4))
    mine = [
        p for p in judged.points if p.about == "overlaps" and p.family == "ours" and not p.curve
    ]
    for number, point in enumerate(sorted(mine, key=lambda p: bool(p.changes))):
        own = point.overlaps
        assert own is not None
        mark, size = ("D", 8) if point.changes else ("*", 17)
        paused, stopped = (own.silent_mean, _wrong(own)), (own.cancelled_mean, _wrong(own))
        label = "ours: paused here, …" if number == 0 else None
        axis.plot(*paused, mark, color=OURS, ms=size, mec="white", zorder=5, ls="", label=label)
        label = "… stopped for good here" if number == 0 else None
        axis.plot(
            *stopped, mark, color="white", ms=size - 2, mec=OURS, zorder=5, ls="", label=label
        )
        arrow = {"arrowstyle": "-", "color": OURS, "ls": ":", "lw": 1.3}
        axis.annotate("", stopped, paused, arrowprops=arrow)
        _note(axis, f"{point.name}, {_missed(own)}", *paused, OURS, (12, -14))
    axis.set_xlabel("mean time from an interruption's onset to the assistant's silence, s")
    axis.set_ylabel("backchannels, side talk and noises that stop it")
    axis.set_ylim(0, 1)
    axis.set_xlim(0, 1.15 * axis.get_xlim()[1])
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.legend(frameon=False, fontsize=9, loc="upper right")


def _missed(figures: OverlapFigures) -> str:
    return f"misses {100 * (1 - figures.interruption_recall):.0f} %"


def _wrong(figures: OverlapFigures) -> float:
    found = [r for kind, r in figures.stopped.items() if kind != "interruption"]
    return sum(r.events for r in found) / max(1, sum(r.of for r in found))


def _kinds(axis: Axes, judged: Judged) -> None:
    _bare(axis, "Overlaps judged rightly, by kind")
    wanted = [("ours, default policy", judged.point("overlaps"), OURS)]
    plain = {p.name: p for p in judged.curve("overlaps", "plain")}
    if FIRST_LENGTH in plain:
        wanted.append((f"plain, {FIRST_LENGTH}", plain[FIRST_LENGTH], PLAIN))
    best = judged.best_plain
    wanted.append((f"plain at its best, {best.name}", best, BEST))
    for number, (label, point, colour) in enumerate(wanted):
        assert point.overlaps is not None
        for place, kind in enumerate(KIND_NAMES):
            share = point.overlaps.stopped.get(kind)
            if share is None:
                continue
            right = share if kind == "interruption" else _complement(share)
            x = place + (number - (len(wanted) - 1) / 2) * 0.26
            _column(axis, x, 0.24, right, colour, label if place == 0 else None)
    axis.set_xticks(range(len(KIND_NAMES)), list(KIND_NAMES.values()), fontsize=9)
    axis.set_ylim(0, 1.22)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.legend(frameon=False, fontsize=8.3, ncols=3, loc="upper left", columnspacing=1.2)


def _column(
    axis: Axes, x: float, width: float, share: Rate, colour: str, label: str | None
) -> None:
    """A share with its interval and its figure."""
    axis.bar(x, share.rate, width, color=colour, label=label)
    axis.errorbar(
        [x], [share.rate], yerr=_errors([share]), fmt="none", ecolor=INK, elinewidth=0.8, capsize=2
    )
    axis.text(x, 0.012, f"{100 * share.rate:.0f}", ha="center", fontsize=8.5, color="white")


def _complement(share: Rate) -> Rate:
    return Rate(share.of - share.events, share.of, 1 - share.rate, 1 - share.high, 1 - share.low)


def _conditions(axis: Axes, judged: Judged) -> None:
    _bare(axis, "False cut-offs by condition, at the default policy's mean latency there")
    names = list(judged.by_condition)
    for place, name in enumerate(names):
        turns: TurnFigures = judged.by_condition[name]["turns"]
        compared = judged.by_condition[name]["compared"]
        bars = [(-0.17, turns.cut, OURS, "ours, default policy")]
        if compared is not None:
            plain = Rate(0, turns.turns, compared.plain, compared.plain_low, compared.plain_high)
            bars.append((0.17, plain, PLAIN, "plain at equal latency"))
        for offset, share, colour, label in bars:
            _column(axis, place + offset, 0.32, share, colour, label if place == 0 else None)
    latencies = [judged.by_condition[n]["turns"].latency_mean for n in names]
    axis.set_xticks(
        range(len(names)),
        [f"{n}\n{latency:.2f} s" for n, latency in zip(names, latencies, strict=True)],
        fontsize=9,
    )
    axis.set_ylim(0, 1.2 * axis.get_ylim()[1])
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.legend(frameon=False, fontsize=9, loc="upper right")
