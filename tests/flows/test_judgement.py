"""`venus bench judgement` without models: its script, its sounds, its world and its scores, worked out by hand."""

from typing import Any

import numpy as np
import pytest

from flows.bench.judgement.models import CHANNEL, session_of
from flows.bench.judgement.report import OverlapFigures, TurnFigures
from flows.bench.judgement.score import (
    OverlapScore,
    TurnScore,
    at_equal_latency,
    rate,
    score_overlaps,
    score_turns,
)
from flows.bench.judgement.script import parse, read
from flows.bench.judgement.sound import Clip, OverlapTruth, TurnTruth, burst, cut, drawn_out, gaps
from flows.bench.judgement.sweep import PLAIN, settings
from flows.bench.judgement.world import World
from schemas.base import WINDOW_SAMPLES, WINDOW_US
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.perception import PerceptionWindow
from schemas.policy import Policy

pytestmark = pytest.mark.pure

S = 1_000_000


def test_the_script_says_who_pauses_and_who_speaks_over_whom() -> None:
    text = "# about\n= one turns\nt I, um, [0.9] go [1.5] now.\nt Yes.\n= two\na Long talk.\ni 2 Stop.\ns 3 -20 Come in.\nn 1 cough"
    one, two = parse(text)
    assert [t.parts for t in one.turns] == [("I, um,", "go", "now."), ("Yes.",)]
    assert one.turns[0].pauses == (0.9, 1.5) and one.turns[0].text == "I, um, go now."
    assert [(o.line, o.kind, o.at_s, o.level_db, o.text) for o in two.overlaps] == [
        (7, "interruption", 2.0, 0.0, "Stop."),
        (8, "side_talk", 3.0, -20.0, "Come in."),
        (9, "noise", 1.0, 0.0, "cough"),
    ]
    assert two.assistant == "Long talk."


