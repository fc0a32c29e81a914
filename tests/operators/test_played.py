"""What was played: the very samples where the device said that they were, however late, often or inexactly it said so."""

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st

from operators.played import CUT_WITHIN, KEEP, LONGEST, RESPONSES, Played
from operators.playout import Playout
from schemas.envelope import Event
from schemas.responses import ResponseCancelled, ResponseEnded
from tests.support.echo import ack, speech_events

pytestmark = pytest.mark.pure

RAMP = (np.arange(160_000) % 30_000 + 1).astype(np.int16)
"""Ten seconds in which every sample tells where it belongs."""
S = 16_000


def playing(*said: Event, sound: np.ndarray = RAMP, rate: int = S) -> Played:
    played = Played()
    for event in (*speech_events("r", sound, rate), *said):
        played.follow(event, event.mediatime or 0)
    return played


def over(at: int, cancelled: bool = False) -> Event:
    us = at * 1_000_000 // S
    data = (
        ResponseCancelled(response="r", epoch=1, reason="x", heard_text="", heard_us=0)
        if cancelled
        else ResponseEnded(response="r", heard_text="", heard_us=0)
    )
    return Event(data.TYPE, "s", f"over-{at}", "conversation/respond", data, us)


def heard(played: Played, first: int, end: int) -> np.ndarray:
    played.until(end)
    return np.rint(played.samples(first, end - first) * 32768).astype(np.int16)


def test_it_plays_on_from_where_the_device_said() -> None:
    played = playing(ack("r", 4000, 0))
    sound = heard(played, 3000, 9000)
    assert not sound[:1000].any() and np.array_equal(sound[1000:], RAMP[:5000])
    assert played.sounds(3900, 4001) and not played.sounds(0, 4000)


def test_nothing_is_played_before_it_is_acknowledged() -> None:
    played = playing()
    assert not heard(played, 0, 8000).any() and not played.sounds(0, 8000)
    assert not Played().sounds(0, 1 << 40) and Played().idle


def test_a_pause_holds_at_the_very_sample() -> None:
    played = playing(ack("r", 0, 0), ack("r", 4800, 4800, "paused"), ack("r", 9600, 4800))
    sound = heard(played, 0, 16_000)
    assert np.array_equal(sound[:4800], RAMP[:4800])
    assert not sound[4800:9600].any()
    assert np.array_equal(sound[9600:], RAMP[4800:11_200])


def test_an_acknowledgement_counts_from_its_own_time_on() -> None:
    played = playing(ack("r", 0, 0), ack("r", 4800, 4800, "cut"))
    assert np.array_equal(heard(played, 0, 4000), RAMP[:4000])
    assert not heard(played, 4800, 9600).any()


@pytest.mark.parametrize(("late", "moves"), [(300, False), (-300, False), (3200, True)])
def test_inexact_times_move_nothing_but_a_jump_does(late: int, moves: bool) -> None:
    played = playing(ack("r", 0, 0), ack("r", 8000 + late, 8000))
    sound = heard(played, 12_000, 16_000)
    shift = late if moves else 0
    assert np.array_equal(sound, RAMP[12_000 - shift : 16_000 - shift])


def test_a_repeat_in_the_raw_log_is_played_once() -> None:
    played = playing(*speech_events("r", RAMP), ack("r", 0, 0), ack("r", 0, 0))
    assert np.array_equal(heard(played, 100_000, 130_000), RAMP[100_000:130_000])
    assert not heard(played, len(RAMP), len(RAMP) + 8000).any()


def test_a_response_that_is_over_falls_silent_though_its_device_says_nothing_more() -> None:
    played = playing(ack("r", 0, 0), over(16_000, cancelled=True))
    assert np.array_equal(heard(played, 0, 16_000), RAMP[:16_000])
    sound = heard(played, 16_000, 40_000)
    assert not sound[CUT_WITHIN:].any() and sound[: CUT_WITHIN - 1].any()


def test_the_devices_last_word_counts_after_the_end_too() -> None:
    played = playing(ack("r", 0, 0), over(16_000, cancelled=True), ack("r", 16_320, 16_320, "cut"))
    sound = heard(played, 12_000, 20_000)
    assert np.array_equal(sound[:4320], RAMP[12_000:16_320]) and not sound[4320:].any()


