"""Whether words break off, and what that does to a turn's end."""

from typing import Any

import pytest

from operators.wording import wording
from schemas.media import InputCommitted
from schemas.registry import REQUESTS
from tests.support.script import Session

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    "text",
    [
        "Could you book me a flight from?",
        "I would like to",
        "My name is...",
        "I need a, um,",
        "We will take the train and",
        "What I wanted to ask is",
        "I think",
        "Well, let me think.",
        "It is raining. The thing is",
        "There was a man who",
        "How do I get to the",
    ],
)
def test_a_text_that_cannot_be_the_end_of_a_sentence_breaks_off(text: str) -> None:
    assert wording(text, "en") == "broken"


@pytest.mark.parametrize(
    "text",
    [
        "Where are you from?",
        "What is it for?",
        "Yes, I am.",
        "I think so.",
        "It is on Saturday, I think.",
        "Turn the light on.",
        "Tomorrow at 7.",
        "Four.",
        "What is 17 times 23?",
        "Who?",
        "",
        "...",
    ],
)
def test_a_text_that_can_be_the_end_stands_as_it_is(text: str) -> None:
    assert wording(text, "en") == "whole"


@pytest.mark.parametrize("text", ["4 7", "My number is 555-20.", "three one double five"])
def test_digits_one_by_one_may_go_on(text: str) -> None:
    assert wording(text, "en") == "number"


def test_chinese_has_lists_of_its_own_and_other_languages_have_none() -> None:
    assert wording("我想去北京和", "zh") == "broken" == wording("因为", "zh")
    assert wording("我想去北京", "zh") == "whole" == wording("ich möchte in die", "de")


def ends(s: Session) -> list[tuple[int, str]]:
    """ms from the end of speech at 1120 ms to the decision, and its reason."""
    return [((e.mediatime or 0) // 1000 - 1120, e.data.reason) for e in s.of("turn.ended")]


def after(**session: Any) -> Session:
    return Session(**session).silence(480).speak(640).silence(4000)


@pytest.mark.parametrize(
    ("text", "endpoint", "at", "reason"),
    [
        ("a table for two", 0.9, 320, "complete"),
        ("a table for two", 0.1, 1024, "hold_expired"),
        ("a table for", 0.9, 3008, "hold_expired"),
        ("a table for", 0.1, 3008, "hold_expired"),
        ("four seven one", 0.9, 1024, "hold_expired"),
        ("", 0.1, 1024, "hold_expired"),
    ],
)
def test_sound_and_words_agree_on_how_long_a_pause_is_waited_out(
    text: str, endpoint: float, at: int, reason: str
) -> None:
    assert ends(after(transcript=text, endpoint=endpoint)) == [(at, reason)]


def test_without_words_the_sound_alone_holds_to_the_end() -> None:
    s = after(hold=("transcript",), endpoint=0.1)
    assert [d.until_us for d in s.data("turn.held")] == [4_120_000] and not ends(s)
    s.answer_kind("transcript")
    assert [reason for _, reason in ends(s)] == ["hold_expired"]


def test_words_that_break_off_take_back_an_end_that_waited_only_for_them() -> None:
    s = Session(hold=("transcript",), transcript="a table for").silence(480).speak(640).silence(640)
    assert not s.of("turn.ended") and not s.of("turn.held")
    s.answer_kind("transcript")
    assert [d.until_us for d in s.data("turn.held")] == [4_120_000]
    s.speak(320).silence(480)
    s.transcript = "a table for two"
    s.answer_kind("transcript")
    assert [e.text for e in s.data("turn.ended")] == ["a table for two"]
    assert len(s.of("response.requested")) == 1


def test_words_after_their_deadline_hold_nothing_up() -> None:
    s = Session(hold=("transcript",), transcript="a table for").silence(480).speak(640)
    s.silence(1500).answer_kind("transcript")
    assert [e.text for e in s.data("turn.ended")] == ["a table for"]


def test_a_pause_that_is_held_already_is_told_again_only_if_it_grows() -> None:
    s = Session(hold=("transcript",), endpoint=0.1, transcript="a table for two")
    s.silence(480).speak(640).silence(480)
    s.answer_kind("transcript")
    s.silence(2000)
    assert len(s.of("turn.held")) == 1 and ends(s) == [(1024, "hold_expired")]


def test_without_the_endpoint_model_words_change_nothing() -> None:
    s = after(transcript="a table for", hold=("endpoint",))
    assert [reason for _, reason in ends(s)] == ["no_prediction"]
    assert [REQUESTS[r.type] for r in s.open.values()] == ["endpoint"]


def test_a_committed_turn_is_over_whatever_its_words() -> None:
    s = Session(hold=("transcript",), transcript="a table for").silence(480).speak(640)
    s.observe(InputCommitted()).answer_kind("transcript")
    assert [reason for _, reason in ends(s)] == ["committed"]
