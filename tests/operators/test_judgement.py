"""What words over the assistant mean, rule by rule, in both languages."""

import pytest

from operators.judgement import judge_words, just_asked
from operators.words import CHINESE, ENGLISH, lists_for
from schemas.policy import OverlapPolicy

pytestmark = pytest.mark.pure

POLICY = OverlapPolicy()


def judged(text: str, *, language: str = "en", **more: object) -> tuple[str, str | None]:
    given = {"asked": False, **more}
    result = judge_words(text, lists_for(language), POLICY, **given)  # type: ignore[arg-type]
    assert 0 < result.confidence <= 1 and result.evidence
    return result.verdict, result.kind


@pytest.mark.parametrize(
    ("text", "verdict", "kind"),
    [
        ("", "noise", None),
        ("...", "noise", None),
        ("Mhm.", "backchannel", None),
        ("yeah, okay, right", "backchannel", None),
        ("I see.", "backchannel", None),
        ("Wait.", "interruption", "stop"),
        ("Okay, stop.", "interruption", "stop"),
        ("Yeah, hold on a second", "interruption", "stop"),
        ("No, to Rome.", "interruption", "repair"),
        ("Oh, I meant tomorrow", "interruption", "repair"),
        ("Not you, I'm on the phone", "side_talk", None),
        ("Okay, I'm on the phone", "side_talk", None),
        ("And what does it cost?", "interruption", "redirect"),
        ("Yeah but what does it cost?", "interruption", "redirect"),
        ("waiting rooms are dull", "interruption", "redirect"),
        ("nobody knows", "interruption", "redirect"),
    ],
)
def test_the_rules_in_english(text: str, verdict: str, kind: str | None) -> None:
    assert judged(text) == (verdict, kind)


@pytest.mark.parametrize(
    ("text", "verdict", "kind"),
    [
        ("嗯", "backchannel", None),
        ("好的,明白", "backchannel", None),
        ("等一下", "interruption", "stop"),
        ("嗯,停", "interruption", "stop"),
        ("不对,是罗马", "interruption", "repair"),
        ("我在打电话", "side_talk", None),
        ("那要多少钱", "interruption", "redirect"),
    ],
)
def test_the_rules_in_chinese(text: str, verdict: str, kind: str | None) -> None:
    assert judged(text, language="zh") == (verdict, kind)


def test_an_unknown_language_is_judged_by_the_english_lists() -> None:
    assert lists_for("fi") is ENGLISH and lists_for("zh-TW") is CHINESE


def test_an_acknowledgement_after_a_question_is_an_answer() -> None:
    assert judged("yes", asked=True) == ("interruption", "redirect")
    assert judged("stop", asked=True) == ("interruption", "stop")


@pytest.mark.parametrize(
    ("heard", "asked"),
    [
        ("Shall I book it?", True),
        ("Shall I book it? It is cheap.", True),
        ("Shall I book it? It is the cheapest flight that I could find.", False),
        ("I booked it.", False),
        ("要订吗？", True),
        ("", False),
    ],
)
def test_what_was_just_asked(heard: str, asked: bool) -> None:
    assert just_asked(heard) is asked


def test_a_far_voice_speaks_to_somebody_else_but_may_still_say_stop() -> None:
    assert judged("dinner is ready", drop_db=20.0) == ("side_talk", None)
    assert judged("dinner is ready", drop_db=3.0) == ("interruption", "redirect")
    assert judged("stop", drop_db=20.0) == ("interruption", "stop")


def test_the_endpoint_model_makes_a_backchannel_surer_or_less_sure() -> None:
    def sure(endpoint: float | None) -> float:
        return judge_words("yeah", ENGLISH, POLICY, asked=False, endpoint=endpoint).confidence

    assert sure(0.1) < sure(None) < sure(0.9)


def test_fewer_words_than_the_policy_wants_do_not_interrupt_unless_they_stop() -> None:
    policy = OverlapPolicy(min_words=3)
    few = judge_words("red ones", ENGLISH, policy, asked=False)
    assert (few.verdict, few.kind) == ("inconclusive", None)
    assert judge_words("the red ones", ENGLISH, policy, asked=False).verdict == "interruption"
    assert judge_words("stop", ENGLISH, policy, asked=False).kind == "stop"
    assert judge_words("多少钱", CHINESE, policy, asked=False).verdict == "interruption"
