"""What perception cannot use: rejected once, with its place and why; the rest goes on."""

import pytest

from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.media import InputMuted, TextInput
from schemas.record import Lane, Record, StoredRecord
from schemas.session import ClockTick, SessionEnded
from tests.support.perceive import Bench, kinds, speech

pytestmark = pytest.mark.flow


def rejected(b: Bench, record: Record, lane: Lane = Lane.TIMELINE) -> Event:
    b.timeline.append([record], lane)
    [event] = [e for e in b.run() if e.type == "event.rejected"]
    assert b.run() == []
    b.start()
    assert [e for e in b.run() if e.type == "event.rejected"] == [], "it is rejected once"
    return event


def test_what_cannot_be_read_is_rejected_with_its_place() -> None:
    b = Bench()
    b.open()
    good = encode(Event("text.input", "s", "t1", "device-1", TextInput(text="hello")))
    event = rejected(b, good._replace(value=b"{"))
    assert event.session == "s" and event.data.reason == "unreadable"
    assert (event.data.lane, event.data.partition) == ("timeline", b.timeline.partition_of("s"))
    assert event.data.type == "venus.text.input.v1" and event.data.source == "device-1"


def test_media_that_is_not_pcm_is_rejected_and_the_rest_goes_on() -> None:
    b = Bench()
    b.open()
    riff = b"RIFF\x24\x00\x00\x00WAVEfmt " + b"\0" * 100
    data = Pcm(16_000, 1, riff)
    event = rejected(b, encode(Event("media.audio", "s", "m", "d", data, 0)), Lane.MEDIA)
    assert event.data.reason == "format" and "WAV" in event.data.detail
    b.play(speech(1))
    assert kinds(b.run()) == ["format_changed"] + ["window"] * 10


def test_a_record_on_the_wrong_lane_is_rejected() -> None:
    b = Bench()
    b.open()
    media = encode(Event("media.audio", "s", "m", "d", Pcm(16_000, 1, b"\0\0"), 0))
    assert "media lane" in rejected(b, media).data.detail
    muted = encode(Event("input.muted", "s", "i", "d", InputMuted()))
    assert "timeline lane" in rejected(b, muted, Lane.MEDIA).data.detail


def test_a_record_in_the_wrong_partition_says_how_to_partition() -> None:
    b = Bench()
    record = encode(Event("text.input", "s", "t", "d", TextInput(text="x")))
    right = b.timeline.partition_of("s")
    stored = StoredRecord(Lane.TIMELINE, 1 - right, 9, 0, *record)
    [event] = [decode(r) for r in b.perception.on_batch([stored])]
    assert event.data.reason == "wrong_partition" and event.data.offset == 9
    assert f"partition {right}" in event.data.detail and "murmur2_random" in event.data.detail


def test_a_record_without_a_key_is_rejected_under_a_session_of_its_own() -> None:
    b = Bench()
    record = encode(Event("text.input", "s", "t", "d", TextInput(text="x")))
    stored = StoredRecord(Lane.TIMELINE, 0, 3, 0, None, record.headers, record.value)
    [event] = [decode(r) for r in b.perception.on_batch([stored])]
    assert (event.session, event.data.reason) == ("unknown", "unreadable")


def test_a_device_may_not_write_what_perception_writes() -> None:
    b = Bench()
    b.open()
    tick = encode(Event("clock.tick", "s", "t", "device-1", ClockTick(), 5))
    assert rejected(b, tick).data.reason == "wrong_writer"
    over = SessionEnded(reason="closed", turns=0, responses=0)
    ended = encode(Event(over.TYPE, "s", "e", "device-1", over))
    answer = rejected(b, ended).data
    assert answer.reason == "wrong_writer"
    assert answer.detail == "only conversation writes session.ended, not device-1"


def test_types_of_a_newer_version_pass() -> None:
    b = Bench()
    headers = (("ce_specversion", b"1.0"), ("ce_type", b"venus.dance.started.v1"))
    b.timeline.append([Record("s", headers, b"?")])
    assert b.run() == []


def test_media_after_the_close_is_late() -> None:
    b = Bench()
    b.open()
    end = b.play(speech(1))
    b.close(at_us=end)
    b.run()
    b.play(speech(0.1), start_us=end)
    [late] = b.run()
    assert (late.type, late.data.reason) == ("event.rejected", "late")
    b.start()
    assert b.run() == []
