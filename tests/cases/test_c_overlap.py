"""Cases C: speech over the assistant. Buffers of devices (C1, C2, C11) are tested with the device too, echo (C25, C26) with the models."""

from typing import Any

import pytest

from infra.capture.room import Echo
from schemas.base import Kind
from schemas.media import TextInput
from schemas.responses import GenerationCompleted, SpeechCompleted
from tests.support.echo_session import EchoSession
from tests.support.script import Session
from tests.support.works import WorkSession

pytestmark = pytest.mark.case

LONG = "This is the answer to your question. It is somewhat longer than you would think. And so it goes on and on."


def speaking(second: str | None = "mhm", *, reply: str = LONG, **more: Any) -> Session:
    """A session in which the assistant has just begun a long answer; the next turn will be understood as `second`."""

    def said(request: Any) -> str | None:
        return "what is this about" if request.data.turn == "turn-1" else second

    s = Session(transcript=said, reply=reply, **more).silence(480).speak(960).silence(1920)
    assert s.types("response.started") == ["response.started"]
    return s


def verdicts(s: Session) -> list[tuple[str, str | None]]:
    return [(d.verdict, d.kind) for d in s.data("overlap.resolved")]


def test_c1_an_interruption_cancels_at_once_and_nothing_of_it_starts_again() -> None:
    s = speaking("no that is wrong").speak(1344)
    began = s.data("overlap.started")[0].start_us
    assert s.of("floor.paused")[0].mediatime - began <= 232_000, "it talks on over the user"
    assert s.of("response.cancelled")[0].mediatime - began <= 1_232_000
    s.silence(4000).close()
    assert not [
        e for e in s.events if e.type == "response.started" and e.data.response == "response-1"
    ][1:]


def test_c2_a_close_stops_also_what_nobody_may_interrupt() -> None:
    s = Session(reply=LONG, policy={"overlap.interruptible": False})
    s.silence(480).speak(960).silence(1920).close()
    assert [d.reason for d in s.data("response.cancelled")] == ["session closed"]
    assert s.fold.ended and s.playout is not None and s.playout.state == "cut"


def test_c4_late_speech_of_a_stopped_response_counts_for_no_other() -> None:
    s = speaking("stop that, what is the time")
    late = [e for e in s.of("speech.requested") if e.data.response == "response-1"]
    s.speak(1344).silence(1440)
    assert [d.response for d in s.data("response.cancelled")] == ["response-1"]
    for request in late:
        for outcome in s.outcomes(request):
            s.feed(outcome._replace(id=f"late-{outcome.id}"))
    s.silence(12_000)
    (ended,) = s.data("response.ended")
    assert (ended.response, ended.heard_text) == ("response-2", LONG)
    assert ended.heard_us == len(LONG.replace(". ", ".")) * s.speech_us_per_char
    times = [e.mediatime for e in s.events if e.mediatime is not None and e.kind is Kind.DECISION]
    assert times == sorted(times)


def test_c5_an_answer_that_comes_while_the_user_speaks_is_held() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(480).speak(480)
    s.answer_kind("generate")
    assert not s.of("response.started"), "the assistant began over the user"
    s.silence(640)
    s.answer_kind("generate")
    s.silence(6000)
    assert [d.reason for d in s.data("response.cancelled")] == ["superseded"]
    assert len(s.of("response.started")) == 1


def test_c7_a_backchannel_resumes_where_it_paused() -> None:
    s = speaking("Mhm.").speak(320).silence(1000)
    assert verdicts(s) == [("backchannel", None)]
    assert s.types("floor.") == ["floor.paused", "floor.resumed"]
    s.silence(9000)
    assert s.data("response.ended")[0].heard_text == LONG and len(s.of("response.requested")) == 1


def test_c8_an_empty_transcript_interrupts_nothing() -> None:
    s = speaking("").speak(300).silence(1000)
    assert verdicts(s) == [("noise", None)] and not s.of("response.cancelled")


def test_c10_without_any_evidence_playback_goes_on_in_time() -> None:
    s = speaking(None).speak(300).silence(2500)
    paused, resumed = s.of("floor.paused")[0], s.of("floor.resumed")[0]
    assert resumed.mediatime - paused.mediatime <= 2_000_000
    assert not s.of("response.cancelled")


def test_c10_a_slow_transcript_still_decides_after_playback_went_on() -> None:
    s = (
        speaking("stop", hold=("transcript",))
        if False
        else Session(
            transcript=lambda r: "what is it" if r.data.turn == "turn-1" else "stop", reply=LONG
        )
        .silence(480)
        .speak(960)
        .silence(1920)
    )
    s.held = {"transcript"}
    s.speak(300).silence(2500)
    assert s.types("floor.") == ["floor.paused", "floor.resumed"] and not verdicts(s)
    s.answer_kind("transcript")
    assert verdicts(s) == [("interruption", "stop")] and len(s.of("response.cancelled")) == 1


