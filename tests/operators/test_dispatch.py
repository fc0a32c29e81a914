"""Dispatch: one work at most for each request, and one end for each work."""

from typing import Any

import pytest

from schemas.work import WorkCancelRequested, WorkRequested
from tests.support.works import WorkSession

pytestmark = pytest.mark.pure

PARIS = "What is the weather in Paris?"


def begun(**more: Any) -> WorkSession:
    session = WorkSession(**more)
    session.silence(960).says(PARIS).silence(2000)
    return session


def test_a_turn_that_delegates_is_answered_by_a_holding_sentence_and_not_by_the_model() -> None:
    session = begun()
    assert session.types("response.requested") == []
    assert session.spoken() == ["Let me check the weather."]


def test_the_same_task_is_not_begun_again_while_it_runs() -> None:
    session = begun().running()
    session.says(PARIS).silence(2000)
    (refused,) = session.data("delegate.refused")
    assert (refused.reason, refused.work) == ("running", "work-1")
    assert session.spoken()[-1] == "I am still working on that."
    session.completes("Sunny.").silence(4000)
    session.says(PARIS)
    assert len(session.works()) == 2, "after its end it may be asked again"


def test_the_same_task_twice_in_one_breath_is_one_work() -> None:
    session = WorkSession()
    session.silence(960).says(f"{PARIS} {PARIS}")
    assert len(session.works()) == 1


@pytest.mark.parametrize(
    ("policy", "reason", "spoken"),
    [
        (
            {"work.allow": ["time.*"]},
            "not_allowed",
            "Sorry, that did not work: that is not allowed here.",
        ),
        (
            {"work.most_open": 1},
            "too_many",
            "Sorry, that did not work: too much is going on already.",
        ),
    ],
)
def test_what_may_not_be_done_is_refused_and_said(
    policy: dict[str, Any], reason: str, spoken: str
) -> None:
    session = WorkSession(policy=policy)
    session.observe(WorkRequested(query="something else", route="general"))
    session.silence(960).says(PARIS).silence(4000)
    assert [r.reason for r in session.data("delegate.refused")] == [reason]
    assert session.spoken() == [spoken]


def test_a_correction_cancels_and_replaces() -> None:
    session = begun().running()
    session.says("No, to Rome.").silence(960)
    (cancelling,) = session.data("work.cancelling")
    assert (cancelling.work, cancelling.reason) == ("work-1", "corrected")
    assert session.works()[1].arguments == {"city": "rome"}
    assert session.works()[1].replaces == "work-1"
    session.completes("In Paris it is sunny.").running("work-2").silence(2000)
    session.completes("In Rome it is warm.", "work-2").silence(6000)
    assert session.spoken()[-1] == "In Rome it is warm."
    assert not any("Paris" in s for s in session.spoken())
    assert session.ends_of("work-1") == ["work.completed"], "that it was done is its honest end"


def test_a_correction_takes_back_a_result_that_was_not_told_yet() -> None:
    session = begun().running()
    session.speak(480)
    session.completes("In Paris it is sunny.")
    session.transcript = "I mean Rome."
    session.speak(480).silence(4000)
    assert [u.reason for u in session.data("work.undelivered")] == ["superseded"]
    assert not any("Paris" in s for s in session.spoken())


@pytest.mark.parametrize("words", ["Stop.", "Wait.", "Mhm.", "Tell me a joke."])
def test_speech_over_the_assistant_cancels_no_work(words: str) -> None:
    session = WorkSession(speech_us_per_char=200_000)
    session.silence(960).says(PARIS).silence(960)
    session.says(words).silence(2000)
    assert session.data("work.cancelling") == []
    session.running().completes("In Paris it is sunny.").silence(20_000)
    assert session.ends_of("work-1") == ["work.completed"]
    assert [d.work for d in session.data("work.delivered")] == ["work-1"]


def test_a_device_cancels_one_or_all_once() -> None:
    session = WorkSession()
    for i in range(3):
        session.observe(WorkRequested(query=f"task {i}", route="general"))
    session.observe(WorkCancelRequested(work="work-2"))
    session.observe(WorkCancelRequested(work="work-2"))
    session.observe(WorkCancelRequested())
    assert [c.work for c in session.data("work.cancelling")] == ["work-2", "work-1", "work-3"]


def test_a_work_that_nobody_answers_expires() -> None:
    session = begun()
    session.silence(62_000)
    (expired,) = session.data("work.expired")
    assert (expired.work, expired.reason) == ("work-1", "timed_out")
    session.completes("Too late.").silence(10_000)
    assert session.ends_of("work-1")[0] == "work.expired"
    assert session.spoken()[-1] == "Sorry, that did not work: it took too long."
    session.close()
    assert session.fold.ended


