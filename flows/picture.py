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
CHARACTERS_PER_ROW = 270
"""Characters of a label that fit into the width of a row."""
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
    said, heard, judged = [], [], []
    for turn in story.turns.values():
        end = turn.end_us if turn.end_us is not None else story.media_us
        _bar(axis, turn.start_us, end, 1.7, 0.7, TURN, alpha=0.5)
        said.append((turn.start_us / 1e6, turn.text or f"({turn.reason or 'open'})", USER))
    for begin, end in story.speech:
        _bar(axis, begin, end, 1.8, 0.5, USER)
    for response in story.responses.values():
        for begin, end in response.played:
            _bar(axis, begin, end, 0.3, 0.5, ASSISTANT)
        if response.first_heard_us is not None:
            cut = " ✂" if response.how == "cancelled" else ""
            heard.append((response.first_heard_us / 1e6, response.heard_text + cut, ASSISTANT))
        _latency(axis, story, response)
    for overlap in story.overlaps.values():
        end = overlap.resolved_us or story.media_us
        colour = VERDICT_COLOURS.get(overlap.verdict, INK)
        axis.axvspan(overlap.start_us / 1e6, end / 1e6, 0.1, 0.72, color=colour, alpha=0.16, lw=0)
        kind = f" ({overlap.kind})" if overlap.kind else ""
        judged.append((overlap.start_us / 1e6, overlap.verdict + kind, colour))
    _labels(axis, 2.48, said)
    _labels(axis, -0.02, heard)
    _labels(axis, 1.42, judged)


def _bar(
    axis: Axes, a_us: int, b_us: int, y: float, height: float, colour: str, alpha: float = 1.0
) -> None:
    axis.broken_barh(
        [(a_us / 1e6, max(0.03, (b_us - a_us) / 1e6))], (y, height), color=colour, alpha=alpha, lw=0
    )


def _labels(axis: Axes, y: float, labels: list[tuple[float, str, str]]) -> None:
    """(seconds, text, colour) along a lane, each cut to the room before the next."""
    left, right = axis.get_xlim()
    here = sorted(label for label in labels if left <= label[0] < right and label[1])
    edges = [*(x for x, _, _ in here[1:]), right + 5]
    for (x, text, colour), following in zip(here, edges, strict=False):
        room = max(4, int((following - x) * CHARACTERS_PER_ROW / (right - left)) - 1)
        short = text if len(text) <= room else text[: room - 1].rstrip() + "…"
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
