"""Overlaps beyond the cases: far voices, echoes, offered words, responses that must be heard."""

from typing import Any

import pytest

from schemas.base import HOP_US
from schemas.transcription import TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.pure

LONG = "This is the answer to your question. It is somewhat longer than you would think. And so it goes on and on."


def speaking(second: str | None, **more: Any) -> Session:
    def said(request: Any) -> str | None:
        return "what is this about" if request.data.turn == "turn-1" else second

    s = Session(transcript=said, reply=LONG, **more).silence(480).speak(960).silence(1920)
    assert s.of("response.started")
    return s


def verdicts(s: Session) -> list[str]:
    return [d.verdict for d in s.data("overlap.resolved")]


def test_a_far_voice_neither_pauses_nor_stops_the_assistant() -> None:
    s = speaking("dinner is ready everybody")
    s.level_db = -55.0
    s.speak(1920).silence(1440)
    assert verdicts(s) == ["side_talk"] and not s.of("floor.paused")
    s.silence(9000)
    assert s.data("response.ended")[0].heard_text == LONG
    assert len(s.of("response.requested")) == 1, "what was said to somebody else is not answered"


def test_the_same_voice_nearby_stops_it() -> None:
    s = speaking("dinner is ready everybody").speak(1920).silence(1440)
    assert verdicts(s) == ["interruption"]


@pytest.mark.parametrize("heard_as", [LONG[:36], "this is the answer to you are"])
def test_the_assistants_own_words_are_an_echo(heard_as: str) -> None:
    s = speaking(heard_as).speak(900).silence(1440)
    assert verdicts(s) == ["echo"] and not s.of("response.cancelled")
    assert [(e.text, e.ignored) for e in s.data("turn.ended")][1:] == [("", heard_as)]
    s.silence(9000)
    assert len(s.of("response.requested")) == 1


def test_words_that_the_assistant_has_not_come_to_yet_are_the_users() -> None:
    """An answer often begins with the words of its question; who asks again as it begins is no echo of it."""
    asked = "it is somewhat longer than you would think"
    s = speaking(asked).speak(900).silence(1440)
    assert verdicts(s) == ["interruption"]
    assert [e.text for e in s.data("turn.ended")][1:] == [asked]


def test_hops_that_echo_the_playback_are_no_voice() -> None:
    s = speaking("never heard")
    s.echo = 0.9
    s.speak(3000).silence(480)
    assert not s.of("overlap.started") and len(s.of("turn.started")) == 1


def test_words_that_the_user_repeats_without_any_echo_are_the_users() -> None:
    s = speaking("it is somewhat longer than you would think")
    s.echo = 0.05
    s.speak(900).silence(1440)
    assert verdicts(s) == ["interruption"]


def test_offered_words_stop_the_assistant_without_voice_activity() -> None:
    s = speaking(None).observe(TranscriptOffered(text="stop", final=False))
    assert verdicts(s) == ["interruption"]
    assert [d.kind for d in s.data("overlap.resolved")] == ["stop"]


def test_an_interim_text_that_is_no_stop_decides_nothing_yet() -> None:
    s = speaking(None).observe(TranscriptOffered(text="and what", final=False))
    assert s.of("overlap.started") and not verdicts(s)
    s.observe(TranscriptOffered(text="and what about lunch"))
    assert verdicts(s) == ["interruption"]


def test_a_resumed_response_goes_on_at_the_very_sample() -> None:
    s = speaking("Mhm.").speak(320).silence(1000)
    acks = [d for d in s.data("playback.ack") if d.response == "response-1"]
    paused = next(d for d in acks if d.state == "paused")
    after = acks[acks.index(paused) + 1]
    assert (after.state, after.played_us) == ("playing", paused.played_us)


def test_an_overlap_is_timed_by_whole_hops() -> None:
    s = speaking(None).speak(1344)
    began = s.data("overlap.started")[0].start_us
    paused = (s.of("floor.paused")[0].mediatime or 0) - began
    assert 200_000 <= paused < 200_000 + HOP_US


def test_the_users_usual_level_is_known_after_the_first_words() -> None:
    s = Session(reply="This is a long answer that goes on for quite a while. " * 4).silence(480)
    s.level_db = -60.0
    s.speak(96)
    s.level_db = -30.0
    s.speak(1152).silence(1920)
    s.level_db = -48.0
    s.speak(1440)
    assert s.of("overlap.started") and not s.types("floor.", "response.cancelled")
