"""The loudspeaker's pure model: plays exactly a prefix, pauses and resumes at the very sample, acknowledges in order and never too much."""

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capture.loudspeaker import Loudspeaker
from operators.playout import Ack, Playout
from schemas.envelope import Event, Pcm
from schemas.responses import ResponseCancelled, ResponseStarted
from schemas.session import SessionUpdated
from schemas.turns import FloorPaused, FloorResumed

pytestmark = pytest.mark.pure

RATE = 22_050
S = 1_000_000


class Act(NamedTuple):
    at: int
    what: str
    samples: int = 0


def run(acts: list[Act], until: int, interval: int = 500_000) -> tuple[list[Ack], Playout]:
    """Let the acts happen at their times, giving each acknowledgement when it is due."""
    playout, given_ = Playout("r", interval), []

    def catch_up(now: int) -> None:
        while (ack := playout.next_ack()) is not None and ack.at_us <= now:
            playout.take_ack(ack)
            given_.append(ack)

    for act in acts:
        catch_up(act.at - 1)
        match act.what:
            case "speech":
                playout.speech(act.at, act.samples, RATE)
            case "start":
                playout.start(act.at)
            case "pause":
                playout.pause(act.at)
            case "resume":
                playout.resume(act.at)
            case "cut":
                playout.cut(act.at)
        catch_up(act.at)
    catch_up(until)
    return given_, playout


def test_speech_is_acknowledged_at_its_start_on_the_way_and_when_it_is_played() -> None:
    acks, _ = run([Act(0, "speech", RATE), Act(100_000, "start")], 5 * S)
    assert acks == [
        Ack(100_000, 0, "playing"),
        Ack(600_000, 500_000, "playing"),
        Ack(1_100_000, S, "drained"),
    ]


def test_a_pause_holds_at_the_sample_and_a_resume_goes_on_there() -> None:
    acks, playout = run(
        [Act(0, "speech", RATE), Act(0, "start"), Act(300_000, "pause"), Act(2_000_000, "resume")],
        2_100_000,
    )
    assert [a.state for a in acks] == ["playing", "paused", "playing"]
    held = acks[1].played_us
    assert acks[2].played_us == held and abs(held - 300_000) < 100
    assert abs(playout.played_us(2_100_000) - (held + 100_000)) < 100


def test_c1_nothing_is_played_after_the_cut() -> None:
    """Ten seconds are queued when the interruption comes at 2 s."""
    acks, playout = run(
        [
            Act(0, "speech", 10 * RATE),
            Act(0, "start"),
            Act(2 * S, "cut"),
            Act(2_100_000, "speech", RATE),
        ],
        20 * S,
    )
    assert acks[-1] == Ack(2 * S, 2 * S, "cut")
    assert playout.played_us(20 * S) == 2 * S


def test_c11_playback_begins_once_however_often_it_is_paused() -> None:
    acts = [Act(0, "speech", RATE), Act(0, "start"), Act(0, "start")]
    acts += [Act(i * 200_000 + 100_000, "pause") for i in range(3)]
    acts += [Act(i * 200_000 + 150_000, "resume") for i in range(3)]
    acks, _ = run(sorted(acts), 5 * S)
    assert [a.played_us for a in acks].count(0) == 1


