"""The perception step on a log in memory: what is appended, and when."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.perception_channel import Pending
from flows.perception_records import window_record
from operators.window import Window
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.ids import window_id
from schemas.media import TextInput
from schemas.perception import PerceptionGap, PerceptionWindow
from schemas.session import DeviceJoined
from tests.support.perceive import Bench, essence, kinds, speech

pytestmark = pytest.mark.flow


# --- windows


def test_a_session_is_configured_before_its_first_window() -> None:
    b = Bench()
    opened = b.open(channel="headset", language="de", policy={"turn.hold_max": "2s", "no.key": 1})
    b.play(speech(1))
    configured, *rest = b.run()
    assert (configured.type, configured.cause) == ("session.configured", opened.id)
    assert configured.data.policy.turn.hold_max == 2_000_000
    assert configured.data.operators == {"turn": 1} and configured.data.models == {"vad": "level"}
    [note] = configured.data.notes
    assert "no.key" in note
    assert kinds(rest) == ["format_changed"] + ["window"] * 10
    assert {e.data.channel for e in rest} == {"headset"}


def test_a_windows_record_is_the_codecs() -> None:
    data = PerceptionWindow(
        channel="mic",
        epoch=2,
        first_sample=3072,
        start_us=5_192_000,
        probabilities=(0.0123, 0.5, 1.0),
        level_db=-31.4,
        reset=True,
    )
    id_ = window_id("s", "mic", 2, 3072)
    event = Event(data.TYPE, "s", id_, "perception", data, 5_288_000)
    pending = Pending(Window(2, 3072, np.zeros(1536, np.int16)), 5_192_000, False)
    made = window_record("s", "mic", pending, (0.0123, 0.5, 1.0), -31.4, True)
    assert made == encode(event) and decode(made) == event


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(100, 50_000), min_size=1, max_size=6),
    most=st.integers(1, 50),
    rate=st.sampled_from([16_000, 24_000, 48_000]),
)
def test_chunks_and_batches_do_not_matter(sizes: list[int], most: int, rate: int) -> None:
    def run(chunk: list[int], batch: int) -> list[bytes]:
        b = Bench()
        b.open()
        b.close(at_us=b.play(speech(3, rate), rate, chunk=chunk))
        b.run(batch)
        return [encode(e).value for e in b.windows()]

    assert run(sizes, most) == run([rate * 3], 5000)


def test_interleaved_sessions_get_what_each_gets_alone() -> None:
    together = Bench()
    for i in range(5):
        together.open(f"s{i}")
    for at in range(0, 32_000, 1600):
        for i in range(5):
            part = speech(2, seed=i)[at : at + 1600]
            together.play(part, session=f"s{i}", start_us=at * 125 // 2)
    together.run(7)
    for i in range(5):
        alone = Bench()
        alone.open(f"s{i}")
        alone.play(speech(2, seed=i), session=f"s{i}")
        alone.run()
        assert essence(together.windows(f"s{i}")) == essence(alone.windows(f"s{i}"))


def test_windows_of_many_sessions_go_to_the_model_in_one_call() -> None:
    b = Bench()
    for i in range(150):
        b.open(f"s{i}")
    for i in range(150):
        b.play(speech(0.2, seed=i), session=f"s{i}", chunk=3200)
    b.run()
    assert b.vad.batches == [128, 128, 44]


def test_repeated_media_changes_nothing() -> None:
    b = Bench()
    b.open()
    for number in (0, 1, 1, 0, 2, 2):
        part = speech(0.3)[number * 1600 : (number + 1) * 1600]
        b.play(part, start_us=number * 100_000, sequence=number, id=f"chunk-{number}")
    b.run()
    alone = Bench()
    alone.open()
    alone.play(speech(0.3))
    alone.run()
    assert essence(b.windows()) == essence(alone.windows())
    assert not b.written("s", "event.rejected")


def test_a_window_and_its_end_have_the_media_time_of_the_device() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.5), start_us=7_000_000)
    b.run()
    first = b.windows()[0]
    assert (first.data.start_us, first.mediatime) == (7_000_000, 7_096_000)


def test_lost_media_is_filled_and_reported() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.5))
    b.play(speech(0.5), start_us=1_500_000)
    b.run()
    [gap] = b.written("s", "perception.gap")
    assert gap.data == PerceptionGap(
        channel="mic", epoch=0, first_sample=8000, reason="lost", missing_us=1_000_000, filled=True
    )
    assert gap.mediatime == 500_000
    assert [w.data.start_us for w in b.windows()] == [96_000 * i for i in range(20)]


def test_windows_go_on_without_probabilities_while_the_model_is_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = Bench()
    b.open()
    b.play(speech(0.96))
    b.run()
    b.vad.down = True
    b.play(speech(0.96), start_us=960_000)
    b.run(seconds=0.5)
    b.play(speech(0.96), start_us=1_920_000)
    b.run(seconds=2.0)
    b.vad.down = False
    b.play(speech(0.96), start_us=2_880_000)
    b.run(seconds=2.0)
    said = [w.data.probabilities is not None for w in b.windows()]
    assert said == [True] * 10 + [False] * 20 + [True] * 10
    assert b.windows()[30].data.reset
    texts = [r.getMessage() for r in caplog.records]
    assert len(texts) == 2 and "without probabilities" in texts[0] and "back" in texts[1]


# --- before, after and beside a session


def test_f14_f23_media_before_the_opening_waits_for_it() -> None:
    b = Bench()
    b.play(speech(2))
    assert b.run() == []
    b.open()
    b.run()
    alone = Bench()
    alone.open()
    alone.play(speech(2))
    alone.run()
    assert essence(b.windows()) == essence(alone.windows())


def test_f14_the_wait_is_bounded_and_says_what_it_dropped() -> None:
    b = Bench()
    b.play(speech(40))
    b.run()
    b.open()
    b.run()
    [gap] = b.written("s", "perception.gap")
    windows = b.windows()
    assert gap.data.reason == "buffer_full" and len(windows) == 312
    assert gap.data.missing_us == 9_984_000 == windows[0].data.start_us
    assert windows[0].data.reset and windows[-1].mediatime == 39_936_000


def test_media_that_nobody_opens_is_given_up_and_reported_once() -> None:
    b = Bench()
    b.play(speech(1))
    b.run()
    [rejected] = b.run(seconds=61)
    assert (rejected.type, rejected.data.reason) == ("event.rejected", "no_session")
    assert b.perception.sessions == 0
    b.start()
    assert b.run(seconds=61) == []


def test_f13_a_device_that_reconnects_is_heard_again() -> None:
    b = Bench()
    b.open()
    end = b.play(speech(1), source="before")
    b.run()
    b.put("s", DeviceJoined(device="phone"), source="after")
    b.play(speech(1, 48_000), 48_000, source="after", start_us=end)
    b.run()
    [_, changed] = b.written("s", "perception.format_changed")
    assert (changed.data.rate, changed.data.previous_rate, changed.mediatime) == (
        48_000,
        16_000,
        end,
    )
    assert sum(w.data.epoch == 1 for w in b.windows()) >= 9  # the filter holds some back


def test_a_device_that_restarts_its_clock_is_moved_up() -> None:
    b = Bench()
    b.open()
    b.play(speech(1), source="before")
    b.run()
    b.play(speech(0.5), source="after", start_us=0)
    b.play(speech(0.5), source="after", start_us=5_000_000)
    b.run()
    moved, lost = b.written("s", "perception.gap")
    assert (moved.data.reason, moved.data.offset_us, moved.mediatime) == (
        "device_restarted",
        1_000_000,
        1_000_000,
    )
    assert (lost.data.reason, lost.data.filled, lost.data.missing_us) == ("lost", False, 4_500_000)
    ends = [w.mediatime or 0 for w in b.windows()]
    assert ends == sorted(ends) and ends[-1] == 6_480_000


def test_two_channels_keep_their_own_windows_and_one_clock() -> None:
    b = Bench()
    b.open()
    for at in range(0, 16_000, 1600):
        b.play(speech(1)[at : at + 1600], start_us=at * 125 // 2)
        part = speech(1, seed=1)[at : at + 1600]
        b.play(part, start_us=at * 125 // 2, source="screen", correlation="screen")
    b.run()
    by_channel = {c: [w for w in b.windows() if w.data.channel == c] for c in ("mic", "screen")}
    starts = [[w.data.start_us for w in ws] for ws in by_channel.values()]
    assert starts[0] == starts[1] == [96_000 * i for i in range(10)]
    assert not b.written("s", "perception.gap")


def test_everything_of_a_session_is_dropped_at_its_end() -> None:
    b = Bench()
    b.open()
    b.play(speech(1))
    b.run()
    b.end()
    b.run()
    assert b.perception.sessions == 0
    b.play(speech(0.1), start_us=1_000_000)
    [late] = b.run(seconds=5)
    assert (late.type, late.data.reason) == ("event.rejected", "late")
    b.start()
    assert b.run(seconds=5) == []


# --- ticks


def ticks(b: Bench, seconds: float, step: float = 0.1) -> list[int | None]:
    """The ticks of so many seconds."""
    found = []
    for _ in range(round(seconds / step)):
        found += [e.mediatime for e in b.run(seconds=step) if e.type == "clock.tick"]
    return found


def test_time_moves_on_without_media_until_the_session_ends() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.95))
    b.run()
    assert ticks(b, 0.9) == []
    assert ticks(b, 2.3) == [1_950_000, 2_950_000, 3_950_000]
    b.play(speech(0.5), start_us=4_000_000)
    assert ticks(b, 1.5) == [5_500_000]
    b.end()
    assert ticks(b, 3) == []


def test_time_moves_on_in_a_session_that_has_only_text() -> None:
    b = Bench()
    b.open()
    assert ticks(b, 2.5) == [1_000_000, 2_000_000]
    b.put("s", TextInput(text="hello"))
    assert ticks(b, 1) == [3_000_000]


def test_repeats_do_not_stop_the_clock() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.1), sequence=0, id="a")
    found = []
    for _ in range(30):
        b.play(speech(0.1), sequence=0, id="a")
        found += ticks(b, 0.1)
    assert len(found) >= 2


def test_a_stalled_flow_catches_up_with_one_tick() -> None:
    b = Bench()
    b.open()
    b.run()
    assert [e.mediatime for e in b.run(seconds=5.5)] == [5_000_000]


def test_ticks_go_on_above_the_logged_ones_after_a_restart() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.95))
    assert ticks(b, 3.2)[-1] == 3_950_000
    b.start()
    assert ticks(b, 2.2) == [4_950_000, 5_950_000]


def test_an_asap_session_ticks_only_when_its_device_is_gone() -> None:
    b = Bench()
    b.open(pacing="asap")
    b.play(speech(0.96))
    b.run()
    assert ticks(b, 9.8) == []
    assert ticks(b, 2.1) == [1_960_000, 2_960_000]


def test_a_closed_asap_session_is_drained_at_once_after_its_last_window() -> None:
    b = Bench()
    b.open(pacing="asap")
    end = b.play(speech(1))
    b.close(at_us=end)
    events = b.run()
    assert kinds(events)[-4:] == ["window", "clock.tick", "clock.tick", "clock.tick"]
    assert [e.mediatime for e in events[-3:]] == [2_000_000, 3_000_000, 4_000_000]
    assert ticks(b, 2.1) == [5_000_000, 6_000_000]


def test_a_close_that_is_read_before_the_last_media_waits_for_it() -> None:
    b = Bench()
    b.open(pacing="asap")
    b.run()
    end = b.play(speech(1))
    b.close(at_us=end)
    b.run(most=1)
    assert sum(1 for _ in b.windows()) == 11
    assert not b.written("s", "event.rejected")
