"""The timeline picture of a session: who spoke when, which turns and overlaps that made, how long the answers took.

Time runs from left to right in rows of about a minute. Upper lane: the user's speech with its turns; lower lane: what was heard of the
assistant. An arrow spans each response latency, from the end of the user's speech to the first sound of the answer.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from flows.story import ResponseStory, Story

ROW_S = 60.0
USER, ASSISTANT, OVERLAP, TURN, INK = "#2a6f97", "#e07a1f", "#c1121f", "#a9d6e5", "#333333"
VERDICT_COLOURS = {"interruption": "#c1121f", "backchannel": "#588157", "noise": "#8d99ae"}


def draw(story: Story, path: Path) -> Path:
    """Write the picture as PNG; returns its path."""
    length = max(1.0, story.media_us / 1e6)
    rows = max(1, round(length / ROW_S))
    figure, axes = plt.subplots(rows, 1, figsize=(16, 0.9 + 2.5 * rows), squeeze=False)
    for row, axis in enumerate(axes[:, 0]):
        _row(axis, story, row * length / rows, length / rows)
    turns = [t for t in story.turns.values() if t.end_us is not None]
    figure.suptitle(
        f"{story.session}: {story.media_us / 1e6:.0f} s, {len(turns)} turns, {len(story.responses)} responses, "
        f"{len(story.overlaps)} overlaps",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    figure.tight_layout(rect=(0, 0, 1, 0.97))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _row(axis: Axes, story: Story, start: float, width: float) -> None:
    axis.set_xlim(start, start + width)
    axis.set_ylim(-0.15, 3.1)
    axis.set_yticks([0.55, 2.05], ["assistant", "user"])
    axis.set_xticks(range(-(-int(start) // 5) * 5, int(start + width) + 1, 5))
    axis.tick_params(length=0)
    axis.grid(axis="x", color="#eeeeee")
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    for turn in story.turns.values():
        end = turn.end_us if turn.end_us is not None else story.media_us
        _bar(axis, turn.start_us, end, 1.7, 0.7, TURN, alpha=0.5)
        _label(axis, turn.start_us / 1e6, 2.48, turn.text or f"({turn.reason or 'open'})", USER, 34)
    for a, b in story.speech:
        _bar(axis, a, b, 1.8, 0.5, USER)
    for response in story.responses.values():
        for a, b in response.played:
            _bar(axis, a, b, 0.3, 0.5, ASSISTANT)
        first = response.first_heard_us
        if first is not None:
            text = response.heard_text + (" ✂" if response.how == "cancelled" else "")
            _label(axis, first / 1e6, -0.02, text, ASSISTANT, 46)
        _latency(axis, story, response)
    for overlap in story.overlaps.values():
        end = overlap.resolved_us or story.media_us
        colour = VERDICT_COLOURS.get(overlap.verdict, INK)
        axis.axvspan(overlap.start_us / 1e6, end / 1e6, 0.1, 0.72, color=colour, alpha=0.16, lw=0)
        label = overlap.verdict + (f" ({overlap.kind})" if overlap.kind else "")
        _label(axis, overlap.start_us / 1e6, 1.42, label, colour, 40)


def _bar(
    axis: Axes, a_us: int, b_us: int, y: float, height: float, colour: str, alpha: float = 1.0
) -> None:
    axis.broken_barh(
        [(a_us / 1e6, max(0.03, (b_us - a_us) / 1e6))], (y, height), color=colour, alpha=alpha, lw=0
    )


def _label(axis: Axes, x: float, y: float, text: str, colour: str, width: int) -> None:
    left, right = axis.get_xlim()
    if left <= x < right and text:
        short = text if len(text) <= width else text[: width - 1] + "…"
        axis.text(x, y, short, fontsize=7.5, color=colour, va="bottom", clip_on=True)


def _latency(axis: Axes, story: Story, response: ResponseStory) -> None:
    latency, first = story.latency_us(response), response.first_heard_us
    if latency is None or first is None or latency < 0:
        return
    a, b = (first - latency) / 1e6, first / 1e6
    axis.annotate(
        "",
        (b, 1.2),
        (a, 1.2),
        arrowprops={"arrowstyle": "->", "color": INK, "lw": 0.9},
        annotation_clip=True,
    )
    if axis.get_xlim()[0] <= a < axis.get_xlim()[1]:
        axis.text(
            (a + b) / 2,
            1.22,
            f"{latency / 1e6:.1f} s",
            fontsize=7.5,
            color=INK,
            ha="center",
            va="bottom",
            clip_on=True,
        )