def test_speech_that_comes_late_goes_on_where_it_ran_dry() -> None:
    acks, _ = run(
        [Act(0, "speech", RATE // 2), Act(0, "start"), Act(2 * S, "speech", RATE // 2)], 5 * S
    )
    assert [(a.at_us, a.state) for a in acks] == [
        (0, "playing"),
        (500_000, "drained"),
        (2 * S, "playing"),
        (2_500_000, "drained"),
    ]


ACTS = st.lists(
    st.tuples(
        st.integers(0, 6 * S),
        st.sampled_from(["speech", "start", "pause", "resume", "cut"]),
        st.integers(0, 2 * RATE),
    ),
    max_size=14,
).map(lambda rows: sorted(Act(*row) for row in rows))


@given(ACTS, st.integers(10_000, 900_000))
def test_acknowledgements_rise_and_never_exceed_what_came(acts: list[Act], interval: int) -> None:
    acks, playout = run(acts, 60 * S, interval)
    times, played = [a.at_us for a in acks], [a.played_us for a in acks]
    assert times == sorted(times) and played == sorted(played)
    assert all(p <= playout.received_us for p in played)
    assert playout.next_ack() is None, "an acknowledgement is still owed when all is over"
    for earlier, later in itertools.pairwise(acks):
        gained = later.played_us - earlier.played_us
        assert gained <= later.at_us - earlier.at_us + 100, "it played faster than time"
        if earlier.state != "playing":
            assert gained == 0, "it played while it did not"


@given(ACTS)
def test_without_a_cut_all_that_came_is_played(acts: list[Act]) -> None:
    acts = [a for a in acts if a.what != "cut"]
    total = sum(a.samples for a in acts if a.what == "speech")
    last = max((a.at for a in acts), default=0) + 1
    _, playout = run([*acts, Act(last, "start"), Act(last, "resume")], last + 60 * S)
    assert playout.played(last + 60 * S) == total


def test_the_loudspeaker_keeps_responses_apart() -> None:
    speaker = Loudspeaker()

    def at(now: int, data: object, type_: str, response: str) -> None:
        speaker.follow(Event(type_, "s", "e", "x", data, now, None, response), now)

    pcm = Pcm(RATE, 1, bytes(2 * RATE))
    at(0, pcm, "response.speech", "a")
    at(0, ResponseStarted(response="a", epoch=0), "response.started", "a")
    assert [(r, a.state) for r, a in speaker.due(100_000)] == [("a", "playing")]
    at(200_000, FloorPaused(response="a", overlap="o"), "floor.paused", "a")
    at(300_000, FloorResumed(response="a", overlap="o"), "floor.resumed", "a")
    given_ = speaker.due(350_000)
    cancelled = ResponseCancelled(response="a", epoch=1, reason="t", heard_text="", heard_us=0)
    at(400_000, cancelled, "response.cancelled", "a")
    at(450_000, pcm, "response.speech", "b")
    at(500_000, pcm, "response.speech", "a")
    at(500_000, ResponseStarted(response="b", epoch=1), "response.started", "b")
    given_ += speaker.due(5 * S)
    assert [(r, a.state) for r, a in given_] == [
        ("a", "paused"), ("a", "playing"), ("a", "cut"), ("b", "playing"), ("b", "playing"), ("b", "drained"),
    ]  # fmt: skip
    assert given_[2][1].played_us == pytest.approx(300_000, abs=100)


def test_d11_late_speech_of_a_cut_response_does_not_disturb_the_next() -> None:
    """It must not take the place of what is being played: its acknowledgements would never be due."""
    speaker = Loudspeaker()

    def at(now: int, data: object, type_: str, response: str) -> None:
        speaker.follow(Event(type_, "s", "e", "x", data, now, None, response), now)

    pcm = Pcm(RATE, 1, bytes(2 * RATE))
    cancelled = ResponseCancelled(response="a", epoch=1, reason="t", heard_text="", heard_us=0)
    at(0, ResponseStarted(response="a", epoch=0), "response.started", "a")
    at(0, pcm, "response.speech", "a")
    at(300_000, cancelled, "response.cancelled", "a")
    assert [a.state for _, a in speaker.due(300_000)] == ["cut"]
    at(500_000, pcm, "response.speech", "b")
    at(500_000, ResponseStarted(response="b", epoch=1), "response.started", "b")
    at(600_000, pcm, "response.speech", "a")
    given_ = speaker.due(5 * S)
    assert {r for r, _ in given_} == {"b"} and given_[-1][1] == Ack(1_500_000, S, "drained")


def test_the_interval_of_the_policy_in_force_counts() -> None:
    speaker = Loudspeaker()

    def at(now: int, data: object, type_: str) -> None:
        speaker.follow(Event(type_, "s", "e", "x", data, now, None, "a"), now)

    at(0, SessionUpdated(policy={"playback.ack_interval": "250ms"}), "session.updated")
    at(0, Pcm(RATE, 1, bytes(2 * RATE)), "response.speech")
    at(0, ResponseStarted(response="a", epoch=0), "response.started")
    assert [a.at_us for _, a in speaker.due(5 * S)] == [0, 250_000, 500_000, 750_000, S]


def test_a_successor_goes_on_from_what_was_acknowledged_last() -> None:
    speaker = Loudspeaker()

    def at(now: int, data: object, type_: str) -> None:
        speaker.follow(Event(type_, "s", "e", "x", data, now, None, "a"), now)

    at(0, Pcm(RATE, 1, bytes(4 * RATE)), "response.speech")
    at(0, ResponseStarted(response="a", epoch=0), "response.started")
    speaker.acknowledge("a", Ack(0, 0, "playing"))
    speaker.acknowledge("a", Ack(500_000, 500_000, "playing"))
    speaker.take_over(9 * S)
    acks = [a for _, a in speaker.due(20 * S)]
    assert acks[0] == Ack(9 * S, 500_000, "playing")
    assert acks[-1] == Ack(10_500_000, 2 * S, "drained")
