"""Cases B: when a turn ends. Each test is a row of the list of faults seen in other systems, reduced to what happens.

Where a row speaks of a part that others have and we do not (a gate between two models, a detector that is updated in place), the test
shows why its fault cannot be here.
"""

import itertools
from typing import Any

import pytest

from schemas.media import InputCommitted, InputMuted, TextInput
from schemas.policy import Policy
from schemas.registry import REQUESTS
from schemas.session import SessionUpdated
from schemas.transcription import EndpointFailed, TranscriptFinal, TranscriptOffered
from tests.support.script import Session
from tests.support.works import WorkSession

pytestmark = pytest.mark.case

ANSWERED = {"endpoint", "transcript", "generate", "speak"}


def ends(session: Session) -> list[Any]:
    return session.data("turn.ended")


def test_b1_the_final_transcript_belongs_to_the_turn_that_it_was_said_in() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(480).silence(600)
    assert not ends(s), "the turn ended without its text"
    s.answer_kind("transcript")
    assert [e.text for e in ends(s)] == ["hello there"]


def test_b2_a_late_final_between_turns_does_not_end_the_next() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(480).silence(5500)
    assert [e.reason for e in ends(s)] == ["watchdog"]
    s.speak(480)
    s.answer_kind("transcript")
    s.speak(480)
    assert len(ends(s)) == 1 and s.data("turn.amended")[0].turn == "turn-1"
    s.silence(600)
    s.answer_kind("transcript")
    assert [e.text for e in ends(s)] == ["", "hello there"]


def test_b4_a_final_of_a_pause_does_not_end_the_turn_with_its_tail_in_flight() -> None:
    texts = iter(["first part", "first part and the tail"])
    s = (
        Session(hold=("transcript",), transcript=lambda r: next(texts))
        .silence(480)
        .speak(480)
        .silence(256)
    )
    s.answer_kind("transcript")
    s.speak(480).silence(480)
    assert not ends(s)
    s.answer_kind("transcript")
    assert [e.text for e in ends(s)] == ["first part and the tail"]


def test_b5_two_stretches_of_speech_in_one_turn_are_one_request() -> None:
    s = Session(endpoint=lambda r: 0.1 if r.data.audio.end_sample < 30_000 else 0.9)
    s.silence(480).speak(480).silence(640).speak(640).silence(960)
    assert len(ends(s)) == 1 and len(s.of("response.requested")) == 1


def test_b5_fragments_that_a_device_offers_while_the_voice_is_active_are_one_request() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(480)
    s.observe(TranscriptOffered(text="I want")).speak(320)
    s.observe(TranscriptOffered(text="two tickets")).silence(2016)
    assert [e.text for e in ends(s)] == ["I want two tickets"]
    assert len(s.of("response.requested")) == 1


def test_b7_words_without_voice_activity_wait_for_the_next_ones() -> None:
    s = Session().silence(480).observe(TranscriptOffered(text="two")).silence(320)
    s.observe(TranscriptOffered(text="tickets")).silence(480)
    assert not ends(s), "the second words did not start the wait anew"
    s.silence(480)
    assert [(e.text, e.reason) for e in ends(s)] == [("two tickets", "transcript")]
    assert len(s.of("response.requested")) == 1


def test_b7_an_interim_text_is_waited_out() -> None:
    s = Session().silence(480).observe(TranscriptOffered(text="two tick", final=False)).silence(960)
    assert not ends(s)
    s.observe(TranscriptOffered(text="two tickets")).silence(960)
    assert [e.text for e in ends(s)] == ["two tickets"]


def test_b8_a_transcript_after_its_deadline_ends_the_turn_at_once() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(480).silence(1248)
    assert s.types("request.timed_out") == ["request.timed_out"] and not ends(s)
    before = s.fold.now
    s.answer_kind("transcript")
    assert len(ends(s)) == 1 and s.of("turn.ended")[0].mediatime == before


def test_b10_a_final_before_the_verdict_ends_the_turn_with_the_verdict() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(480)
    assert not ends(s)
    before = s.fold.now
    s.answer_kind("endpoint")
    assert len(ends(s)) == 1 and s.of("turn.ended")[0].mediatime == before


def test_b11_a_forced_end_leaves_nothing_that_ends_again() -> None:
    s = Session().silence(480).speak(960).observe(InputCommitted()).observe(InputMuted())
    s.silence(3000)
    assert [e.reason for e in ends(s)] == ["committed"]


