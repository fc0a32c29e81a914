"""Cases E: faults of background tasks in other systems. C29 (a slow task delays an interruption) and D14 (words beside a tool
call are lost) belong to the same mechanism.

What a running executor may do (raise, hang, die, answer twice or after a cancel) is in `tests/harness`; here is the conversation.
"""

import pytest

from schemas.responses import ResponseText
from schemas.work import WorkCancelRequested, WorkRequested
from tests.support.works import WorkSession

pytestmark = [pytest.mark.case, pytest.mark.pure]

PARIS = "What is the weather in Paris?"


def begun() -> WorkSession:
    session = WorkSession()
    session.silence(960).says(PARIS).silence(2016)
    return session.running()


def prompts(session: WorkSession) -> list[str]:
    return ["\n".join(m.content for m in r.messages) for r in session.data("response.requested")]


def test_e1_a_finished_result_is_known_although_its_telling_was_interrupted() -> None:
    session = begun().completes("In Paris it is sunny, with a little wind from the west.")
    session.silence(1920).says("Stop.").silence(2016)
    session.says("How are you?").silence(3000)
    assert "weather(city=paris)" in prompts(session)[-1] and "sunny" in prompts(session)[-1]
    assert len(session.works()) == 1


def test_e2_a_running_work_is_in_the_prompt_and_never_in_the_history() -> None:
    session = begun()
    session.says("How are you?").silence(3000)
    assert "do not start it again: weather(city=paris)" in prompts(session)[-1]
    session.says(PARIS).silence(3000)
    assert len(session.works()) == 1, "asked again, it is not begun again"
    session.completes("In Paris it is sunny.").silence(6000)
    session.says("And you?").silence(3000)
    assert "do not start it again" not in prompts(session)[-1]
    history = session.fold.states["respond"].history
    assert not any("background" in item.content for item in history)


def test_e4_cancelled_before_it_ran_it_ends_once_and_late_results_change_nothing() -> None:
    session = WorkSession()
    session.observe(WorkRequested(skill="weather", arguments={"city": "oslo"}))
    session.observe(WorkCancelRequested(work="work-1"))
    session.cancels()
    session.running().completes("Sunny.").fails()
    assert session.ends_of("work-1") == ["work.cancelled"]
    session.silence(6000)
    assert session.spoken() == []


@pytest.mark.parametrize("reason", ["error", "timed_out", "lost"])
def test_e4_a_handler_that_raises_or_never_settles_has_one_end(reason: str) -> None:
    session = begun().fails(reason).completes("Late.").silence(6000)
    assert session.ends_of("work-1") == ["work.failed"]
    assert session.spoken()[-1].startswith("Sorry")


def test_e5_a_handler_that_never_answers_is_an_error_result() -> None:
    session = begun().silence(70_000)
    assert session.ends_of("work-1") == ["work.expired"]
    assert session.spoken()[-1] == "Sorry, that did not work: it took too long."


def test_e7_results_at_the_same_time_are_one_reply() -> None:
    session = WorkSession()
    session.silence(960)
    for city in ("oslo", "rome"):
        session.observe(WorkRequested(skill="weather", arguments={"city": city}))
    session.speak(480)
    session.completes("Oslo is cold.", "work-1").completes("Rome is warm.", "work-2")
    session.says("How are you?").silence(9000)
    assert session.spoken() == [
        "This is the answer to your question.",
        "Oslo is cold. Rome is warm.",
    ]
    assert len(session.of("work.delivering")) == 1


def test_e8_the_answer_comes_first_and_the_result_once_after_it() -> None:
    session = begun()
    session.transcript = "Tell me something about cats."
    session.speak(480).completes("In Paris it is sunny.").speak(960).silence(20_000)
    assert session.spoken()[1:] == ["This is the answer to your question.", "In Paris it is sunny."]


def test_e10_a_cancel_is_really_issued_and_what_comes_later_is_not_told() -> None:
    session = begun()
    session.says("Please cancel that.").silence(2016)
    assert [c.work for c in session.data("work.cancelling")] == ["work-1"]
    assert session.spoken()[-1] == "Okay, I cancelled that."
    session.completes("In Paris it is sunny.").silence(9000)
    assert session.spoken()[-1] == "Okay, I cancelled that."


def test_e11_no_result_starts_over_the_user() -> None:
    session = begun()
    session.transcript = "I will tell you a long story."
    session.speak(2016).completes("In Paris it is sunny.").speak(4032).silence(9000)
    told = session.of("work.delivering")[0].mediatime
    ended = session.of("turn.ended")[1].mediatime
    assert told > ended
    voiced = [(e.data.start_us, e.data.end_us) for e in session.of("speech.stopped")]
    for started in session.of("response.started"):
        assert not any(start <= started.mediatime < end for start, end in voiced)


def test_e13_no_work_is_taken_for_silence() -> None:
    session = begun()
    session.transcript = ""
    for _ in range(10):
        session.speak(192).silence(2976)
    assert not session.types("session.timed_out")
    assert session.spoken() == ["Let me check the weather."], "no prompt while a work runs"


def test_e14_an_interruption_drops_no_result_that_waits() -> None:
    session = begun()
    session.says("Tell me about cats.", then=480)
    session.completes("In Paris it is sunny.")
    session.says("No, about dogs.").silence(12_000)
    assert [d.work for d in session.data("work.delivered")] == ["work-1"]
    assert session.spoken()[-1] == "In Paris it is sunny."


def test_e16_a_tool_call_that_breaks_off_is_not_executed() -> None:
    session = WorkSession(hold=("generate",))
    session.silence(960).says("Pay my bill.")
    request = session.of("response.requested")[0]
    part = ResponseText(
        response="response-1", text='Yes.<delegate>{"skill": "pay", "arguments": {"sum": 1'
    )
    session.feed(session.outcome(request, part))
    from schemas.responses import GenerationFailed

    session.feed(session.outcome(request, GenerationFailed(response="response-1", reason="error")))
    session.silence(3000)
    assert session.works() == []
    assert [m.reason for m in session.data("delegate.malformed")] == ["interrupted"]


def test_e17_every_one_of_several_calls_is_kept() -> None:
    spans = "".join(
        f'<delegate>{{"skill": "s{i}", "arguments": {{}}}}</delegate>' for i in range(3)
    )
    session = WorkSession(reply=f"I will look.{spans}")
    session.silence(960).says("Three things, please.").silence(3000)
    assert [w.skill for w in session.works()] == ["s0", "s1", "s2"]


def test_e20_a_reply_that_only_delegates_says_a_holding_sentence() -> None:
    session = WorkSession(reply="<delegate>find a hotel</delegate>")
    session.silence(960).says("Find me a hotel.").silence(4000)
    assert len(session.works()) == 1
    assert session.spoken() == ["Let me check that."]
    assert session.fold.states["respond"].active is None


def test_c29_an_interruption_waits_for_no_work() -> None:
    session = begun()
    session.reply = "A long answer that goes on and on, about many things that nobody asked for."
    session.says("Tell me about cats.")
    session.transcript = "Stop."
    at = session.at
    session.speak(960).silence(480)
    (cancelled,) = session.of("response.cancelled")
    assert cancelled.mediatime - at < 1_344_000
    assert session.fold.states["dispatch"].book.running


def test_d14_words_beside_a_tool_call_are_kept_in_the_history() -> None:
    session = WorkSession(reply="Let me look.<delegate>find a hotel</delegate>")
    session.silence(960).says("Find me a hotel.").silence(4000)
    session.says("Thanks.").silence(4000)
    assert "Let me look." in prompts(session)[-1]
    assert "<delegate>" not in prompts(session)[-1]
