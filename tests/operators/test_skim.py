"""Windows taken in one step: never another decision, never another state, than hop by hop."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.steps import as_plain
from operators.fold import Applied, SessionFold
from operators.pipeline import OPERATORS
from operators.reducer import Decisions, Hop, Operator, Skimmer
from schemas.envelope import Event
from schemas.floor import SayRequested
from schemas.media import InputCommitted, InputMuted, InputUnmuted, TextInput
from schemas.session import SessionUpdated
from schemas.transcription import TranscriptOffered
from tests.support.script import Session

pytestmark = pytest.mark.pure

KINDS = ("endpoint", "transcript", "generate", "speak")
HELPERS = ("looked_at", "calm_until")
"""What an operator keeps only to know when it may skim."""


class HopByHop:
    """An operator without its skimming."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.name, self.version, self.handles = operator.name, operator.version, operator.handles
        self.initial, self.step = operator.initial, operator.step

    def advance(self, state: Any, now: int, hop: Hop | None) -> Decisions:
        return self._operator.advance(state, now, hop)


def both(inputs: Sequence[Event]) -> int:
    """Feed three folds: one takes every hop, one skims window by window, one run by run; returns how many windows were skimmed at most."""
    skimming, walking = SessionFold("s"), SessionFold("s", [HopByHop(o) for o in OPERATORS])
    agenda, skimmed = skimming._agenda, 0
    take = agenda.skim

    def counted(windows: Any) -> int:
        nonlocal skimmed
        taken = take(windows)
        skimmed += taken
        return taken

    agenda.skim = counted  # type: ignore[method-assign]
    after: list[tuple[list[Applied], int, Any]] = []
    for event in inputs:
        applied = skimming.feed(event)
        assert applied == walking.feed(event)
        assert skimming.now == walking.now
        after.append((applied, skimming.now, states(walking)))
        assert states(skimming) == after[-1][2]
    running, at, at_once = SessionFold("s"), 0, 0
    while at < len(inputs):
        taken = running.skim(inputs, at)
        at_once += taken
        assert not any(step.decisions for steps, _, _ in after[at : at + taken] for step in steps)
        applied = [] if taken else running.feed(inputs[at])
        at += taken or 1
        assert taken or applied == after[at - 1][0]
        assert (running.now, states(running)) == after[at - 1][1:]
    assert running._windows == skimming._windows
    # In a session that is not paced live, windows are in the fold's order, not in the log's.
    assert at_once == (skimmed if running.config and running.config.pacing == "live" else 0)
    return skimmed


def states(fold: SessionFold) -> Any:
    plain = {name: as_plain(state) for name, state in fold.states.items()}
    for state in plain.values():
        for name in HELPERS:
            state.pop(name, None)
    return plain


Step = Callable[[Session], object]

LEVELS = st.sampled_from((0.0, 0.1, 0.34, 0.35, 0.4, 0.49, 0.5, 0.9))
LENGTHS = st.sampled_from((32, 64, 96, 128, 192, 256, 320, 704, 1024, 3200))


def _window(session: Session, change: dict[str, Any]) -> None:
    """Change what the windows to come are like."""
    feed = session.feed

    def changed(event: Event) -> Any:
        if event.type == "perception.window":
            event = event._replace(data=event.data.model_copy(update=change))
        return type(session).feed(session, event)

    session.feed = changed  # type: ignore[method-assign]
    assert feed is not None


STEPS = st.one_of(
    st.tuples(LENGTHS, LEVELS).map(lambda a: lambda s: s.hops(*a)),
    st.tuples(LENGTHS, LEVELS).map(lambda a: lambda s: s.hops(*a)),
    st.lists(LEVELS, min_size=3, max_size=12).map(lambda ps: lambda s: [s.hops(32, p) for p in ps]),
    st.sampled_from(KINDS).map(lambda kind: lambda s: s.answer_kind(kind)),
    st.sampled_from((0.1, 0.9)).map(lambda p: lambda s: setattr(s, "endpoint", p)),
    st.sampled_from((300, 1000, 2500)).map(lambda ms: lambda s: s.tick(ms)),
    st.sampled_from(
        (
            TextInput(text="and what about that"),
            InputCommitted(),
            InputMuted(),
            InputUnmuted(),
            SayRequested(request="say", text="Something else."),
            TranscriptOffered(text="some words", final=False),
            TranscriptOffered(text="some more words", final=True),
            SessionUpdated(policy={"turn.end_silence": "640ms"}),
            SessionUpdated(policy={"vad.min_silence": "96ms", "endpoint.ask_after": "64ms"}),
            SessionUpdated(policy={"turn.push_to_talk": True}),
            SessionUpdated(policy={"turn.longest": "2s", "turn.watchdog": "1100ms"}),
            SessionUpdated(policy={"idle.prompt_after": "2s", "idle.away_after": "5s"}),
        )
    ).map(lambda data: lambda s: s.observe(data)),
    st.sampled_from(({"echo": 0.2}, {"echo": 0.95}, {"level_db": -60.0}, {"epoch": 1}, {})).map(
        lambda change: lambda s: _window(s, change)
    ),
)


@given(
    st.lists(STEPS, min_size=1, max_size=30),
    st.sets(st.sampled_from(KINDS)),
    st.sampled_from(("live", "live", "asap")),
    st.sampled_from(("acknowledged", "assumed")),
)
@settings(max_examples=150, deadline=None)
def test_any_session(steps: list[Step], held: set[str], pacing: Any, playback: str) -> None:
    session = Session(pacing=pacing, playback=playback, hold=held)
    for step in steps:
        step(session)
    session.close()
    both(session.inputs)


def test_any_epoch_may_repeat_its_windows() -> None:
    for epoch in (-1, 0, 1):
        session = Session()
        _window(session, {"epoch": epoch})
        session.silence(960)
        windows = [e for e in session.inputs if e.type == "perception.window"]
        later = [e.data.model_copy(update={"start_us": e.data.start_us + 96_000}) for e in windows]
        again = [
            e._replace(id=f"again-{e.id}", data=d) for e, d in zip(windows, later, strict=True)
        ]
        both([*session.inputs, *again])


def test_most_windows_are_skimmed() -> None:
    session = Session()
    for _ in range(5):
        session.silence(1024).speak(1984).silence(8000)
    windows = sum(e.type == "perception.window" for e in session.inputs)
    assert both(session.inputs) > 0.8 * windows


def test_who_skims() -> None:
    """All others sleep through what they do not wait for; these want every hop."""
    assert {o.name for o in OPERATORS if isinstance(o, Skimmer)} == {"turn", "interrupt"}
