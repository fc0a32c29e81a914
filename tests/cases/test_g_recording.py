"""Cases G: recordings and timelines that drift, lose their ends or grow. What perception owes them; the mix is elsewhere."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest

from operators.window import ChannelAssembler, Samples
from schemas.envelope import Pcm
from tests.support.perceive import Bench, speech

pytestmark = [pytest.mark.case, pytest.mark.flow]


def test_g1_a_stall_and_a_burst_are_counted_once() -> None:
    """The device went on; two seconds came late, all at once. Ticks filled the time meanwhile."""
    b = Bench()
    b.open()
    b.play(speech(2))
    b.run()
    stalled = b.run(seconds=1.0) + b.run(seconds=1.0)
    assert [e.mediatime for e in stalled] == [3_000_000, 4_000_000]
    b.play(speech(2), start_us=2_000_000)
    b.close(at_us=b.play(speech(1), start_us=4_000_000))
    b.run()
    assert not b.written("s", "perception.gap")
    last = b.windows()[-1]
    assert last.data.start_us < 5_000_000 <= (last.mediatime or 0)


@pytest.mark.parametrize("pause_s", [1.0, 3.0])
def test_g2_a_pause_without_frames_keeps_its_length(pause_s: float) -> None:
    b = Bench()
    b.open()
    pause_us = round(pause_s * 1_000_000)
    b.play(speech(1))
    b.close(at_us=b.play(speech(1), start_us=1_000_000 + pause_us))
    b.run()
    loud = [w for w in b.windows() if max(w.data.probabilities) > 0.5]
    resumed = next(w for w in loud if w.data.start_us > 1_050_000)
    assert abs(resumed.data.start_us - (1_000_000 + pause_us)) <= 96_000


def test_g4_channels_lie_on_one_clock() -> None:
    b = Bench()
    b.open()
    b.play(speech(2))
    b.play(speech(1), source="far", correlation="far", start_us=1_000_000)
    b.run()
    far = [w.data.start_us for w in b.windows() if w.data.channel == "far"]
    assert far == [1_000_000 + 96_000 * i for i in range(10)]


@pytest.mark.parametrize("rate", [16_000, 22_050, 48_000])
def test_g5_the_last_part_of_a_window_is_flushed(rate: int) -> None:
    b = Bench()
    b.open()
    b.close(at_us=b.play(speech(0.96 + 0.037, rate), rate))
    b.run()
    windows = b.windows()
    assert len(windows) == 11 and windows[-1].mediatime == 11 * 96_000
    assert windows[-1].data.level_db > -40


def test_g7_silence_lies_where_the_pause_was() -> None:
    b = Bench()
    b.open()
    loud = (np.random.default_rng(1).standard_normal((32_000, 1)) * 3000).astype(np.int16)
    b.play(loud)
    b.close(at_us=b.play(loud, start_us=3_000_000))
    b.run()
    quiet = [w.data.start_us for w in b.windows() if w.data.level_db == -100.0]
    assert quiet == [96_000 * i for i in range(21, 31)]


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_g8_a_gap_every_420_ms_for_45_minutes_does_not_drift(rate: int) -> None:
    assembler, end = ChannelAssembler(), 0
    chunk = Pcm(rate, 1, b"\1\0" * (rate * 330 // 1000))
    count = 45 * 60 * 1000 // 420
    for number in range(count):
        for piece in assembler.feed("d", str(number), number, number * 420_000 + 137, chunk):
            if isinstance(piece, Samples):
                assert piece.epoch == 0 and piece.first_sample == end
                end += len(piece.samples)
    for piece in assembler.flush():
        assert isinstance(piece, Samples)
        end += len(piece.samples)
    assert abs(end - ((count - 1) * 420 + 330) * 16) <= 1


@pytest.mark.parametrize(
    ("seconds", "sessions"), [(600, 200), pytest.param(3600, 1000, marks=pytest.mark.slow)]
)
def test_g10_an_hour_of_silence_and_a_thousand_sessions_leave_nothing(
    seconds: int, sessions: int
) -> None:
    b = Bench(partitions=1)
    out = b.perception.on_batch
    threads = threading.active_count()

    def session_of(session: str, seconds: int) -> None:
        b.open(session)
        silent = np.zeros((16_000, 1), np.int16)
        for at in range(seconds):
            b.play(silent, session=session, chunk=16_000, start_us=at * 1_000_000)
            if at % 50 == 49:
                _forget(b)
        b.end(session)
        _forget(b)

    def _forget(b: Bench) -> None:
        """Read everything, and empty the log: its memory is not perception's."""
        out([*b._first, *b._reader.poll(0.0)])
        b._first = []
        for place in b.timeline._log.places.values():  # type: ignore[attr-defined]
            place.clear()
        b._reader._next = dict.fromkeys(b._reader._next, 0)  # type: ignore[attr-defined]
        b.vad.batches.clear()

    session_of("warm", 100)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    session_of("long", seconds)
    for i in range(sessions):
        session_of(f"short-{i}", 1)
    b._sequences.clear()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert b.perception.sessions == 0 and threading.active_count() == threads
    # An ended session's id is remembered: its late media is to be known as such.
    assert after - before < 200_000 + 300 * sessions, f"{after - before} bytes are left"


def test_g11_media_that_nobody_wants_is_bounded() -> None:
    b = Bench()
    for i in range(300):
        b.play(speech(0.3), session=f"nobody-{i}")
        b.run()
    assert b.perception.sessions == 256
    b.run(seconds=61)
    assert b.perception.sessions == 0
    rejected = [e for i in range(300) for e in b.written(f"nobody-{i}", "event.rejected")]
    assert len(rejected) == 300 and {e.data.reason for e in rejected} == {"no_session"}


def test_g13_voice_activity_shares_no_executor() -> None:
    """The model is called where the media is read: no queue, no pool, no thread of our own."""
    b = Bench()
    threads = set(threading.enumerate())
    b.open()
    b.play(speech(1))
    b.run()
    assert set(threading.enumerate()) == threads and b.vad.batches


def test_g14_thirty_sessions_share_one_model_and_keep_their_own_state() -> None:
    b = Bench()
    for i in range(30):
        b.open(f"s{i}")
        b.play(speech(1, seed=i), session=f"s{i}")
    b.run()
    assert set(b.vad.batches) == {30}
    for i in range(30):
        counts = [round(w.data.probabilities[0] * 1000) % 20 for w in b.windows(f"s{i}")]
        assert counts == list(range(1, 11))
