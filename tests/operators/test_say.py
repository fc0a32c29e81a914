"""Proactive speech: what somebody outside wants said gets the floor at an eligible moment, never over the user, once."""

from typing import Any

import pytest

from schemas.floor import SayRequested
from schemas.media import TextInput
from tests.support.script import Session

pytestmark = pytest.mark.pure


def say(name: str, text: str, **more: Any) -> SayRequested:
    return SayRequested(request=name, text=text, **more)


def started(s: Session) -> list[int]:
    return [e.mediatime or 0 for e in s.of("response.started")]


def test_it_waits_for_a_silence_that_grows_shorter() -> None:
    s = Session().silence(480).speak(640).silence(640)
    s.observe(say("a", "The taxi is here."))
    s.silence(12_000)
    _answer, told = s.data("response.ended")
    assert told.heard_text == "The taxi is here."
    quiet = s.of("response.ended")[0].mediatime or 0
    asked = s.of("floor.requested")[0].mediatime or 0
    assert 250_000 <= asked - quiet <= 850_000, "the answer to the user went first"
    assert s.data("response.prepared")[0].requests == ("say:a",)


def test_it_never_begins_over_the_user_even_when_urgent() -> None:
    s = Session().silence(480).speak(640).observe(say("a", "Fire!", urgency="high"))
    s.speak(960)
    assert not s.of("floor.requested")
    s.silence(640)
    assert not started(s) or started(s)[0] >= s.of("turn.ended")[0].mediatime
    s.silence(9000)
    assert [d.heard_text for d in s.data("response.ended")][-1] == "Fire!"


def test_urgent_ones_wait_for_no_silence_and_go_first() -> None:
    s = Session().silence(96).observe(say("a", "Later.")).observe(say("b", "Now.", urgency="high"))
    asked = s.of("floor.requested")
    assert [e.data.request for e in asked] == ["say:b"] and asked[0].mediatime == 96_000
    s.silence(6000)
    assert [d.heard_text for d in s.data("response.ended")] == ["Now.", "Later."]


def test_a_name_is_said_once() -> None:
    s = Session().silence(96).observe(say("a", "Once.")).observe(say("a", "Once."))
    s.silence(4000).observe(say("a", "Once.")).silence(4000)
    assert len(s.of("response.started")) == 1


def test_what_nobody_heard_is_said_again_and_given_up_in_the_end() -> None:
    policy = {"floor.tries": 2, "floor.silence": "300ms"}
    s = Session(hold=("speak", "generate"), policy=policy).silence(96).observe(say("a", "News."))
    for _ in range(2):
        s.silence(960)
        s.observe(TextInput(text="something else"))
        s.answer_kind("generate")
        for kind in ("speak", "speak"):
            s.answer_kind(kind)
        s.silence(4000)
    assert len([d for d in s.data("floor.requested") if d.request == "say:a"]) == 2
    assert [(d.request, d.reason) for d in s.data("floor.withdrawn")] == [("say:a", "not heard")]


def test_stale_superfluous_empty_and_late_ones_are_withdrawn_with_their_reason() -> None:
    policy = {"floor.freshness": "2s", "floor.most": 2}
    s = Session(policy=policy).silence(480).speak(480)
    s.observe(say("empty", " "))
    for name in "abc":
        s.observe(say(name, f"{name}."))
    s.speak(2496)
    s.observe(say("d", "d.")).close()
    s.observe(say("e", "e."))
    assert [(d.request, d.reason) for d in s.data("floor.withdrawn")] == [
        ("say:empty", "nothing to say"),
        ("say:a", "too many wait"),
        ("say:b", "stale"),
        ("say:c", "stale"),
        ("say:d", "closed"),
    ]
    assert not s.of("floor.requested")


def test_what_must_be_heard_is_finished_and_the_user_answered_after() -> None:
    s = Session(transcript="no, stop that").silence(960)
    s.observe(say("a", "This call is recorded for training purposes.", interruptible=False))
    s.silence(960).speak(1440).silence(9000)
    assert s.data("response.ended")[0].heard_text == "This call is recorded for training purposes."
    assert [d.verdict for d in s.data("overlap.resolved")] == ["interruption"]
    assert not s.of("floor.paused") and not s.of("response.cancelled")
    assert len(s.of("response.requested")) == 1, "the interruption is answered after"
