"""Cases D: the history holds what was heard, word by word, in the order in which it was said."""

from typing import Any

import pytest

from operators.heard import Sentence, heard_text
from schemas.media import PlaybackAck, TextInput
from schemas.responses import GenerationFailed
from schemas.transcription import TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.case

LONG = "This is the answer to your question. It is somewhat longer than you would think. And so it goes on and on."


def cut_at(ms: int, second: str = "no, tell me more", **more: Any) -> Session:
    def said(request: Any) -> str:
        return "what is it" if request.data.turn == "turn-1" else second

    return (
        Session(transcript=said, reply=LONG, **more)
        .silence(480)
        .speak(960)
        .silence(ms)
        .speak(900)
        .silence(1500)
    )


def history(s: Session) -> list[tuple[str, str]]:
    return [
        (m.role, m.content) for m in s.data("response.requested")[-1].messages if m.role != "system"
    ]


def test_d1_only_words_that_were_played_are_remembered() -> None:
    s = cut_at(2400)
    cancelled = s.data("response.cancelled")[0]
    assert 0 < cancelled.heard_us < 6_000_000
    assert LONG.startswith(cancelled.heard_text) and cancelled.heard_text != LONG
    assert ("assistant", cancelled.heard_text) in history(s)
    # 60 ms a character: nothing may be remembered that needed longer than what was played.
    assert len(cancelled.heard_text) * 60_000 <= cancelled.heard_us + 60_000


def test_d2_cut_before_the_first_sound_nothing_is_remembered() -> None:
    s = (
        Session(hold=("speak",), reply=LONG)
        .silence(480)
        .speak(640)
        .silence(600)
        .speak(640)
        .silence(600)
    )
    assert s.data("response.cancelled")[0].heard_text == ""
    assert [role for role, _ in history(s)] == ["user", "user"]


def test_d4_without_word_times_the_share_of_the_characters_counts() -> None:
    assert heard_text([Sentence("one two three four", 1_800_000, True)], 900_000) == "one two"
    assert (
        heard_text(
            [Sentence("one two", 700_000, True), Sentence("three four", 1_000_000, True)], 1_250_000
        )
        == "one two three"
    )
    assert heard_text([Sentence("你好世界", 400_000, True)], 210_000) == "你好"


def test_d5_what_was_not_played_counts_as_not_heard_though_it_was_all_there() -> None:
    s = cut_at(1500)
    assert s.data("response.cancelled")[0].heard_us < 1_500_000


def test_d7_the_users_turn_stands_where_it_was_said() -> None:
    s = cut_at(2400)
    roles = [role for role, _ in history(s)]
    assert roles == ["user", "assistant", "user"]
    assert history(s)[0][1] == "what is it" and history(s)[-1][1] == "no, tell me more"


def test_d8_acknowledgements_beyond_what_there_is_are_clamped() -> None:
    s = Session(reply="A short one, this is.").silence(480).speak(960).silence(640)
    s.observe(PlaybackAck(response="response-1", played_us=99_000_000, state="drained"))
    ended = s.data("response.ended")[0]
    assert ended.heard_us < 5_000_000


def test_d10_sentences_that_overtake_each_other_are_counted_as_they_sound() -> None:
    """The second sentence's speech came first (the first had to be tried again), so it was heard first."""
    s = Session(hold=("speak",), reply="First of all this. Then comes that.")
    s.silence(480).speak(640).silence(480)
    first, second = (r for r in s.open.values() if r.type == "speech.requested")
    s.answer(second)
    s.answer(first)
    s.silence(1200).observe(TextInput(text="stop"))
    assert "Then comes" in s.data("response.cancelled")[0].heard_text
    assert "First" not in s.data("response.cancelled")[0].heard_text


def test_d11_marks_of_a_response_that_was_cut_change_nothing_else() -> None:
    s = cut_at(2400)
    before = s.data("response.cancelled")[0].heard_us
    s.observe(PlaybackAck(response="response-1", played_us=9_000_000, state="playing"))
    s.silence(9000)
    assert all(d.response != "response-1" for d in s.data("response.ended"))
    assert s.data("response.cancelled")[0].heard_us == before


def test_d11_the_devices_last_word_corrects_what_was_assumed() -> None:
    s = Session(reply=LONG, transcript=lambda r: "what" if r.data.turn == "turn-1" else "no, more")
    s.silence(480).speak(960).silence(2400)
    s.playout = None  # a device whose acknowledgements we write ourselves
    s.speak(1344)
    assert s.data("response.cancelled")
    s.observe(PlaybackAck(response="response-1", played_us=600_000, state="cut"))
    amended = s.data("heard.amended")[0]
    assert amended.heard_us == 600_000 and len(amended.heard_text) < 12
    s.silence(1500)
    assert ("assistant", amended.heard_text) in history(s) or amended.heard_text == ""


def test_d13_the_end_waits_for_the_last_word() -> None:
    s = (
        Session(reply="One sentence is here now. Another sentence comes later.", hold=("speak",))
        .silence(480)
        .speak(640)
        .silence(600)
    )
    first, second = s.open.values()
    s.answer(first)
    s.silence(3000)
    assert not s.of("response.ended")
    s.answer(second)
    s.silence(4000)
    assert (
        s.data("response.ended")[0].heard_text
        == "One sentence is here now. Another sentence comes later."
    )


def test_d16_a_transcript_that_only_gains_its_punctuation_asks_nothing_again() -> None:
    """There is no reply ahead of the turn's end that a last transcript could discard; a device's own words end the turn when the
    transcript is late, and that one then only amends what was said."""
    s = Session(hold=("transcript",), transcript="Hi there.").silence(480).speak(480)
    s.observe(TranscriptOffered(text="hi there")).silence(1600)
    assert [d.text for d in s.data("turn.ended")] == ["hi there"]
    s.answer_kind("transcript")
    s.silence(8000)
    assert [d.text for d in s.data("turn.amended")] == ["Hi there."]
    assert len(s.of("response.requested")) == len(s.of("response.ended")) == 1
    assert s.fold.states["respond"].history[0].content == "Hi there."


def test_d17_one_turn_has_one_reply_whatever_was_asked_before() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(600).speak(640).silence(600)
    s.answer_kind("generate")
    s.silence(5000)
    assert len(s.of("response.started")) == 1
    assert s.data("response.started")[0].response == "response-2"


def test_d19_user_and_assistant_alternate_in_the_order_of_the_talk() -> None:
    s = cut_at(2400).silence(8000).speak(640).silence(1500)
    assert [role for role, _ in history(s)] == ["user", "assistant", "user", "assistant", "user"]


def test_d20_a_cancel_changes_the_state_for_good() -> None:
    s = cut_at(2400).silence(12_000)
    epochs = [d.epoch for d in s.data("response.started")]
    assert epochs == [0, 1]


def test_a_generation_that_is_lost_is_tried_again_once() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(600)
    for attempt in (1, 2):
        (request,) = s.open.values()
        assert request.data.attempt == attempt
        s.open.clear()
        s.feed(s.outcome(request, GenerationFailed(response="response-1", reason="lost")))
    assert [d.response for d in s.data("response.failed")] == ["response-1"] and not s.open
