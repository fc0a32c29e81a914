"""τ-voice and Full-Duplex-Bench metrics on sequences small enough to work out by hand. One character is one tick of 200 ms."""

import math

import pytest

from flows.analysis.duplex_bench import (
    Spoken,
    backchannel_frequency,
    jensen_shannon,
    latency_us,
    takeover,
)
from flows.analysis.tau_voice import Tally, segments, tally, ticks

pytestmark = pytest.mark.pure


def line(text: str) -> list[bool]:
    return [c != "." for c in text]


def test_ticks_and_segments() -> None:
    assert ticks([(100_000, 250_000), (800_000, 801_000)], 6) == line("##..#.")
    assert segments(line("##..#.")) == [(0, 2), (4, 5)]


def test_answered_and_not_answered() -> None:
    found = tally(
        user=line("##....##...##......"),
        agent=line("...##..........###."),
    )
    # First: answered after 1 tick. Second: the user speaks again first. Third: answered after 2 ticks.
    assert found.answer_gaps == pytest.approx([0.2, 0.4])
    assert found.unanswered == 1
    assert found.metrics(least=1)["R_R"] == pytest.approx(2 / 3)
    assert found.metrics(least=1)["L_R"] == pytest.approx(0.3)


def test_interruptions_yielded_and_not() -> None:
    found = tally(
        user=line("...##.....................##............"),
        agent=line("######..............####################"),
    )
    # First: over the agent at tick 3, silent at tick 6: 0.6 s. Second: at tick 26, still speaking 10 ticks later.
    assert found.yields == pytest.approx([0.6])
    assert found.no_yields == 1
    # The first one's end lies within the agent's speech: no answer is awaited.
    assert found.answer_gaps == [] and found.unanswered == 0


def test_the_yield_window_is_two_seconds() -> None:
    for silent_at, yielded in ((9, 1), (10, 0)):
        agent = [True] * silent_at + [False] * 5
        assert len(tally([True] + [False] * (silent_at + 4), agent).yields) == yielded


def test_the_agent_interrupts() -> None:
    found = tally(user=line("######...."), agent=line("...##....."))
    assert found.agent_interrupts == 1


def test_selectivity_by_label() -> None:
    user = line("..#.......#.......#........")
    agent = line("#########.####............#")
    labels = [(2, 3, "backchannel"), (10, 11, "vocal_tic"), (18, 19, "non_directed")]
    found = tally(user, agent, labels)
    # Goes on for a second after the backchannel; stops 4 ticks after the tic; starts 7 ticks after the silent one.
    assert (
        found.correct["backchannel"],
        found.wrong["vocal_tic"],
        found.wrong["non_directed"],
    ) == (1, 1, 1)
    assert not found.yields and not found.no_yields and not found.answer_gaps


def test_priority_of_labels() -> None:
    found = tally(
        line(".##......."), line("##########"), [(1, 2, "vocal_tic"), (2, 3, "backchannel")]
    )
    assert found.correct["backchannel"] == 1 and found.correct["vocal_tic"] == 0


def test_fewer_than_ten_events_are_not_shown() -> None:
    one = tally(line("##......"), line("...##..."))
    both = Tally()
    for _ in range(9):
        both.add(one)
    assert both.metrics()["R_R"] is None and both.metrics()["L_R"] == pytest.approx(0.2)
    both.add(one)
    assert both.metrics()["R_R"] == 1.0


def word(start_ms: int, end_ms: int) -> Spoken:
    return Spoken("w", start_ms * 1000, end_ms * 1000)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], 0),
        ([word(0, 300), word(400, 600), word(700, 999)], 0),
        ([word(0, 1000)], 1),
        ([word(0, 100), word(100, 200), word(200, 300), word(300, 400)], 1),
    ],
)
def test_takeover(words: list[Spoken], expected: int) -> None:
    assert takeover(words) == expected


def test_latency_from_the_reference() -> None:
    assert latency_us([word(1500, 1700)], 1_000_000) == 500_000
    assert latency_us([word(500, 700)], 1_000_000) == 0
    assert latency_us([], 0) is None


def test_backchannels_per_second() -> None:
    assert backchannel_frequency([[word(0, 300)], [word(1000, 3000)], []], 4_000_000) == 0.25
    assert backchannel_frequency([], 0) is None


def test_jensen_shannon_distance() -> None:
    assert jensen_shannon([50_000, 450_000], [10_000, 599_999], 1_000_000) == 0
    assert jensen_shannon([0], [900_000], 1_000_000) == pytest.approx(math.sqrt(math.log(2)))
    # p = (1/2, 1/2), q = (1, 0): JSD = ½(½ln⅔ + ½ln2) + ½ln(4/3)
    by_hand = math.sqrt(0.5 * (0.5 * math.log(2 / 3) + 0.5 * math.log(2)) + 0.5 * math.log(4 / 3))
    assert jensen_shannon([0, 300_000], [0], 400_000) == pytest.approx(by_hand)
    assert jensen_shannon([], [0], 1) is None
