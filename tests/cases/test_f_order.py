"""Cases F: order, repeats, races, hang-ups. Devices' reconnects (F13, F14, F16, F23) are perception's and the device's, tested there."""

import pytest

from operators.fold import SessionFold
from schemas.base import Kind
from schemas.media import TextInput
from schemas.session import SessionClosed
from schemas.transcription import TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.case


def test_f1_two_inputs_of_one_time_are_applied_in_the_order_of_the_log() -> None:
    s = Session().silence(480)
    s.observe(TextInput(text="first"), 500_000).observe(TextInput(text="second"), 500_000)
    assert [e.text for e in s.data("turn.ended")] == ["first", "second"]


def test_f2_what_one_input_causes_is_worked_off_before_the_next() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(640).silence(600)
    (request,) = s.open.values()
    steps = s.feed(s.outcomes(request)[0])
    types = [d.type for d in steps[0].decisions]
    assert types[:2] == ["turn.ended", "response.requested"]


def test_f4_each_logical_event_happens_once_however_often_it_is_sent() -> None:
    s = Session().silence(480).speak(640).silence(900)
    before = len(s.events)
    for event in list(s.inputs):
        s.fold.feed(event)
    assert len(s.events) == before
    assert len(s.of("turn.ended")) == 1


def test_f5_only_one_authority_decides_that_a_turn_ended() -> None:
    """A decision from elsewhere is no input: the fold drops it."""
    s = Session().silence(480).speak(640)
    foreign = Session(name="s").silence(480).speak(640).silence(900).of("turn.ended")[0]
    assert s.fold.feed(foreign) == [] and not s.of("turn.ended")


def test_f7_time_comes_as_events_too() -> None:
    s = Session(hold=("endpoint", "transcript")).silence(480).speak(640)
    for _ in range(8):
        s.tick(1000)
    assert [e.reason for e in s.data("turn.ended")] == ["watchdog"]


def test_f8_times_are_never_negative_nor_absurd() -> None:
    s = Session().silence(96).speak(640).silence(900).speak(640).silence(900).close()
    for turn in s.data("turn.ended"):
        assert 0 <= turn.start_us <= turn.end_us <= s.fold.now


def test_f8_a_clock_that_steps_back_or_runs_ahead_moves_no_turn() -> None:
    s = Session().silence(4992).speak(640).silence(960)
    for start, end in ((-5_000_000, -4_000_000), (10**15, 2 * 10**15), (1_000, 900)):
        s.observe(TranscriptOffered(text="hello", start_us=start, end_us=end)).silence(2016)
    assert len(s.data("turn.ended")) > 1
    previous = 0
    for turn in s.data("turn.ended"):
        assert previous <= turn.start_us <= turn.end_us <= s.fold.now
        previous = turn.end_us


def test_f11_a_turn_without_voice_activity_has_its_latency_and_says_where_from() -> None:
    s = Session().silence(960)
    s.observe(TranscriptOffered(text="yes", start_us=500_000, end_us=900_000)).silence(1440)
    (ended,) = s.data("turn.ended")
    assert (ended.reason, ended.start_us, ended.end_us) == ("transcript", 500_000, 900_000)
    latency = s.of("response.started")[0].mediatime - ended.end_us
    assert 0 < latency < 2_000_000


def test_f10_what_was_asked_about_an_ended_turn_does_not_end_the_next() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(960)
    stale = next(r for r in s.open.values())
    s.speak(480).silence(240)
    s.answer(stale)
    s.silence(160)
    assert len(s.data("turn.ended")) == 1


def test_f16_nothing_begins_after_the_end() -> None:
    s = Session(policy={"idle.prompt_after": "1s", "idle.away_after": "2s"}).silence(480).close()
    assert s.fold.ended
    before = len(s.events)
    for _ in range(20):
        s.tick(1000)
    assert not [e for e in s.events[before:] if e.kind is Kind.DECISION]


def test_f17_the_last_utterance_is_not_lost_when_the_user_hangs_up() -> None:
    s = Session().silence(480).speak(960).silence(288).close()
    assert [e.text for e in s.data("turn.ended")] == ["hello there"]
    assert s.of("session.ended")[0].mediatime - s.of("session.closed")[0].mediatime <= 2_100_000


def test_f17_also_when_the_last_windows_come_after_the_close() -> None:
    """In a live session the close can overtake perception by a few windows."""
    s = Session().silence(480).speak(960)
    end = s.at + 288_000
    s.observe(SessionClosed(), end)
    s.silence(288)
    for _ in range(3):
        s.tick(1000)
    assert [(e.text, e.reason) for e in s.data("turn.ended")] == [("hello there", "closed")]
    assert s.fold.ended


def test_f17_in_the_middle_of_a_word() -> None:
    s = Session().silence(480).speak(960).close()
    assert [e.reason for e in s.data("turn.ended")] == ["closed"] and s.fold.ended


def test_f19_nothing_is_open_when_the_session_has_ended() -> None:
    s = (
        Session(hold=("transcript", "endpoint", "generate", "speak"))
        .silence(480)
        .speak(640)
        .silence(200)
        .close()
    )
    assert s.fold.ended
    started = {e.data.turn for e in s.of("turn.started")}
    assert started == {e.data.turn for e in s.of("turn.ended")}


def test_f20_what_waits_when_the_session_closes_is_ended_with_it() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(900).close()
    assert [d.reason for d in s.data("response.cancelled")] == ["session closed"] and s.fold.ended


def test_f22_a_session_that_falls_silent_for_good_is_ended() -> None:
    s = Session().silence(480)
    for _ in range(70):
        if not s.fold.ended:
            s.tick(1000)
    assert s.types("session.timed_out", "session.ended") == ["session.timed_out", "session.ended"]


def test_f23_records_before_the_start_are_kept() -> None:
    source = Session().observe(TextInput(text="early"), 0)
    opened, configured, text = source.inputs[:3]
    fold = SessionFold("s")
    fold.feed(text._replace(sequence=None))
    steps = [*fold.feed(opened), *fold.feed(configured)]
    assert "response.requested" in [d.type for step in steps for d in step.decisions]