def test_b13_several_complete_pauses_in_one_turn_give_one_reply() -> None:
    s = Session(hold=("transcript",)).silence(480)
    for _ in range(3):
        s.speak(320).silence(288)
    s.silence(640)
    s.answer_kind("transcript")
    s.silence(3000)
    assert len(s.of("response.requested")) == 1


@pytest.mark.parametrize("at_ms", [4_992, 5_000, 5_024, 5_056])
def test_b14_a_prompt_and_an_answer_at_the_same_moment_are_one_response(at_ms: int) -> None:
    s = Session(policy={"idle.prompt_after": "5s"}, hold=("speak",))
    s.silence(4992).tick(at_ms - 4992).observe(TextInput(text="are you there?"))
    s.answer_kind("speak")
    s.silence(4000)
    assert len(s.of("floor.requested")) == (at_ms >= 5_000)
    started = [d.response for d in s.data("response.started")]
    assert started == [s.data("response.requested")[0].response]


def test_b16_a_held_turn_ends_once_and_only_when_the_model_has_confirmed_it() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(480)
    assert s.types("speech.stopped", "turn.ended") == ["speech.stopped"]
    s.answer_kind("endpoint")
    s.silence(3000)
    assert s.types("speech.stopped", "turn.") == ["turn.started", "speech.stopped", "turn.ended"]


def test_b17_a_reply_that_speaks_and_delegates_ends_and_its_result_is_told() -> None:
    s = WorkSession(reply="Let me look. <delegate>find a hotel</delegate>")
    s.silence(480).says("Find me a hotel.").silence(4000)
    assert len(ends(s)) == 1 and len(s.of("response.ended")) == 1
    s.running().completes("The Ritz has a room.").silence(6000)
    assert s.spoken() == ["Let me look.", "The Ritz has a room."]
    assert len(s.data("work.delivered")) == 1 and len(ends(s)) == 1


def test_b19_a_late_prediction_of_an_earlier_pause_is_dropped() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(288)
    first = next(r for r in s.open.values() if REQUESTS[r.type] == "endpoint")
    s.speak(480).silence(320)
    s.answer(first)
    s.silence(160)
    assert not ends(s), "the answer about the first pause ended the second"
    assert first.id in {d.request for d in s.data("request.superseded")}


def test_b20_speech_that_resumes_while_the_end_is_near_keeps_the_turn_open() -> None:
    s = Session().silence(480).speak(480).silence(256).speak(480)
    assert not ends(s) and len(s.of("turn.started")) == 1
    s.silence(960)
    assert len(ends(s)) == 1


def test_b22_without_any_prediction_the_turn_ends_and_says_so() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(960)
    assert [(e.reason, e.probability) for e in ends(s)] == [("no_prediction", None)]


def test_b22_a_failed_prediction_ends_it_at_the_minimum_silence() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(288)
    request = next(r for r in s.open.values() if REQUESTS[r.type] == "endpoint")
    s.feed(s.outcome(request, EndpointFailed(turn="turn-1", reason="error")))
    s.silence(128)
    assert [e.reason for e in ends(s)] == ["no_prediction"]
    assert s.of("turn.ended")[0].mediatime - ends(s)[0].end_us <= 320_000 + 32_000


def test_b23_a_commit_without_audio_returns_at_once() -> None:
    s = Session().silence(480).observe(InputCommitted())
    assert s.types("turn.") == [] and s.types("response.") == []
    s.speak(480).silence(960)
    assert len(ends(s)) == 1


def test_b25_the_turn_is_answered_when_it_ends_not_one_turn_later() -> None:
    s = Session().silence(480).speak(480).silence(960)
    assert s.data("response.requested")[0].turn == ends(s)[0].turn == "turn-1"


def test_b26_what_a_transcript_says_of_its_language_changes_nothing() -> None:
    def said(request: Any) -> None:
        return None

    s = Session(transcript=said, hold=("transcript",)).silence(480)
    for language in ("multi", "zh", ""):
        s.speak(320).silence(400)
        (request,) = [r for r in s.open.values() if REQUESTS[r.type] == "transcript"]
        s.open.clear()
        s.feed(
            s.outcome(
                request, TranscriptFinal(turn=request.data.turn, text="ok", language=language)
            )
        )
        s.silence(3000)
    assert {r.language for r in s.data("transcript.requested")} == {"en"}
    assert s.fold.states["interrupt"].language == s.fold.states["respond"].language == "en"