def test_speech_of_another_rate_keeps_its_time() -> None:
    rng = np.random.default_rng(3)
    smooth = np.convolve(rng.standard_normal(110_250), np.hanning(32), "same")
    sound = (smooth / np.abs(smooth).max() * 20_000).astype(np.int16)
    played = playing(ack("r", 0, 0), sound=sound, rate=22_050)
    expected = soxr.resample(sound.astype(np.float32), 22_050, S)
    for at in range(0, 64_000, 16_000):
        off = heard(played, at, at + 16_000) - expected[at : at + 16_000]
        assert np.abs(off).max() < 20


@given(
    pauses=st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900)), max_size=6),
    start=st.integers(0, 1000),
)
def test_it_is_what_the_model_of_the_loudspeaker_plays(
    pauses: list[tuple[int, int]], start: int
) -> None:
    """Random pauses (in ms), acknowledged as `operators.playout` does: the same samples at the same times."""
    playout, said = Playout("r", 500_000), []
    expected = np.zeros(11 * S, np.int16)

    def run(begin: int, end: int) -> None:
        """Let it play, ms by ms."""
        for ms in range(begin, end):
            while (due := playout.next_ack()) is not None and due.at_us <= ms * 1000:
                playout.take_ack(due)
                said.append(ack("r", due.at_us * 2 // 125, due.played_us * 2 // 125, due.state))
            first, last = playout.played(ms * 1000), playout.played((ms + 1) * 1000)
            if last > first and (ms + 1) * 16 <= len(expected):
                expected[ms * 16 : ms * 16 + last - first] = RAMP[first:last]

    playout.speech(0, len(RAMP), S)
    run(0, start)
    playout.start(start * 1000)
    now = start
    for play, hold in pauses:
        run(now, now + play)
        playout.pause((now + play) * 1000)
        run(now + play, now + play + hold)
        now += play + hold
        playout.resume(now * 1000)
    run(now, 11_000)
    played = playing(*sorted(said, key=lambda e: e.mediatime or 0))
    sound = np.concatenate([heard(played, at, at + 800) for at in range(0, 10 * S, 800)])
    assert np.count_nonzero(sound != expected[: len(sound)]) == 0


def test_what_lies_behind_is_forgotten() -> None:
    played, sizes = Played(), []
    for n in range(200):
        name, at = f"r{n}", n * len(RAMP)
        for event in speech_events(name, RAMP):
            played.follow(event, 0)
        played.follow(ack(name, at, 0), at * 1_000_000 // S)
        for end in range(at, at + len(RAMP), 16_000):
            played.until(end)
        sizes.append(sum(len(s.pcm) for s in played._responses.values()))
        us = (at + len(RAMP)) * 1_000_000 // S
        ended = ResponseEnded(response=name, heard_text="", heard_us=0)
        played.follow(Event(ended.TYPE, "s", name, "conversation", ended, us), us)
    assert max(sizes[3:]) <= 2 * (KEEP + len(RAMP)) and len(played._responses) <= 3
    assert not played._waiting or len(played._waiting) <= 3


def test_of_a_response_without_end_the_beginning_is_held() -> None:
    minutes = np.tile(RAMP[:30_000], 100)
    played = playing(ack("r", 0, 0), sound=minutes)
    held = len(played._responses["r"].pcm) // 2
    assert LONGEST <= held < LONGEST + 16_000
    for at in range(0, held, 160_000):
        sound = heard(played, at, at + 16_000)
        assert np.array_equal(sound, minutes[at : at + 16_000])
    more = speech_events("r", RAMP)[0]
    played.follow(more._replace(cause="next"), 0)
    assert not heard(played, held, held + 8000).any(), "it is played where something else was"


def test_speech_that_is_never_played_is_bounded() -> None:
    played = Played()
    for n in range(3 * RESPONSES):
        for event in speech_events(f"r{n}", RAMP[:8000]):
            played.follow(event, 0)
    assert len(played._responses) == RESPONSES
    for n in range(500):
        played.follow(ack(f"r{3 * RESPONSES - 1}", 1 << 40, n), 1 << 50)
    assert len(played._waiting) <= 64