def test_c13_a_pause_does_not_leak_into_the_next_response() -> None:
    s = speaking("no, tell me about dogs").speak(704)
    assert s.types("floor.") == ["floor.paused"]
    s.silence(1440)
    assert [d.response for d in s.data("response.cancelled")] == ["response-1"]
    s.silence(15_000)
    assert s.types("floor.") == ["floor.paused"]
    assert [d.response for d in s.data("response.ended")] == ["response-2"]


def test_c14_the_state_follows_the_acknowledged_playback() -> None:
    s = Session(hold=("speak",)).silence(480).speak(640).silence(4000)
    assert not s.of("response.started"), "nothing can be heard yet"
    s.answer_kind("speak")
    assert s.of("response.started")


def test_c16_acknowledgements_do_not_add_up() -> None:
    s = speaking("ok")
    for _ in range(3):
        s.speak(300).silence(900)
    assert {v for v, _ in verdicts(s)} == {"backchannel"} and not s.of("response.cancelled")


def test_c17_a_single_ok_does_not_interrupt() -> None:
    s = speaking("ok").speak(600).silence(1000)
    assert verdicts(s) == [("backchannel", None)]


def test_c19_words_of_unspaced_scripts_are_counted() -> None:
    s = speaking("等一下我有问题").speak(500).silence(1000)
    assert verdicts(s)[0][0] == "interruption"


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ("stop", ("interruption", "stop")),
        ("wait, listen", ("interruption", "stop")),
        ("no, in Rome", ("interruption", "repair")),
        ("yeah", ("backchannel", None)),
        ("what about tomorrow", ("interruption", "redirect")),
    ],
)
def test_c20_intent_words_interrupt_however_short(
    said: str, verdict: tuple[str, str | None]
) -> None:
    assert verdicts(speaking(said).speak(350).silence(900)) == [verdict]


def test_c20_an_acknowledgement_that_answers_a_question_is_an_answer() -> None:
    s = speaking(
        "yes",
        reply="Do you want to hear more about it? Or shall I go on with something quite different now, my friend?",
    )
    s.silence(1000).speak(350).silence(900)
    assert verdicts(s) == [("interruption", "redirect")] and len(s.of("response.requested")) == 2


def test_c22_an_interruption_right_after_the_start_passes() -> None:
    s = (
        Session(transcript=lambda r: "stop" if r.data.turn == "turn-2" else "hello", reply=LONG)
        .silence(480)
        .speak(640)
    )
    while not s.of("response.started"):
        s.silence(96)
    s.silence(192).speak(1344)
    assert [d.verdict for d in s.data("overlap.resolved")] == ["interruption"]


def test_c23_the_guard_is_armed_again_for_what_follows_a_work() -> None:
    s = WorkSession(reply="Let me look. <delegate>find a hotel</delegate>")
    s.silence(480).says("Find me a hotel.").silence(3008)
    s.running().completes("There is a room at the Ritz, and one at the Savoy, both for tonight.")
    s.silence(2496)
    assert len(s.of("response.started")) == 2
    s.transcript = "wait, which one is cheaper"
    s.speak(960).silence(960)
    assert verdicts(s) == [("interruption", "stop")]
    assert [d.response for d in s.data("response.cancelled")] == ["response-2"]


def in_a_room(level_db: float, delay_ms: int, second: str = LONG[:36], **more: Any) -> EchoSession:
    """The assistant has just begun a long answer into a room that gives it back; later turns would be understood as `second`."""

    def said(request: Any) -> str:
        return "what is this about" if request.data.turn == "turn-1" else second

    echo = Echo(level_db, delay_ms * 1000)
    s = EchoSession(echo, transcript=said, reply=LONG, **more)
    s.silence(480).speak(1152).silence(1440)
    assert s.of("response.started")
    return s


@pytest.mark.parametrize("delay_ms", [40, 150, 400])
def test_c25_the_first_echo_neither_interrupts_nor_is_taken_as_said(delay_ms: int) -> None:
    s = in_a_room(-20, delay_ms).silence(3000)
    assert not s.of("response.cancelled") and not s.of("floor.paused")
    assert [t.text for t in s.data("turn.ended")] == ["what is this about"]
    echoes = [w.echo for w in s.data("perception.window") if w.echo is not None]
    assert len(echoes) > 15 and max(echoes) > 0.9, "nothing of it was heard at all"


@pytest.mark.parametrize(("level_db", "delay_ms"), [(-6, 400), (-12, 150), (-20, 40)])
def test_c26_the_assistant_does_not_answer_itself_for_ever(level_db: int, delay_ms: int) -> None:
    s = in_a_room(level_db, delay_ms).silence(12_000)
    assert [r.heard_text for r in s.data("response.ended")] == [LONG]
    assert len(s.of("response.requested")) == 1 and not s.of("response.cancelled")
    loop = in_a_room(level_db, delay_ms, guarded=False).silence(12_000)
    assert len(loop.of("response.cancelled")) > 5, "there is no loop that had to be broken"


@pytest.mark.parametrize(("level_db", "delay_ms"), [(-6, 400), (-12, 150), (-20, 40)])
def test_c26_a_user_who_speaks_over_the_echo_still_interrupts(level_db: int, delay_ms: int) -> None:
    s = in_a_room(level_db, delay_ms, "no that is wrong").silence(1440)
    assert not s.of("overlap.started")
    began = s.at
    s.speak(1344).silence(1440)
    assert verdicts(s)[0][0] == "interruption" and s.of("response.cancelled")
    paused = s.of("floor.paused")[0].mediatime
    assert paused is not None and paused - began <= 600_000, "it talks on over the user"


