"""The end of a session: the last words before the close are heard, and nothing is left without an end, however records arrive."""

from typing import Any

import pytest

from schemas.media import TextInput
from schemas.session import SessionClosed, SessionUpdated
from tests.operators.test_exhaustive import check_closed
from tests.support.script import Session

pytestmark = pytest.mark.pure


def types(s: Session, *wanted: str) -> list[str]:
    return [e.type for e in s.events if e.type in wanted]


@pytest.mark.parametrize("late_ms", [0, 32, 64, 96, 192, 320, 480, 960])
@pytest.mark.parametrize("voiced_ms", [32, 64, 96, 128, 192, 480])
def test_media_that_arrives_after_the_close_ends_what_it_begins(
    late_ms: int, voiced_ms: int
) -> None:
    """The close is read before the last windows: conversation is quicker than perception."""
    s = Session().silence(960)
    end_us = s.at + (late_ms + voiced_ms) * 1000
    s.observe(SessionClosed(), end_us)
    s.silence(late_ms).speak(voiced_ms)
    for _ in range(40):
        s.tick(100)
    assert types(s, "session.ended") == ["session.ended"]
    ended = next(i for i, e in enumerate(s.events) if e.type == "session.ended")
    assert not [e for e in s.events[ended + 1 :] if e.kind.name == "DECISION"]
    check_closed(s, (f"{late_ms} ms late, {voiced_ms} ms voiced",))


@pytest.mark.parametrize("close_ms", [0, 32, 64, 96, 128, 192])
@pytest.mark.parametrize("silent_ms", [0, 32, 64, 96])
def test_speech_across_the_close_is_no_turn_without_an_end(close_ms: int, silent_ms: int) -> None:
    """Perception's last window is padded, and devices' clocks are not exact: hops may lie behind the close."""
    s = Session().silence(960)
    s.observe(SessionClosed(), s.at + close_ms * 1000)
    s.hops(silent_ms, 0.0).hops(288 - silent_ms, 0.95)
    for _ in range(40):
        s.tick(100)
    ended = next(i for i, e in enumerate(s.events) if e.type == "session.ended")
    assert not [e for e in s.events[ended + 1 :] if e.kind.name == "DECISION"]
    check_closed(s, (f"closed at {close_ms} ms, speech from {silent_ms} ms on",))


def test_the_last_words_before_a_close_are_a_turn() -> None:
    s = Session(transcript="and that was all").silence(960)
    s.observe(SessionClosed(), s.at + 1_440_000)
    s.speak(960).silence(480)
    for _ in range(40):
        s.tick(100)
    assert [e.text for e in s.data("turn.ended")] == ["and that was all"]


def ended_at(s: Session) -> int | None:
    return next((e.mediatime for e in s.events if e.type == "session.ended"), None)


@pytest.mark.parametrize(
    ("changes", "seconds", "ends"),
    [
        ({"session.abandoned_after": "3s"}, 10, True),
        ({"session.abandoned_after": "90s"}, 70, False),
    ],
)
def test_a_session_is_abandoned_by_the_policy_in_force(
    changes: dict[str, Any], seconds: int, ends: bool
) -> None:
    s = Session().observe(SessionUpdated(policy=changes))
    for _ in range(seconds):
        s.tick(1000)
    assert (ended_at(s) is not None) is ends


def test_a_longer_drain_is_kept_by_everybody() -> None:
    s = Session(hold=("transcript", "endpoint")).silence(480)
    s.observe(SessionUpdated(policy={"session.drain": "20s"})).speak(960).close(30)
    assert types(s, "turn.ended", "session.ended") == ["turn.ended", "session.ended"]


def test_what_time_has_ended_is_not_ended_again() -> None:
    """asap: an input that moves time on comes after what has happened until then."""
    s = Session(pacing="asap", playback="assumed").speak(480).silence(2400)
    s.observe(TextInput(text="hello again"), s.at + 2_500_000)
    s.at += 2_500_000
    s.tick(1000)
    first = [e.type for e in s.events if getattr(e.data, "response", None) == "response-1"]
    assert first.count("response.ended") == 1 and "response.cancelled" not in first