def test_a_cancelled_work_that_nobody_stops_expires_soon() -> None:
    session = begun().running()
    session.observe(WorkCancelRequested())
    session.silence(11_000)
    assert [e.reason for e in session.data("work.expired")] == ["timed_out"]


def test_the_end_of_the_session_ends_every_work() -> None:
    session = begun().running()
    session.close()
    assert [e.reason for e in session.data("work.expired")] == ["closed"]
    assert session.types("session.ended", "work.expired") == ["work.expired", "session.ended"]
    session.completes("Late.")
    assert session.ends_of("work-1") == ["work.expired"]


def test_a_work_ends_by_itself_while_its_session_drains() -> None:
    session = begun().running()
    session.close(ticks=1)
    session.completes("Sunny.").tick(1000).tick(1000)
    assert session.ends_of("work-1") == ["work.completed"]
    assert [u.reason for u in session.data("work.undelivered")] == ["closed"]
    assert session.fold.ended


def test_continuing_gives_the_earlier_result() -> None:
    session = begun().running().completes("In Paris it is sunny.").silence(6000)
    session.says("And what about Berlin?").silence(960)
    second = session.works()[1]
    assert second.arguments == {"city": "berlin"} and second.earlier == "In Paris it is sunny."
    assert second.replaces is None


def test_a_request_that_only_asks_how_far_it_is_begins_no_work() -> None:
    session = begun().running().progress("I have asked two stations.")
    session.observe(WorkRequested(query="How far is it?"))
    assert len(session.works()) == 1
    (refused,) = session.data("delegate.refused")
    assert (refused.reason, refused.work) == ("running", "work-1")
    assert refused.detail == "I have asked two stations."
    session.silence(2000)
    assert session.spoken() == ["Let me check the weather."], "a program reads the answer"


def test_a_model_that_delegates_the_question_has_it_answered_aloud() -> None:
    session = begun().running().progress("I have asked two stations.")
    session.reply = "<delegate>are you done yet</delegate>"
    session.says("So what about the weather thing?").silence(4000)
    assert len(session.works()) == 1
    assert session.spoken() == [
        "Let me check the weather.",
        "I am still working on that. I have asked two stations.",
    ], "and nothing is said to begin"


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (WorkRequested(query="Is it done?", continues="work-1"), "work-1"),
        (WorkRequested(query="Is it done?"), "work-2"),
    ],
)
def test_of_several_works_the_question_is_about_the_named_or_the_newest(
    asked: WorkRequested, named: str
) -> None:
    session = WorkSession()
    for i in (1, 2):
        session.observe(WorkRequested(query=f"task {i}", route="general"))
    session.observe(asked)
    assert [r.work for r in session.data("delegate.refused")] == [named]


@pytest.mark.parametrize(
    "asked",
    [
        WorkRequested(query="Is it done?", route="general"),
        WorkRequested(query="Is it done? Then book a table."),
    ],
)
def test_what_asks_for_more_is_a_work(asked: WorkRequested) -> None:
    session = begun().running()
    session.observe(asked)
    assert len(session.works()) == 2 and session.data("delegate.refused") == []


def test_with_nothing_running_a_question_is_a_work() -> None:
    session = WorkSession()
    session.observe(WorkRequested(query="Is it done?"))
    assert len(session.works()) == 1


def test_a_continuation_by_auto_has_the_earlier_result_and_the_rule_s_arguments() -> None:
    session = begun().running().completes("In Paris it is sunny.").silence(6000)
    session.observe(WorkRequested(query="And what about Berlin?", continues="work-1"))
    second = session.works()[1]
    assert (second.route, second.skill, second.earlier) == ("auto", None, "In Paris it is sunny.")
    assert (second.fits.skill, second.fits.arguments) == ("weather", {"city": "berlin"})
    session.observe(WorkRequested(query="And what about Rome?", continues="work-9"))
    assert [r.reason for r in session.data("delegate.refused")] == ["no_such_work"]


def test_what_continues_an_unfinished_work_knows_how_far_it_is() -> None:
    session = WorkSession()
    session.observe(WorkRequested(query="Find a hotel", route="general"))
    session.running().progress("Two are left.")
    session.observe(WorkRequested(query="Only with breakfast", continues="work-1"))
    assert session.works()[1].earlier == "Find a hotel: not done yet. Two are left."
    session.fails("unavailable")
    session.observe(WorkRequested(query="Try once more", continues="work-1"))
    assert session.works()[2].earlier == "Find a hotel: failed. boom"