@pytest.mark.parametrize(
    "line",
    ["t [0.5] go", "t go [0.05] on", "t go [x] on", "i 2 Stop.", "x what", "a", "n 2 sneeze"],
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(BadInput, match=r"here:2: "):
        parse("= one\n" + line, "here")


def test_our_own_script_has_enough_of_everything_in_both_halves() -> None:
    for half in "ab":
        found = [c for c in read() if c.name.startswith(half)]
        turns = [t for c in found for t in c.turns]
        overlaps = [o for c in found for o in c.overlaps]
        assert len(turns) >= 40 and sum(len(t.pauses) for t in turns) >= 40
        assert {o.kind for o in overlaps} == {
            "interruption",
            "backchannel",
            "side_talk",
            "noise",
        }


# --- sounds


def tone(seconds: float) -> Any:
    return np.sin(np.arange(round(seconds * 16_000)) * 0.1).astype(np.float32)


def test_a_sentence_is_cut_in_its_longest_gap_near_the_place() -> None:
    quiet = np.zeros(1600, np.float32)
    sound = np.concatenate((tone(0.2), quiet, tone(0.3), quiet, quiet, tone(0.5)))
    assert len(gaps(sound)) == 2
    first, second = cut(sound, ("half of it", "and the rest")) or ()
    assert abs(len(first) - 9600) < 400 and abs(len(second) - 8000) < 400
    assert cut(tone(1.0), ("half of it", "and the rest")) is None


def test_what_is_drawn_out_is_longer_and_no_lower() -> None:
    sound = tone(1.0)
    sound[-800:] *= np.linspace(1.0, 0.0, 800)  # as speech dies away
    longer = drawn_out(sound, 2.0)
    assert len(longer) == len(sound) + 3520

    def crossings(part: Any) -> float:
        return float(np.mean(np.diff(np.signbit(part)) != 0))

    assert crossings(longer[-5000:]) == pytest.approx(crossings(sound), rel=0.05)
    assert np.abs(np.diff(longer)).max() < 0.2, "there is a click"


@pytest.mark.parametrize("kind", ["cough", "knock", "click", "hum"])
def test_noises_can_be_heard(kind: str) -> None:
    assert np.abs(burst(kind, np.random.default_rng(1))).max() > 0.5


# --- the world


def clip(
    until_s: float, spoken: list[tuple[float, float]], **truth: Any
) -> tuple[Clip, list[Event]]:
    """A conversation of which only the voice activity is made: its windows, speaking in the given seconds."""
    made = Clip("c", "quiet", np.zeros(round(until_s * 16_000), np.int16), **truth)
    windows = []
    for first in range(0, len(made.samples), WINDOW_SAMPLES):
        start = first * 125 // 2
        hops = [(start + i * 32_000) / S for i in range(3)]
        voiced = tuple(0.95 if any(a <= h < b for a, b in spoken) else 0.01 for h in hops)
        data = PerceptionWindow(
            channel=CHANNEL,
            epoch=0,
            first_sample=first,
            start_us=start,
            probabilities=voiced,
            level_db=-30.0,
        )
        session = session_of(made)
        windows.append(
            Event(data.TYPE, session, f"w{first}", "perception", data, start + WINDOW_US)
        )
    return made, windows


@pytest.mark.parametrize(("silence", "cut_off"), [("500ms", True), ("1s", False)])
def test_a_fixed_silence_shorter_than_a_pause_cuts_off(silence: str, cut_off: bool) -> None:
    turn = TurnTruth(1, S, 4 * S, 9 * S, ((2 * S, 2_800_000),))
    made, windows = clip(9.6, [(1, 2), (2.8, 4)], turns=[turn])
    policy = Policy().with_changes(PLAIN | {"turn.end_silence": silence})
    (score,) = score_turns("quiet", made.turns, World(made, windows, policy, None).run())
    assert (score.cut, score.cut_pauses, score.pauses) == (cut_off, int(cut_off), 1)
    assert score.latency is not None and score.answer is not None
    assert abs(score.latency - (1_000_000 if silence == "1s" else 500_000)) <= 2 * 32_000
    assert score.answer - score.latency == pytest.approx(650_000, abs=96_000)


@pytest.mark.parametrize(("length", "stopped"), [("200ms", True), ("900ms", False)])
def test_the_plain_detector_stops_for_speech_of_its_length(length: str, stopped: bool) -> None:
    overlap = OverlapTruth(1, "backchannel", 4 * S, 4_600_000, 12 * S)
    made, windows = clip(
        12.0, [(4, 4.6)], overlaps=[overlap], questions=[S], assistant="A long answer. " * 12
    )
    policy = Policy().with_changes(PLAIN | {"overlap.interrupt_after": length})
    (score,) = score_overlaps("quiet", made.overlaps, World(made, windows, policy, None).run())
    assert score.met and score.stopped is stopped
    if stopped:
        assert score.silent_after is not None and 200_000 <= score.silent_after <= 300_000


# --- scores


def turn(line: int, cut_off: bool, latency_s: float | None, pauses: int = 1) -> TurnScore:
    latency = None if latency_s is None else round(latency_s * S)
    return TurnScore(line, "quiet", pauses, int(cut_off), cut_off, False, latency, latency)


def test_at_equal_latency_both_are_compared_between_the_plain_settings() -> None:
    lines = range(40)
    fast = [turn(i, True, 0.5) for i in lines]
    slow = [turn(i, False, 1.0) for i in lines]
    ours = [turn(i, i % 4 == 0, 0.75) for i in lines]
    found = at_equal_latency(ours, [fast, slow])
    assert found is not None
    assert (found.latency_s, found.ours.rate, found.plain) == (0.75, 0.25, 0.5)
    assert found.fewer == 0.5 and found.fewer_low < 0.5 < found.fewer_high
    assert at_equal_latency([turn(i, False, 2.0) for i in lines], [fast, slow]) is None


def test_a_rate_draws_lines_and_not_their_appearances() -> None:
    once = rate([(i, float(i % 2)) for i in range(20)])
    again = rate([(i, float(i % 2)) for i in range(20) for _ in range(4)])
    assert once is not None and again is not None
    assert (again.events, again.of, again.rate) == (40, 80, 0.5)
    assert (again.low, again.high) == (once.low, once.high)
    assert rate([(1, None)]) is None


def over(line: int, kind: str, stopped: bool, met: bool = True) -> OverlapScore:
    verdict = "interruption" if stopped else "backchannel"
    silent = 250_000 if stopped else None
    return OverlapScore(line, "quiet", kind, met, stopped, verdict, 400_000, silent, silent)


def test_precision_and_recall_by_hand() -> None:
    scores = [
        *[over(i, "interruption", True) for i in range(8)],
        *[over(10 + i, "interruption", False) for i in range(2)],
        *[over(20 + i, "backchannel", False) for i in range(6)],
        *[over(30 + i, "backchannel", True) for i in range(2)],
        over(40, "noise", False),
        over(41, "noise", False, met=False),
    ]
    f = OverlapFigures.of(scores)
    assert (f.interruption_precision, f.interruption_recall) == (0.8, 0.8)
    assert (f.backchannel_precision, f.backchannel_recall) == (0.75, 0.75)
    assert (f.stopped["noise"].of, f.missed) == (1, 1)
    assert (f.silent_mean, f.backchannel_pause) == pytest.approx((0.25, 0.4))


def test_a_turn_that_nothing_ended_has_no_latency() -> None:
    f = TurnFigures.of([turn(1, False, 0.4), turn(2, False, None), turn(3, True, 0.6)])
    assert (f.turns, f.pauses, f.cut_pauses, f.unanswered) == (3, 3, 1, 1)
    assert f.latency_mean == pytest.approx(0.5) and f.cut.rate == pytest.approx(1 / 3)


@pytest.mark.parametrize("quick", [True, False])
def test_every_setting_is_a_policy_with_a_name_of_its_own(quick: bool) -> None:
    found = settings(quick, classifier=True)
    assert len({(s.name, s.about) for s in found}) == len(found)
    assert all(s.policy for s in found)
