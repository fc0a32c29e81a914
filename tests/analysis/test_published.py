"""τ-voice and Full-Duplex-Bench metrics on sequences small enough to work out by hand. One character is one tick of 200 ms."""

import math

import pytest

from flows.analysis.duplex_bench import (
    NONE_HERE,
    Spoken,
    answers,
    backchannels,
    jensen_shannon,
    latency_us,
    spread,
    stretches,
    takeover,
)
from flows.analysis.floor import floor
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


def test_backchannels_are_stretches_that_take_no_floor() -> None:
    # 100 ms between the first two, then 700 ms, then words that last 2 s, then four quick ones.
    quick = [word(5000 + 150 * i, 5100 + 150 * i) for i in range(4)]
    said = [word(0, 300), word(400, 600), word(1300, 3300), *quick, word(6200, 6400)]
    assert [len(s) for s in stretches(reversed(said))] == [2, 1, 4, 1]
    assert backchannels(said) == [(0, 600_000), (6_200_000, 6_400_000)]
    # 200 ms is a pause.
    assert len(stretches([word(0, 100), word(300, 400)])) == 2


def test_jensen_shannon_distance() -> None:
    def at(*ms: int) -> list[tuple[int, int]]:
        return [(m * 1000, m * 1000) for m in ms]

    assert jensen_shannon(at(50, 450), at(10, 599), 1_000_000) == 0
    assert jensen_shannon(at(0), at(900), 1_000_000) == pytest.approx(math.sqrt(math.log(2)))
    # p = (1/2, 1/2), q = (1, 0): JSD = ½(½ln⅔ + ½ln2) + ½ln(4/3)
    by_hand = math.sqrt(0.5 * (0.5 * math.log(2 / 3) + 0.5 * math.log(2)) + 0.5 * math.log(4 / 3))
    assert jensen_shannon(at(0, 300), at(0), 400_000) == pytest.approx(by_hand)
    # One that touches two bins counts in both of them.
    assert jensen_shannon([(100_000, 300_000)], at(0), 400_000) == pytest.approx(by_hand)
    assert jensen_shannon(at(0), [], 400_000) is None
    assert jensen_shannon([], at(0), 400_000) == NONE_HERE


def test_words_are_spread_over_the_time_in_which_they_were_heard() -> None:
    # 3 s in all, .75 s a word: three of their middles lie in the first 2.5 s, one in the last half second.
    found = spread(["a", "b", "c", "d"], [(0, 2_500_000), (5_000_000, 5_500_000)])
    assert [(w.text, w.start_us) for w in found] == [
        ("a", 0),
        ("b", 833_333),
        ("c", 1_666_666),
        ("d", 5_000_000),
    ]
    assert found[2].end_us == 2_500_000 and found[3].end_us == 5_500_000
    assert spread([], [(0, 1)]) == spread(["a"], []) == []


def test_answers_are_what_is_said_until_the_floor_is_lost() -> None:
    said = [Spoken(t, s * 1000, e * 1000) for t, s, e in (
        ("mhm", 1000, 1200), ("yes", 2300, 2500), ("it", 4900, 5100), ("is", 5150, 6200),
    )]  # fmt: skip
    activity = {
        "bob": [(0, 2_000_000), (3_000_000, 5_000_000)],
        "assistant": [(w.start_us, w.end_us) for w in said],
    }
    found = answers(floor(activity), said)
    # The first lies within the user's speech; the second follows after .3 s; the last one begins .1 s before the end.
    assert [(at, [w.text for w in words]) for at, words in found] == [
        (2_000_000, ["yes"]),
        (5_000_000, ["it", "is"]),
    ]
    assert [takeover(words) for _, words in found] == [0, 1]
    assert latency_us(found[1][1], found[1][0]) == 0
    # Who has the last word was not answered, nor who spoke alone.
    activity["bob"].append((7_000_000, 8_000_000))
    assert answers(floor(activity), said)[2:] == [(8_000_000, [])]
    assert answers(floor({"bob": [(0, 1000)], "assistant": []}), []) == [(1000, [])]
