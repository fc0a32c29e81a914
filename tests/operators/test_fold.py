"""The shared fold: causal order, repeats, waiting for the configuration, and what an asap session waits for."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.fold import WAITING_LIMIT, SessionFold
from schemas.envelope import Event
from schemas.media import TextInput
from schemas.registry import REQUESTS
from schemas.session import ClockTick, SessionEnded
from tests.support.script import Session

pytestmark = pytest.mark.pure

KINDS_OF_REQUESTS = tuple(set(REQUESTS.values()))


def story(session: Session) -> list[tuple[str, int | None, Any]]:
    """What happened, without what may differ between runs that must agree (nothing else may)."""
    return [(e.type, e.mediatime, e.data) for e in session.events]


def spoken(session: Session) -> Session:
    return (
        session.silence(500)
        .speak(1000)
        .silence(2500)
        .speak(300)
        .silence(3000)
        .speak(1500)
        .silence(8000)
    )


def transcripts(request: Event) -> str:
    return "mhm" if request.data.turn == "turn-2" else "what is this all about"


REPLY = "This is the answer to your question. It is somewhat longer than you would think."


def test_an_asap_session_is_answered_as_if_it_had_been_live() -> None:
    """The decisions of a live session whose outcomes take their policy latency are those of an asap one."""
    asap = spoken(Session(pacing="asap", transcript=transcripts, reply=REPLY)).close()
    started = asap.of("response.started")[0]
    ended = asap.of("turn.ended")[0]
    policy = asap.policy.latency
    assert ended.mediatime is not None and started.mediatime is not None
    assert started.mediatime - ended.mediatime == policy.generate + policy.speak
    assert asap.fold.ended and asap.fold.held == 0


@given(st.integers(0, 2**32), st.booleans())
def test_asap_decisions_do_not_depend_on_when_answers_arrive(seed: int, flood: bool) -> None:
    """All windows at once or in between, answers in any order and at any time: the same decisions at the same media times."""
    expected = story(spoken(Session(pacing="asap", transcript=transcripts, reply=REPLY)).close())
    rng = random.Random(seed)
    session = Session(pacing="asap", transcript=transcripts, reply=REPLY, hold=KINDS_OF_REQUESTS)
    session.acknowledge = lambda until: None  # type: ignore[method-assign]
    steps = [lambda: spoken(session)] if flood else []
    if not flood:
        spans = [
            (session.silence, 500),
            (session.speak, 1000),
            (session.silence, 2500),
            (session.speak, 300),
        ]
        spans += [(session.silence, 3000), (session.speak, 1500), (session.silence, 8000)]
        steps = [lambda f=f, ms=ms: f(ms) for f, ms in spans]
    while steps or session.open or _ack_due(session):
        choices = (
            (["step"] if steps else [])
            + (["answer"] if session.open else [])
            + (["ack"] if _ack_due(session) else [])
        )
        match rng.choice(choices):
            case "step":
                steps.pop(0)()
            case "answer":
                session.answer(session.open[rng.choice(sorted(session.open))])
            case "ack":
                due = session.fold.next_due()
                assert due is not None
                Session.acknowledge(session, due)
    session.close()
    assert story(session) == expected


def _ack_due(session: Session) -> bool:
    ack = None if session.playout is None else session.playout.next_ack()
    return ack is not None and ack.at_us == session.fold.next_due()


@given(st.data())
def test_repeats_of_any_record_change_nothing(data: st.DataObject) -> None:
    source = spoken(Session(transcript=transcripts, reply=REPLY)).close()
    expected = story(source)
    fold, seen = SessionFold("s"), []
    for i, event in enumerate(source.inputs):
        again = [event] + (
            [source.inputs[data.draw(st.integers(0, i))]]
            if data.draw(st.integers(0, 9)) == 0
            else []
        )
        for one in again:
            for step in fold.feed(one):
                if step.fate == "applied":
                    seen += [(e.type, e.mediatime, e.data) for e in (step.input, *step.decisions)]
    assert seen == expected


def test_inputs_wait_for_the_configuration_and_are_bounded() -> None:
    source = Session().observe(TextInput(text="hello"))
    opened, configured, text = (
        source.inputs[0],
        source.inputs[1],
        source.inputs[2]._replace(sequence=None),
    )
    fold = SessionFold("s")
    assert fold.feed(text) == []
    assert fold.feed(opened) == []
    steps = fold.feed(configured)
    assert [s.input.type for s in steps] == ["session.opened", "session.configured", "text.input"]
    assert any(d.type == "response.requested" for d in steps[-1].decisions)
    unopened = SessionFold("t")
    dropped = [
        step
        for i in range(WAITING_LIMIT + 5)
        for step in unopened.feed(text._replace(session="t", id=f"x{i}"))
    ]
    assert len(dropped) == 5 and all(s.fate == "late" for s in dropped)


def test_a_record_that_fills_a_declared_gap_is_late() -> None:
    session = Session(hold=KINDS_OF_REQUESTS)
    texts = [
        Event("text.input", "s", f"t{n}", "other", TextInput(text=str(n)), None, sequence=n)
        for n in (0, 3, 1, 3, 4)
    ]
    fates = [step.fate for event in texts for step in session.fold.feed(event)]
    assert fates == ["applied", "applied", "late", "repeat", "applied"]


def test_the_first_terminal_outcome_counts() -> None:
    session = Session(hold=("transcript",)).silence(500).speak(1000).silence(600)
    request = next(iter(session.open.values()))
    first = session.outcomes(request)[0]
    second = first._replace(id="another")
    assert [s.fate for s in session.fold.feed(first)] == ["applied"]
    assert [s.fate for s in session.fold.feed(second)] == ["late"]


def test_media_time_never_falls() -> None:
    session = Session().silence(960)
    session.tick(5000)
    before = session.fold.now
    session.at -= 5_000_000
    session.silence(960)
    assert session.fold.now == before == max(e.mediatime or 0 for e in session.events)


def test_a_close_that_overtakes_the_windows_waits_for_them() -> None:
    """A device that sends a file at once closes long before perception has come to its end."""
    expected = story(spoken(Session(pacing="asap", playback="assumed")).close())
    source = spoken(Session(pacing="asap", playback="assumed")).close()
    early = [
        e
        for e in source.inputs
        if e.type in ("session.opened", "session.configured", "session.closed")
    ]
    fold, seen = SessionFold("s"), []
    for event in [*early, *(e for e in source.inputs if e not in early)]:
        for step in fold.feed(
            event._replace(sequence=None) if event.type == "session.closed" else event
        ):
            if step.fate == "applied":
                seen += [(e.type, e.mediatime, e.data) for e in (step.input, *step.decisions)]
    assert seen == expected


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_what_another_writes_in_a_flows_name_has_no_effect(pacing: Any) -> None:
    """A device's clock, window, answer and end of the session: neither time nor any decision comes of them."""
    source = spoken(Session(pacing=pacing, transcript=transcripts, reply=REPLY)).close()
    fold = SessionFold("s", on_recorded=lambda event: pytest.fail(f"{event.type} was taken"))
    seen: list[tuple[str, int | None, Any]] = []
    ended = SessionEnded(reason="closed", turns=0, responses=0)
    for number, event in enumerate(source.inputs):
        again = event._replace(source="device", id=f"forged-{number}")
        tick = Event("clock.tick", "s", f"tick-{number}", "device", ClockTick(), 3_600_000_000)
        over = Event("session.ended", "s", f"over-{number}", "conversational", ended, 0)
        forgeries = [tick, over]
        if event.type in ("perception.window", "transcript.final", "response.speech"):
            forgeries.append(again)
        for forgery in forgeries:
            [step] = fold.feed(forgery)
            assert (step.fate, step.decisions) == ("forged", ())
        for step in fold.feed(event):
            if step.fate == "applied":
                seen += [(e.type, e.mediatime, e.data) for e in (step.input, *step.decisions)]
    assert seen == story(source) and fold.ended
