"""What was decided against what is true (pure): each turn and each overlap by itself, then rates and their uncertainty.

- A turn is *cut off* when an end of it is decided before its true end; *heard*, when the assistant also begins to speak before it.
- Its *latency* runs from its true end to the first decision after it that a turn is over, its *answer's* to the assistant's first sound.
- An overlap *stopped* the assistant when the response was cancelled as an interruption within `LATEST` of its end.
- The *stop latency* runs from the true onset to the first moment without the assistant's voice: paused or cancelled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.bench.judgement.sound import OverlapTruth, TurnTruth
from schemas.envelope import Event

LATEST = 3_000_000
RESAMPLES = 1000
SEED = 20_240_101
Floats = NDArray[np.float64]


class TurnScore(NamedTuple):
    """Times in µs; None: nothing was decided before the next turn."""

    line: int
    condition: str
    pauses: int
    cut_pauses: int
    cut: bool
    heard: bool
    latency: int | None
    answer: int | None


class OverlapScore(NamedTuple):
    """Times in µs. `met`: the assistant was speaking when it began."""

    line: int
    condition: str
    kind: str
    met: bool
    stopped: bool
    verdict: str
    paused: int
    silent_after: int | None
    cancelled_after: int | None


def score_turns(
    condition: str, truths: Sequence[TurnTruth], decisions: Sequence[Event]
) -> list[TurnScore]:
    ended = [e.mediatime or 0 for e in decisions if e.type == "turn.ended"]
    started = [e.mediatime or 0 for e in decisions if e.type == "response.started"]
    found = []
    for t in truths:
        early = [at for at in ended if t.start <= at < t.end]
        cut = {max((i for i, (a, _) in enumerate(t.pauses) if a <= at), default=-1) for at in early}
        after = [at - t.end for at in ended if t.end <= at < t.until]
        spoken = [at - t.end for at in started if t.end <= at < t.until]
        heard = bool(early) and any(early[0] <= at < t.end for at in started)
        found.append(
            TurnScore(
                t.line,
                condition,
                len(t.pauses),
                len(cut - {-1}),
                bool(early),
                heard,
                min(after, default=None),
                min(spoken, default=None),
            )
        )
    return found


def score_overlaps(
    condition: str, truths: Sequence[OverlapTruth], decisions: Sequence[Event]
) -> list[OverlapScore]:
    return [_score_overlap(condition, t, decisions) for t in truths]


def _score_overlap(condition: str, t: OverlapTruth, decisions: Sequence[Event]) -> OverlapScore:
    over = ("response.ended", "response.cancelled", "response.failed")
    speaking: str | None = None
    silent = cancelled = paused_at = None
    paused = 0
    verdicts: list[str] = []
    until = min(t.until, t.end + LATEST)
    for e in decisions:
        at, response = e.mediatime or 0, getattr(e.data, "response", None)
        if at >= until:
            break
        if at < t.start:
            if e.type == "response.started":
                speaking = response
            elif e.type in over and response == speaking:
                speaking = None
            continue
        if speaking is None or response != speaking:
            continue
        if e.type == "floor.paused":
            paused_at = at
            silent = at - t.start if silent is None else silent
        elif e.type == "floor.resumed" and paused_at is not None:
            paused, paused_at = paused + at - paused_at, None
        elif e.type == "overlap.resolved":
            verdicts.append(e.data.verdict)
        elif e.type == "response.cancelled":
            if e.data.reason.startswith("interruption"):
                cancelled = at - t.start
                silent = cancelled if silent is None else silent
            break
    if paused_at is not None and cancelled is None:
        paused += until - paused_at
    stopped = cancelled is not None
    verdict = "interruption" if stopped else verdicts[0] if verdicts else "unnoticed"
    return OverlapScore(
        t.line,
        condition,
        t.kind,
        speaking is not None,
        stopped,
        verdict,
        paused,
        silent if stopped else None,
        cancelled,
    )


# --- rates


@dataclass(frozen=True, slots=True)
class Rate:
    """A share, or a mean, with its 95 % interval."""

    events: float
    of: int
    rate: float
    low: float
    high: float


def weights(count: int) -> Floats:
    """How often each of so many lines of the script is drawn in each resample: [RESAMPLES, count].

    Lines are drawn, not their appearances, since one text under four conditions is one text.
    """
    random = np.random.default_rng(SEED)
    drawn = random.integers(0, count, (RESAMPLES, count))
    return np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)


class Tally:
    """Values by line of the script: what a rate and its resamples are made of."""

    def __init__(self, values: Iterable[tuple[int, float | None]], lines: Sequence[int]) -> None:
        places = {line: i for i, line in enumerate(lines)}
        self.sums, self.counts = np.zeros(len(lines)), np.zeros(len(lines))
        for line, value in values:
            if value is not None:
                self.sums[places[line]] += value
                self.counts[places[line]] += 1

    @property
    def mean(self) -> float:
        return float(self.sums.sum() / self.counts.sum()) if self.counts.any() else float("nan")

    def resampled(self, drawn: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((drawn @ self.sums) / (drawn @ self.counts))

    def rate(self) -> Rate | None:
        if not self.counts.any():
            return None
        low, high = interval(self.resampled(weights(len(self.sums))))
        return Rate(float(self.sums.sum()), int(self.counts.sum()), self.mean, low, high)


def interval(resampled: Floats) -> tuple[float, float]:
    """Of 95 %."""
    low, high = np.nanpercentile(resampled, (2.5, 97.5))
    return float(low), float(high)


def rate(values: Sequence[tuple[int, float | None]]) -> Rate | None:
    """Of (line, value); values that are None are left out. None where nothing is left."""
    return Tally(values, sorted({line for line, _ in values})).rate()


def f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A policy and the plain detector where both are equally fast."""

    latency_s: float
    ours: Rate
    plain: float
    plain_low: float
    plain_high: float
    fewer: float
    """Share of the plain detector's cut-offs that is saved."""
    fewer_low: float
    fewer_high: float


def at_equal_latency(
    ours: Sequence[TurnScore], plain: Sequence[Sequence[TurnScore]]
) -> Compared | None:
    """False cut-offs of ours against those that the plain detector has at the same mean latency, by interpolation between its settings.

    None where it is never so fast or so slow. In each resample both are computed anew from the same lines.
    """
    lines = sorted({s.line for s in ours})
    drawn = weights(len(lines))

    def cut(scores: Sequence[TurnScore]) -> Tally:
        return Tally(((s.line, float(s.cut)) for s in scores), lines)

    def latency(scores: Sequence[TurnScore]) -> Tally:
        return Tally(
            ((s.line, None if s.latency is None else s.latency / 1e6) for s in scores), lines
        )

    at, mine = latency(ours), cut(ours)
    speeds, cuts = [latency(p) for p in plain], [cut(p) for p in plain]
    means = [t.mean for t in speeds]
    found = mine.rate()
    if found is None or not min(means) <= at.mean <= max(means):
        return None
    theirs = float(np.interp(at.mean, means, [t.mean for t in cuts]))
    many_at, many_mine = at.resampled(drawn), mine.resampled(drawn)
    many_speeds = np.stack([t.resampled(drawn) for t in speeds])
    many_cuts = np.stack([t.resampled(drawn) for t in cuts])
    many = np.array(
        [np.interp(many_at[i], many_speeds[:, i], many_cuts[:, i]) for i in range(len(many_at))]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        saved = 1 - many_mine / many
    fewer = 1 - found.rate / theirs if theirs else 0.0
    return Compared(at.mean, found, theirs, *interval(many), fewer, *interval(saved))
