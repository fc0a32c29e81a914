"""Turns beyond the cases: reopened ones, push-to-talk, words to ignore, words that a device offers."""

from typing import Any

import pytest

from schemas.media import InputCommitted, InputMuted, InputUnmuted, TextInput
from schemas.registry import REQUESTS
from schemas.transcription import TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.pure


def ends(s: Session) -> list[Any]:
    return s.data("turn.ended")


def numbered(request: Any) -> str:
    return f"part {request.data.turn[-1]}"


def test_speech_soon_after_a_turn_that_nobody_heard_an_answer_to_continues_it() -> None:
    s = Session(transcript=numbered, hold=("generate",)).silence(480).speak(640).silence(480)
    s.speak(640).silence(480)
    assert [d.continues for d in s.data("turn.started")] == [None, "turn-1"]
    s.answer_kind("generate")
    s.silence(9000)
    assert len(s.of("response.started")) == 1, "both get one reply"
    said = [m.content for m in s.data("response.requested")[-1].messages if m.role == "user"]
    assert said == ["part 1", "part 2"]


def test_the_endpoint_model_hears_a_continued_turn_from_its_beginning() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(480).speak(640).silence(480)
    first, second = s.data("endpoint.requested")[0], s.data("endpoint.requested")[-1]
    assert second.audio.first_sample == first.audio.first_sample


@pytest.mark.parametrize(("pause", "forgotten"), [(384, False), (768, True)])
def test_the_endpoint_model_is_not_given_what_was_said_before_a_long_pause(
    pause: int, forgotten: bool
) -> None:
    s = Session(endpoint=0.1).silence(960).speak(640).silence(pause).speak(640).silence(480)
    first, second = s.data("endpoint.requested")
    assert len(s.of("turn.started")) == 1
    ms = (second.audio.first_sample - first.audio.first_sample) // 16
    assert ms == (640 + pause if forgotten else 0), "from half a second before the speech on"
    spoken = [r.audio.first_sample for r in s.data("transcript.requested")]
    assert len(set(spoken)) == 1, "the transcript is of the whole turn"


@pytest.mark.parametrize("pause", [9000, 2400])
def test_a_turn_is_not_continued_once_it_was_answered_or_long_ago(pause: int) -> None:
    hold = () if pause > 5000 else ("generate",)
    s = Session(hold=hold).silence(480).speak(640).silence(pause).speak(640).silence(480)
    assert [d.continues for d in s.data("turn.started")] == [None, None]


def test_continuing_can_be_switched_off() -> None:
    s = Session(policy={"turn.reopen_within": 0}, hold=("generate",)).silence(480)
    s.speak(640).silence(480).speak(640).silence(480)
    assert [d.continues for d in s.data("turn.started")] == [None, None]


def test_push_to_talk_waits_for_the_device() -> None:
    s = Session(policy={"turn.push_to_talk": True}).silence(480).speak(640).silence(6000)
    assert not ends(s)
    s.speak(640).silence(960).observe(InputCommitted())
    assert [e.reason for e in ends(s)] == ["committed"] and len(s.of("turn.started")) == 1
    s.silence(960)
    assert len(s.of("response.requested")) == 1


def test_a_commit_without_reply_is_remembered_and_not_answered() -> None:
    s = Session(transcript=numbered).silence(480).speak(640).observe(InputCommitted(reply=False))
    s.silence(3000)
    assert [(e.text, e.reply) for e in ends(s)] == [("part 1", False)]
    assert not s.of("response.requested")
    s.speak(640).silence(3000)
    said = [m.content for m in s.data("response.requested")[0].messages if m.role == "user"]
    assert said == ["part 1", "part 2"]


def test_a_muted_microphone_hears_nothing_and_offers_nothing() -> None:
    s = Session().silence(480).observe(InputMuted()).speak(960)
    s.observe(TranscriptOffered(text="hello")).silence(960)
    assert not s.types("turn.", "speech.")
    s.observe(InputUnmuted()).speak(960).silence(960)
    assert len(ends(s)) == 1


def test_typed_text_beside_speech_is_a_turn_of_its_own() -> None:
    s = Session(transcript="spoken").silence(480).speak(640).observe(TextInput(text="typed"))
    assert [(e.turn, e.text) for e in ends(s)] == [("turn-2", "typed")]
    assert not s.of("response.requested"), "the user still speaks"
    s.speak(320).silence(640)
    assert [(e.turn, e.text) for e in ends(s)][1:] == [("turn-1", "spoken")]
    said = [m.content for m in s.data("response.requested")[-1].messages if m.role == "user"]
    assert said == ["typed", "spoken"] and len(s.of("response.requested")) == 1


def test_words_to_ignore_are_heard_and_not_taken_as_said() -> None:
    s = Session(transcript="Um, uh.", policy={"turn.ignore_words": "um, uh, you know"})
    s.silence(480).speak(640).silence(3000)
    assert [(e.text, e.ignored) for e in ends(s)] == [("", "Um, uh.")]
    assert not s.of("response.requested")
    s.transcript = "Um, what time is it?"
    s.speak(640).silence(3000)
    assert ends(s)[-1].text == "Um, what time is it?"


def test_offered_words_stand_in_for_a_transcript_that_does_not_come() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(640)
    s.observe(TranscriptOffered(text="from the device")).silence(960)
    assert not ends(s), "the own transcript is still awaited"
    s.silence(480)
    assert [e.text for e in ends(s)] == ["from the device"]
    (request,) = [r for r in s.open.values() if REQUESTS[r.type] == "transcript"]
    s.answer(request)
    assert [d.text for d in s.data("turn.amended")] == ["hello there"]


def test_offered_words_that_come_late_belong_to_the_turn_before() -> None:
    s = Session(transcript="").silence(480).speak(640).silence(960)
    assert [e.text for e in ends(s)] == [""]
    s.observe(TranscriptOffered(text="yes please")).silence(3000)
    assert [d.text for d in s.data("turn.amended")] == ["yes please"]
    assert len(s.of("turn.started")) == 1
