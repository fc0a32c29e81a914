"""Silence of both sides: prompts and absence, and what does not count as silence."""

from typing import Any

import pytest

from schemas.media import TextInput
from tests.support.script import Session
from tests.support.works import WorkSession

pytestmark = pytest.mark.pure

PROMPTED: dict[str, Any] = {"idle.prompt_after": "3s", "idle.prompts_most": 2}


def prompts(s: Session) -> list[int]:
    return [e.mediatime or 0 for e in s.of("floor.requested") if e.data.purpose == "prompt"]


def test_by_default_silence_means_nothing() -> None:
    s = Session().silence(60_000)
    assert not s.of("user.away") and not prompts(s)


def test_prompts_are_bounded_until_the_user_says_something() -> None:
    s = Session(policy=PROMPTED).silence(30_000)
    assert len(prompts(s)) == 2
    assert [d.heard_text for d in s.data("response.ended")] == ["Are you still there?"] * 2
    s.speak(640).silence(20_000)
    assert len(prompts(s)) == 4


def test_nobody_is_prompted_while_something_is_played_or_worked_on() -> None:
    s = WorkSession(policy=PROMPTED)
    s.silence(480).says("What is the weather in Paris?").running().silence(30_000)
    assert not prompts(s)
    s.completes("It rains.").silence(2016)
    assert s.spoken()[-1] == "It rains."
    told = s.of("response.ended")[-1].mediatime or 0
    s.silence(6000)
    assert 3_000_000 <= prompts(s)[0] - told <= 3_032_000


def test_silence_is_that_of_media_time_also_where_no_media_comes() -> None:
    s = Session(policy=PROMPTED)
    for _ in range(5):
        s.tick(1000)
    assert len(prompts(s)) == 1


def test_away_is_said_once_and_ends_with_the_next_sign() -> None:
    s = Session(policy={"idle.away_after": "4s"}).silence(20_000)
    assert [d.silent_since_us for d in s.data("user.away")] == [0]
    s.observe(TextInput(text="back again"))
    (back,) = s.data("user.returned")
    assert back.away_us > 15_000_000
    s.silence(20_000).close()
    assert len(s.of("user.away")) == len(s.of("user.returned")) == 2, "the close ends it too"


def test_a_prompt_that_the_user_forestalls_is_not_spoken() -> None:
    s = Session(policy=PROMPTED, hold=("speak",)).silence(3072)
    assert len(prompts(s)) == 1
    s.speak(640).silence(640)
    s.answer_kind("speak")
    s.silence(2016)
    assert "Are you still there?" not in [d.heard_text for d in s.data("response.ended")]
    assert [d.reason for d in s.data("response.cancelled")] == ["superseded"]
