"""What-if with an unchanged policy gives the recording: every decision, ids and all, in every kind of session.

With nothing changed the recorded world goes on as it came. So it is also put together anew, from some place on, as after a change: that
must come to the same decisions, or a change would be blamed for what it did not do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.counterfactual import take_apart, under
from flows.replay import all_records, sessions_of
from flows.session_files import open_any
from flows.what_if import align, what_if, what_if_one
from infra.timeline.port import Timeline
from operators.fold import SessionFold
from schemas.base import Kind
from schemas.envelope import Event
from schemas.floor import SayRequested
from schemas.media import PlaybackAck, TextInput
from schemas.work import WorkCompleted, WorkRunning
from tests.operators.test_properties import WORDS, Drama, dramas, played
from tests.replay.sessions import memory, talk
from tests.support.script import Session
from tests.support.works import WorkSession

pytestmark = pytest.mark.flow

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.mcap"))


def recorded(session: Session) -> list[Event]:
    """The timeline of a scripted session: each input, then what it let happen."""
    fold = SessionFold(session.name)
    found: list[Event] = []
    for event in session.inputs:
        found.append(event)
        found += [d for applied in fold.feed(event) for d in applied.decisions]
    return found


def hold_unchanged(events: list[Event], name: str = "s", anew: float | None = None) -> None:
    """`anew`: the part of the session after which its world is put together anew."""
    rec = take_apart(name, events)
    if anew is not None:
        rec.decided[int(anew * (len(rec.decided) - 1))] = (Event("other", name, "", "", None),)
    outcome = under(rec, lambda policy: policy)
    assert outcome.decisions == rec.decisions
    assert not outcome.unanswered


class Ahead(WorkSession):
    """Its loudspeaker's clock runs ahead of the windows, as a live device's does."""

    ahead_us = 250_000

    def acknowledge(self, until: int) -> None:
        super().acknowledge(until + self.ahead_us)


class AtOnce(WorkSession):
    """Works are done as soon as they are queued."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.held.discard("work")

    def outcomes(self, request: Event) -> list[Event]:
        if request.type != "work.queued":
            return super().outcomes(request)
        work = request.data.work
        data = (WorkRunning(work=work, attempt=1), WorkCompleted(work=work, result="It is sunny."))
        return [self.outcome(request, d)._replace(source="harness/one") for d in data]


class DramaAtOnce(Drama, AtOnce):
    """A random conversation in which every model answers as soon as it is asked."""

    def __init__(self, policy: dict[str, Any]) -> None:
        AtOnce.__init__(self, "s", policy=policy, transcript=self.words, pacing="asap")
        self.said = WORDS[0]
        self.past = []


def said(s: WorkSession) -> None:
    """Text to speak, one upon the other, one interrupted."""
    s.silence(480).observe(SayRequested(request="one", text="The door is open.")).silence(3000)
    s.observe(SayRequested(request="two", text="It is open. Somebody should close it now."))
    s.observe(SayRequested(request="three", text="It is cold.")).silence(1440)
    s.says("stop", 960, 4000).says("what now").silence(4000)


def idle(s: WorkSession) -> None:
    s.says("hello there").silence(30_000)


def works(s: WorkSession) -> None:
    """Holding sentences and results, the second while the user speaks."""
    s.says("what is the weather in Paris").silence(4000)
    answered(s).says("check my order number 5").silence(1440)
    s.transcript = "and what else"
    s.speak(960)
    answered(s).silence(6000).says("thank you").silence(4000)


def answered(s: WorkSession) -> WorkSession:
    for work in [] if isinstance(s, AtOnce) else s.fold.states["dispatch"].book.open:
        s.running(work.work).progress("looking", work.work).completes("It is sunny.", work.work)
    return s


def typed(s: WorkSession) -> None:
    s.observe(TextInput(text="tell me about it")).silence(2000).says("stop").silence(4000)
    s.observe(TextInput(text="and now")).silence(8000)


@pytest.mark.parametrize("how", [said, idle, works, typed])
@pytest.mark.parametrize("playback", ["acknowledged", "assumed"])
@pytest.mark.parametrize("kind", ["live", "ahead", "asap"])
def test_a_scripted_session(kind: str, playback: str, how: Callable[[WorkSession], None]) -> None:
    make: type[WorkSession] = {"live": WorkSession, "ahead": Ahead, "asap": AtOnce}[kind]
    policy = {"idle.prompt_after": "5s"} if how is idle else {}
    pacing = "asap" if kind == "asap" else "live"
    s = make(pacing=pacing, playback=playback, policy=policy)
    how(s)
    s.close(8)
    assert s.fold.ended and s.of("response.ended")
    if how is not typed:
        assert s.of("response.prepared")
    for anew in (None, 0, 0.5):
        hold_unchanged(recorded(s), anew=anew)


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_talk(pacing: str) -> None:
    log = memory(talk("s", 60, pacing=pacing).close(), with_media=False)
    for anew in (None, 0, 0.5):
        hold_unchanged([event for _, event in sessions_of(all_records(log))], anew=anew)


