"""The interaction metrics of τ-voice, on ticks of 200 ms.

Definitions as published (τ²-bench, `docs/interaction-metrics.md`; Sierra 2026): a speech segment is a run of ticks with speech.

| metric | of | is |
| --- | --- | --- |
| L_R | user segments that were answered | mean time from the segment's end to the agent's next start |
| R_R | user segments | share after which the agent started before the user spoke again |
| L_Y | user interruptions after which the agent yielded | mean time from the interruption's start to the agent's first silent tick |
| R_Y | user interruptions | share after which the agent fell silent within 2.0 s |
| I_A | user segments | agent starts while the user speaks, per user segment |
| S_BC | backchannels over the agent | share after which the agent did *not* fall silent within 1.0 s |
| S_VT, S_ND | vocal tics, non-directed speech | share with no silence within 1.0 s, or (agent silent) no start within 2.0 s |

Of what starts over the agent, the label counts in this order: backchannel, vocal tic, non-directed, real. Segments that are no turns
(labelled, or over while the agent still speaks) are not waited on for an answer. Rates of fewer than 10 events are not shown.

In our own sessions an overlap's verdict labels the user's sound (backchannel; noise as vocal tic; side talk as non-directed), and a turn
without words counts as a vocal tic. A recording from elsewhere has no labels: all of its speech is real.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flows.analysis.floor import Span

TICK_US = 200_000
NO_YIELD_TICKS = 10
YIELD_TICKS = 5
RESPONSE_TICKS = 10
LEAST_EVENTS = 10

Label = Literal["backchannel", "vocal_tic", "non_directed"]
PRIORITY: tuple[Label, ...] = ("backchannel", "vocal_tic", "non_directed")


@dataclass(slots=True)
class Tally:
    """Counts that add up over conversations."""

    answer_gaps: list[float] = field(default_factory=list)
    unanswered: int = 0
    yields: list[float] = field(default_factory=list)
    no_yields: int = 0
    agent_interrupts: int = 0
    correct: dict[Label, int] = field(default_factory=lambda: dict.fromkeys(PRIORITY, 0))
    wrong: dict[Label, int] = field(default_factory=lambda: dict.fromkeys(PRIORITY, 0))

    def add(self, other: "Tally") -> None:
        self.answer_gaps += other.answer_gaps
        self.unanswered += other.unanswered
        self.yields += other.yields
        self.no_yields += other.no_yields
        self.agent_interrupts += other.agent_interrupts
        for label in PRIORITY:
            self.correct[label] += other.correct[label]
            self.wrong[label] += other.wrong[label]

    def metrics(self, least: int = LEAST_EVENTS) -> dict[str, float | None]:
        """Name → value; None for a rate of too few events, or a mean of none."""
        turns = len(self.answer_gaps) + self.unanswered
        interruptions = len(self.yields) + self.no_yields

        def rate(count: float, of: int) -> float | None:
            return count / of if of >= least else None

        def mean(values: Sequence[float]) -> float | None:
            return sum(values) / len(values) if values else None

        found = {
            "L_R": mean(self.answer_gaps),
            "R_R": rate(len(self.answer_gaps), turns),
            "L_Y": mean(self.yields),
            "R_Y": rate(len(self.yields), interruptions),
            "I_A": rate(self.agent_interrupts, turns),
        }
        for name, label in (("S_BC", PRIORITY[0]), ("S_VT", PRIORITY[1]), ("S_ND", PRIORITY[2])):
            found[name] = rate(self.correct[label], self.correct[label] + self.wrong[label])
        return found


def ticks(spans: Iterable[Span], count: int) -> list[bool]:
    """Whether there is speech in each tick."""
    found = [False] * count
    for start, end in spans:
        for tick in range(start // TICK_US, min(count, -(-end // TICK_US))):
            found[tick] = True
    return found


def segments(speech: Sequence[bool]) -> list[tuple[int, int]]:
    """Runs of ticks with speech: (first, one after the last)."""
    found, start = [], None
    for tick, speaks in enumerate([*speech, False]):
        if speaks and start is None:
            start = tick
        elif not speaks and start is not None:
            found.append((start, tick))
            start = None
    return found


def tally(
    user: Sequence[bool], agent: Sequence[bool], labels: Iterable[tuple[int, int, Label]] = ()
) -> Tally:
    """The counts of one conversation; `labels` are (first tick, one after the last, what the user's sound was)."""
    found, marked = Tally(), list(labels)
    users, agents = segments(user), segments(agent)

    def label_of(start: int, end: int) -> Label | None:
        hit = {label for a, b, label in marked if a < end and b > start}
        return next((label for label in PRIORITY if label in hit), None)

    def silent_within(start: int, window: int) -> int | None:
        return next(
            (t for t in range(start, start + window) if t >= len(agent) or not agent[t]), None
        )

    real = [(a, b) for a, b in users if label_of(a, b) is None]
    for start, end in users:
        label = label_of(start, end)
        over_agent = agent[start]
        if label is not None:
            if over_agent:
                wrong = silent_within(start, YIELD_TICKS) is not None
            elif label == "backchannel":
                continue
            else:
                wrong = any(end <= a < end + RESPONSE_TICKS for a, _ in agents)
            (found.wrong if wrong else found.correct)[label] += 1
            continue
        if over_agent:
            stopped = silent_within(start, NO_YIELD_TICKS)
            if stopped is None:
                found.no_yields += 1
            else:
                found.yields.append((stopped - start) * TICK_US / 1e6)
        if end < len(agent) and agent[end]:
            continue
        answer = next((a for a, _ in agents if a >= end), None)
        again = next((a for a, _ in real if a >= end), None)
        if answer is not None and (again is None or answer < again):
            found.answer_gaps.append((answer - end) * TICK_US / 1e6)
        elif again is not None:
            found.unanswered += 1
    found.agent_interrupts = sum(
        1 for start, _ in agents if user[start] and label_of(start, start + 1) is None
    )
    return found