def test_c28_when_both_begin_the_user_has_the_floor() -> None:
    s = speaking("and what is more")
    s.silence(0).speak(1500).silence(600)
    assert verdicts(s)[0][0] == "interruption"
    started = [e.mediatime for e in s.of("response.started")]
    spoken = [(d.start_us, d.end_us) for d in s.data("speech.stopped")]
    assert not [t for t in started for a, b in spoken if a < t < b]


def test_c31_a_response_cut_before_its_first_word_leaves_nothing_behind() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(600).speak(640).silence(600)
    assert [d.heard_text for d in s.data("response.cancelled")] == [""]
    messages = s.data("response.requested")[-1].messages
    assert [m.role for m in messages] == ["system", "user", "user"]


def test_c32_a_burst_of_90_ms_is_nothing() -> None:
    s = speaking().speak(64).silence(2000)
    assert not verdicts(s) and not s.of("floor.paused")


def test_c32_a_burst_of_150_ms_pauses_nothing_and_ends_as_noise() -> None:
    s = speaking("").speak(160).silence(2000)
    assert verdicts(s) == [("noise", None)] and not s.of("floor.paused")


def test_c34_a_stop_with_nothing_to_stop_is_no_error() -> None:
    s = Session(transcript="stop").silence(480).speak(480).silence(900)
    assert not verdicts(s) and not s.of("response.cancelled") and len(s.data("turn.ended")) == 1


def test_c35_outcomes_of_a_cancelled_response_are_never_spoken() -> None:
    s = Session(hold=("generate", "speak"), reply=LONG).silence(480).speak(640).silence(600)
    first = next(iter(s.open.values()))
    s.speak(640).silence(600)
    assert s.data("response.cancelled")
    s.answer(first)
    s.silence(600)
    assert not [d for d in s.data("speech.requested") if d.response == "response-1"]


def test_c37_six_interruptions_in_a_second_leave_nothing_open() -> None:
    s = speaking("hello")
    for _ in range(6):
        s.observe(TextInput(text="again"))
    s.silence(9000).close()
    requested = {d.response for d in s.data("response.requested")}
    ended = [d.response for e in ("ended", "cancelled", "failed") for d in s.data(f"response.{e}")]
    assert sorted(ended) == sorted(requested) and s.fold.ended


def test_c38_a_gap_in_the_synthesis_is_no_second_response() -> None:
    s = (
        Session(reply="One sentence is here now. Another sentence comes later.", hold=("speak",))
        .silence(480)
        .speak(640)
        .silence(600)
    )
    first, second = s.open.values()
    s.answer(first)
    s.silence(3000)
    s.answer(second)
    s.silence(4000)
    assert len(s.of("response.started")) == 1 and len(s.of("response.ended")) == 1


def test_a_response_that_yields_no_audio_is_settled() -> None:
    """F19: a synthesis that returns nothing must not leave the assistant speaking."""
    s = Session(hold=("speak",)).silence(480).speak(640).silence(600)
    (request,) = s.open.values()
    s.feed(s.outcome(request, SpeechCompleted(response="response-1", index=0, duration_us=0)))
    assert [d.reason for d in s.data("response.failed")] == ["no speech came"]
    s.silence(480).speak(640).silence(900)
    assert len(s.of("response.requested")) == 2


def test_a_generation_without_text_is_settled() -> None:
    s = Session(hold=("generate",)).silence(480).speak(640).silence(600)
    (request,) = s.open.values()
    data = GenerationCompleted(response="response-1", text="", tokens=0, finish_reason="stop")
    s.feed(s.outcome(request, data))
    assert [d.reason for d in s.data("response.failed")] == ["there was nothing to say"]


def test_a_stop_while_the_assistant_thinks_wants_no_answer() -> None:
    s = Session(
        transcript=lambda r: "tell me a story" if r.data.turn == "turn-1" else "wait, stop",
        hold=("generate",),
    )
    s.silence(480).speak(640).silence(600).speak(640).silence(3000)
    assert [d.reason for d in s.data("response.cancelled")] == ["superseded"]
    assert len(s.of("response.requested")) == 1


def test_an_uninterruptible_response_is_finished_and_the_interruption_answered_after() -> None:
    s = (
        speaking("no, the other one", policy={"profile": "uninterruptible"})
        .speak(900)
        .silence(12_000)
    )
    assert verdicts(s)[0][0] == "interruption" and not s.of("response.cancelled")
    assert s.data("response.ended")[0].heard_text == LONG
    assert s.data("response.requested")[1].messages[-1].content == "no, the other one"


def test_a_profile_makes_the_assistant_hard_to_interrupt() -> None:
    s = speaking("mhm", policy={"profile": "hard_to_interrupt"}).speak(900).silence(1000)
    assert not s.of("response.cancelled") and verdicts(s) == [("backchannel", None)]