@pytest.mark.parametrize("file", RECORDINGS, ids=lambda p: p.stem)
def test_recordings_of_released_versions(file: Path) -> None:
    """Beside what is decided today: an operator's version may be another by now."""
    with open_any(str(file)) as log:
        results = what_if(log, None, {"turn.hold_max": "3s"})
        for result in results:
            today = take_apart(result.session, _as_of_today(log, result.session))
            assert all(p.state == "same" for p in align(today.decisions, result.derived))
            assert not result.unanswered
    assert results


def _as_of_today(log: Timeline, session: str) -> list[Event]:
    """The recorded inputs with the decisions of today."""
    fold = SessionFold(session)
    found: list[Event] = []
    for _, event in sessions_of(all_records(log, session)):
        if event.kind is not Kind.DECISION:
            found.append(event)
            found += [d for applied in fold.feed(event) for d in applied.decisions]
    return found


@given(dramas, st.floats(0, 1))
@settings(max_examples=150)
def test_any_conversation_put_together_anew(drama: Any, anew: float) -> None:
    hold_unchanged(recorded(played(*drama)), anew=anew)


@given(dramas)
@example(([("silence", 9, ""), ("say", 0, WORDS[0]), ("tick", 3, ""), ("speak", 1, "")], {}))
@example(
    (
        [
            ("type", 0, "what is the weather in Paris"),
            ("silence", 1, ""),
            ("speak", 12, WORDS[0]),
            ("silence", 40, ""),
        ],
        {},
    )
)
@example(
    (
        [
            ("silence", 3, ""),
            *[("say", 1, WORDS[0]), ("work", 0, "")],
            *[("say", 0, WORDS[0])] * 2,
            *[("silence", n, "") for n in (2, 4, 9, 2)],
            *[("answer", 0, ""), ("type", 0, WORDS[0]), ("late", 1, ""), ("tick", 9, "")],
            *[("silence", 4, ""), ("echo", 10, ""), ("policy", 4, "")],
        ],
        {"turn.push_to_talk": True, "turn.ignore_words": "mhm"},
    )
)
@settings(max_examples=100)
def test_any_conversation_as_fast_as_possible(drama: Any) -> None:
    acts, policy = drama
    s = DramaAtOnce(policy)
    for act in acts:
        s.act(*act)
    hold_unchanged(recorded(s.finish()))


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_log_that_was_cut_off(pacing: str) -> None:
    """What follows from its last inputs is not what a change has brought."""
    events = [e for _, e in sessions_of(all_records(memory(talk("s", 30, pacing=pacing).close())))]
    last = max(i for i, e in enumerate(events) if e.type == "response.requested")
    for end in range(last - 3, last + 4):
        rec = take_apart("s", events[:end])
        assert under(rec, lambda policy: policy).decisions == rec.decisions


def test_a_change_before_a_prepared_response_moves_it_with_its_speech_and_playback() -> None:
    s = Ahead()
    s.says("what is the weather in Paris").silence(4000)
    answered(s).silence(6000).close(8)
    result = what_if_one("s", recorded(s), {"turn.end_silence": "640ms"})
    assert not result.unanswered
    for type_ in ("response.prepared", "response.started", "response.ended"):
        a, b = ([e for e in side if e.type == type_] for side in (result.recorded, result.derived))
        assert [e.data.response for e in a] == [e.data.response for e in b]
    first = next(p for p in result.pairs if p.either.type == "response.started")
    assert first.state == "moved"


def test_acknowledgements_ahead_of_the_windows_stay_before_them() -> None:
    """The case is there: an acknowledgement comes at an earlier session time than it carries."""
    s = Ahead()
    s.says("hello there").silence(4000).close()
    now, ahead = 0, 0
    for event in s.events:
        if event.type == "perception.window":
            now = event.mediatime or 0
        elif isinstance(event.data, PlaybackAck):
            ahead += (event.mediatime or 0) > now
    assert ahead
    hold_unchanged(recorded(s))
