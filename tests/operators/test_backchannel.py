"""The classifier's second opinion on words over the assistant: when it is asked, what its answer changes, and who decides without it."""

from typing import Any

import pytest

from schemas.envelope import Event
from schemas.transcription import BackchannelFailed, TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.pure

LONG = "This is the answer to your question. It is somewhat longer than you would think. And so it goes on and on."
ON = {"overlap.backchannel_model": True}


def speaking(second: str | None, policy: dict[str, Any] = ON, **more: Any) -> Session:
    """The assistant has just begun a long answer; what is said next will be understood as `second`."""

    def said(request: Event) -> str | None:
        return "what is this about" if request.data.turn == "turn-1" else second

    s = Session(transcript=said, policy=policy, **{"reply": LONG, **more})
    s.silence(480).speak(960).silence(1920)
    assert s.of("response.started")
    return s


def over(second: str, policy: dict[str, Any] = ON, **more: Any) -> Session:
    return speaking(second, policy, **more).speak(480).silence(1440)


def verdict(s: Session) -> tuple[str, str | None]:
    (found,) = s.data("overlap.resolved")
    return found.verdict, found.kind


def test_nobody_is_asked_unless_the_policy_wants_it() -> None:
    s = over("mhm", {})
    assert not s.of("backchannel.requested") and verdict(s) == ("backchannel", None)


@pytest.mark.parametrize("text", ["mhm", "and what about lunch", "red", "no way"])
def test_where_the_rules_are_not_certain_it_is_asked(text: str) -> None:
    s = over(text, {**ON, "overlap.min_words": 2})
    (asked,) = s.data("backchannel.requested")
    (overlap,) = s.data("overlap.started")
    assert (asked.text, asked.language, asked.attempt) == (text, "en", 1)
    assert (asked.overlap, asked.response) == (overlap.overlap, overlap.response)
    assert asked.assistant and LONG.startswith(asked.assistant), "not what had been heard"
    assert asked.speech_us >= 400_000


@pytest.mark.parametrize(
    ("text", "decided"),
    [
        ("wait", ("interruption", "stop")),
        ("okay, hold on", ("interruption", "stop")),
        ("no, I meant Rome", ("interruption", "repair")),
        ("not you, I'm on the phone", ("side_talk", None)),
        ("...", ("noise", None)),
    ],
)
def test_where_the_rules_are_certain_it_is_not(text: str, decided: tuple[str, str | None]) -> None:
    s = over(text)
    assert not s.of("backchannel.requested") and verdict(s) == decided


def test_only_the_end_of_what_was_heard_is_sent() -> None:
    reply = " ".join(f"This is sentence {n}." for n in range(30))
    s = speaking("mhm", reply=reply).silence(18_000).speak(480).silence(1440)
    (asked,) = s.data("backchannel.requested")
    assert len(asked.assistant) == 200 and 0 < reply.index(asked.assistant) < len(reply) - 400


@pytest.mark.parametrize(
    ("text", "probability", "decided", "confidence"),
    [
        ("mhm", 0.9, ("backchannel", None), 0.9),
        ("mhm", 0.2, ("interruption", "redirect"), 0.8),
        ("that is so sad", 0.7, ("backchannel", None), 0.7),
        ("and what about lunch", 0.1, ("interruption", "redirect"), 0.9),
        ("red", 0.1, ("inconclusive", None), 0.9),
        ("red", 0.6, ("backchannel", None), 0.6),
    ],
)
def test_its_answer_decides_and_the_verdict_says_so(
    text: str, probability: float, decided: tuple[str, str | None], confidence: float
) -> None:
    s = over(text, {**ON, "overlap.min_words": 2}, backchannel=probability)
    (found,) = s.data("overlap.resolved")
    assert (found.verdict, found.kind) == decided
    assert found.evidence.startswith(f"words {text!r}"[:-1])
    assert found.evidence.endswith(f"classifier {probability:.2f}")
    assert found.confidence == pytest.approx(confidence)
    assert bool(s.of("response.cancelled")) is (decided[0] == "interruption")