def test_b28_the_turn_starts_where_its_first_speech_did() -> None:
    s = Session(endpoint=lambda r: 0.1 if r.data.audio.end_sample < 30_000 else 0.9)
    s.silence(480).speak(480).silence(640).speak(480).silence(960)
    assert [e.start_us for e in ends(s)] == [480_000]


def test_b29_a_thinking_pause_is_waited_out() -> None:
    s = Session(endpoint=lambda r: 0.2 if r.data.audio.end_sample < 35_000 else 0.9)
    s.silence(480).speak(640).silence(800).speak(640).silence(960)
    assert (
        len(s.of("turn.held")) == 1 and len(ends(s)) == 1 and len(s.of("response.requested")) == 1
    )


def test_b29_but_not_for_ever() -> None:
    s = Session(endpoint=0.1).silence(480).speak(640).silence(3300)
    assert [e.reason for e in ends(s)] == ["hold_expired"]


def test_b31_each_pause_supersedes_what_was_asked_about_the_one_before() -> None:
    s = Session(hold=("endpoint", "transcript")).silence(480)
    for _ in range(3):
        s.speak(320).silence(240)
    asked = [e.id for e in s.events if e.type in ("endpoint.requested", "transcript.requested")]
    assert len(asked) == 6 and {d.request for d in s.data("request.superseded")} == set(asked[:4])


def test_b32_hops_that_the_model_did_not_judge_are_no_speech_however_many() -> None:
    s = Session()
    s.hops(12 * 32 + 96, None).silence(960)
    assert not s.types("speech.", "turn.")
    s.speak(480).silence(960)
    assert len(ends(s)) == 1 and ends(s)[0].start_us == s.data("speech.started")[0].start_us


def test_b34_a_failure_of_something_else_changes_no_request_and_no_policy() -> None:
    s = Session(hold=("endpoint",)).silence(480).speak(480).silence(288)
    request = next(r for r in s.open.values() if REQUESTS[r.type] == "endpoint")
    s.observe(SessionUpdated(policy={"turn.end_silence": 640_000}))
    stranger = request._replace(id="another-request")
    s.feed(s.outcome(stranger, EndpointFailed(turn="turn-1", reason="error")))
    s.silence(160)
    assert not ends(s)
    s.answer(request)
    assert not ends(s), "the update of the policy was lost"
    s.silence(320)
    assert [e.reason for e in ends(s)] == ["complete"]
    assert s.fold.states["turn"].policy.turn.end_silence == 640_000
    assert Policy().turn.end_silence == 320_000


def test_a22_words_that_voice_activity_missed_are_a_turn_and_a_sign_of_life() -> None:
    s = Session(policy={"idle.away_after": "3s"}).silence(2016)
    s.observe(TranscriptOffered(text="yes")).silence(1440)
    assert [d.by for d in s.data("turn.started")] == ["transcript"]
    assert [(e.text, e.reason) for e in ends(s)] == [("yes", "transcript")]
    assert len(s.of("response.requested")) == 1 and not s.of("user.away")
    s.silence(12_000)
    assert len(s.of("user.away")) == 1
    s.observe(TranscriptOffered(text="hello"))
    assert len(s.of("user.returned")) == 1


def test_a22_an_empty_transcript_ends_the_turn_without_an_answer() -> None:
    s = Session(transcript="").silence(480).speak(320).silence(3000)
    assert [e.text for e in ends(s)] == [""] and not s.of("response.requested")


def test_a23_speech_without_end_is_cut_into_turns() -> None:
    s = Session().silence(480).speak(130_000).silence(1000)
    assert [e.reason for e in ends(s)][:2] == ["longest", "longest"]
    starts = [e.start_us for e in ends(s)]
    assert all(b > a for a, b in itertools.pairwise(starts)) and len(ends(s)) == 3


def test_a25_short_speech_is_heard_before_a_second_has_passed() -> None:
    s = Session().speak(576).silence(480)
    assert len(ends(s)) == 1 and s.of("turn.ended")[0].mediatime < 1_100_000


def test_turns_keep_the_words_of_a_transcript_that_failed_later() -> None:
    s = Session(hold=("transcript",)).silence(480).speak(480).silence(480)
    request = next(r for r in s.open.values() if REQUESTS[r.type] == "transcript")
    s.feed(s.outcome(request, TranscriptFinal(turn="turn-1", text="kept")))
    assert [e.text for e in ends(s)] == ["kept"]