def test_the_policy_says_how_sure_it_must_be() -> None:
    strict = {**ON, "overlap.backchannel_threshold": 0.8}
    assert verdict(over("that is so sad", strict, backchannel=0.7)) == ("interruption", "redirect")
    assert verdict(over("that is so sad", strict, backchannel=0.8)) == ("backchannel", None)


@pytest.mark.parametrize(
    ("text", "decided"),
    [("mhm", ("backchannel", None)), ("and what about lunch", ("interruption", "redirect"))],
)
def test_without_an_answer_in_time_the_rules_decide(
    text: str, decided: tuple[str, str | None]
) -> None:
    s = over(text, hold=("backchannel",))
    (request,), (late,) = s.of("backchannel.requested"), s.of("request.timed_out")
    assert (late.data.request, late.data.kind) == (request.id, "backchannel")
    waited = (late.mediatime or 0) - (request.mediatime or 0)
    assert s.policy.overlap.backchannel_within <= waited < 500_000
    assert verdict(s) == decided
    assert "classifier" not in s.data("overlap.resolved")[0].evidence


def test_an_answer_that_comes_late_changes_nothing() -> None:
    s = over("mhm", hold=("backchannel",), backchannel=0.01)
    before = s.types("overlap.", "response.", "floor.")
    s.answer_kind("backchannel")
    assert s.types("overlap.", "response.", "floor.") == before
    assert verdict(s) == ("backchannel", None)


@pytest.mark.parametrize("reason", ["unavailable", "rejected", "timed_out"])
def test_where_it_fails_the_rules_decide_at_once(reason: Any) -> None:
    s = speaking("mhm", hold=("backchannel",)).speak(480)
    while not s.of("backchannel.requested"):
        s.silence(96)
    (request,) = s.of("backchannel.requested")
    assert not s.of("overlap.resolved")
    failed = BackchannelFailed(overlap=request.data.overlap, reason=reason, message="no")
    s.feed(s.outcome(request, failed))
    assert verdict(s) == ("backchannel", None) and not s.of("request.timed_out")


def test_the_assistant_stays_paused_while_it_is_asked() -> None:
    s = speaking("mhm", hold=("backchannel",)).speak(480)
    while not s.of("backchannel.requested"):
        s.silence(96)
    assert s.types("floor.") == ["floor.paused"]
    s.answer_kind("backchannel")
    assert s.types("floor.") == ["floor.paused", "floor.resumed"]


def test_more_words_supersede_the_question_and_ask_anew() -> None:
    s = speaking(None, hold=("backchannel",)).observe(TranscriptOffered(text="mhm"))
    s.observe(TranscriptOffered(text="mhm but why"))
    first, second = s.of("backchannel.requested")
    assert [(d.request, d.reason) for d in s.data("request.superseded")] == [
        (first.id, "more was said")
    ]
    s.feed(s.outcomes(first)[0])
    assert not s.of("overlap.resolved"), "the answer to a superseded question decided"
    s.answer(second)
    assert len(s.of("overlap.resolved")) == 1 and not s.of("request.timed_out")


def test_who_speaks_on_is_not_kept_waiting() -> None:
    s = speaking(None, {**ON, "overlap.backchannel_within": 5_000_000}, hold=("backchannel",))
    s.observe(TranscriptOffered(text="mhm")).speak(3000)
    assert verdict(s) == ("interruption", "redirect")
    assert [d.reason for d in s.data("request.superseded")] == ["the overlap is over"]
    assert s.types("request.") == ["request.superseded"], "one end for the request"


def test_a_session_played_from_a_file_is_judged_as_a_live_one() -> None:
    for probability in (0.1, 0.9):
        live = over("that is so sad", backchannel=probability)
        file = over("that is so sad", backchannel=probability, pacing="asap")
        assert verdict(file) == verdict(live) and not file.of("request.timed_out")
