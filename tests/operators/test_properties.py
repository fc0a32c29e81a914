"""Properties of whole conversations under Hypothesis: whatever is said, offered, typed and asked for, in whatever order the models
answer, records repeat or sessions mix, the session stays legal, ends, and decides the same again.

`Drama` is a random conversation: a list of acts drawn by Hypothesis, played on the scripted session. Outcomes are held and come
when the drama says so (late, in another order, twice, or never).
"""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.fold import SessionFold
from schemas.base import Kind
from schemas.envelope import Event
from schemas.floor import SayRequested
from schemas.media import InputCommitted, InputMuted, InputUnmuted, TextInput
from schemas.session import SessionUpdated
from schemas.transcription import BackchannelPredicted, TranscriptOffered
from tests.operators.test_exhaustive import check_closed
from tests.support.works import WorkSession

pytestmark = pytest.mark.pure

WORDS = (
    "tell me about it",
    "mhm",
    "stop",
    "no, the other one",
    "",
    "what is the weather in Paris",
    "no, to Rome",
    "not you, I'm on the phone",
    "yeah but why",
    "forget the weather",
)
KINDS = ("endpoint", "transcript", "generate", "speak", "backchannel")
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"overlap.interruptible": False},
    {"overlap.backchannel_model": True, "overlap.min_words": 3},
    {"turn.push_to_talk": True, "turn.ignore_words": "mhm"},
    {"idle.prompt_after": "2s", "idle.away_after": "3s", "turn.reopen_within": 0},
)

ACTS = st.one_of(
    st.tuples(st.just("speak"), st.integers(1, 30), st.sampled_from(WORDS)),
    st.tuples(st.just("silence"), st.integers(1, 40), st.just("")),
    st.tuples(st.just("echo"), st.integers(1, 10), st.just("")),
    st.tuples(st.just("tick"), st.integers(1, 15), st.just("")),
    st.tuples(st.just("answer"), st.integers(0, 4), st.just("")),
    st.tuples(st.just("late"), st.integers(0, 4), st.just("")),
    st.tuples(st.just("offer"), st.integers(0, 1), st.sampled_from(WORDS)),
    st.tuples(st.just("type"), st.just(0), st.sampled_from(WORDS)),
    st.tuples(st.just("say"), st.integers(0, 3), st.sampled_from(WORDS)),
    st.tuples(st.just("device"), st.integers(0, 3), st.just("")),
    st.tuples(st.just("policy"), st.integers(0, len(POLICIES) - 1), st.just("")),
    st.tuples(st.just("work"), st.integers(0, 2), st.just("")),
)


class Drama(WorkSession):
    """A conversation in which outcomes wait for their cue."""

    def __init__(self, name: str, policy: dict[str, Any]) -> None:
        super().__init__(name, policy=policy, hold=KINDS, transcript=self.words)
        self.said = WORDS[0]
        self.past: list[Event] = []

    def words(self, request: Event) -> str:
        return self.said

    def outcomes(self, request: Event) -> list[Event]:
        if request.type == "backchannel.requested":
            data = BackchannelPredicted(overlap=request.data.overlap, probability=0.6)
            return [self.outcome(request, data)]
        return super().outcomes(request)

    def answer(self, request: Event) -> None:
        self.past.append(request)
        super().answer(request)

    def act(self, what: str, number: int, text: str) -> None:
        match what:
            case "speak":
                self.said = text
                self.speak(96 * number)
            case "silence":
                self.silence(96 * number)
            case "echo":
                self.echo = 0.9
                self.speak(96 * number)
                self.echo = None
            case "tick":
                self.tick(100 * number)
            case "answer":
                self.answer_kind(KINDS[number])
            case "late" if self.past:
                for outcome in self.outcomes(self.past[-1 - number % len(self.past)]):
                    self.feed(outcome)
            case "offer":
                self.observe(TranscriptOffered(text=text, final=bool(number)))
            case "type":
                self.observe(TextInput(text=text))
            case "say":
                self.observe(
                    SayRequested(request=f"say-{number}", text=text, interruptible=bool(number % 2))
                )
            case "device":
                signals = (
                    InputMuted(),
                    InputUnmuted(),
                    InputCommitted(),
                    InputCommitted(reply=False),
                )
                self.observe(signals[number])
            case "policy":
                self.observe(SessionUpdated(policy=POLICIES[number]))
            case "work":
                for work in self.fold.states["dispatch"].book.open:
                    self.running(work.work)
                    if number == 1:
                        self.completes("done", work.work)
                    elif number == 2:
                        self.fails("error", work.work)

    def finish(self) -> "Drama":
        """Close, with every outcome that is still owed: first those that end by themselves, then the drain."""
        for kind in KINDS:
            self.answer_kind(kind)
        self.close(8)
        return self


def played(acts: Iterable[tuple[str, int, str]], policy: dict[str, Any], name: str = "s") -> Drama:
    drama = Drama(name, policy)
    for act in acts:
        drama.act(*act)
    return drama.finish()


def decisions(fold: SessionFold, inputs: Iterable[Event]) -> list[Event]:
    return [d for e in inputs for step in fold.feed(e) for d in step.decisions]


def decided(drama: Drama) -> list[Event]:
    return [e for e in drama.events if e.kind is Kind.DECISION]


dramas = st.tuples(st.lists(ACTS, max_size=40), st.sampled_from(POLICIES))


ASKED_TO_STOP_BEFORE_IT_WAS_STARTED = (
    [
        ("silence", 8, ""),
        ("say", 0, "tell me about it"),
        ("speak", 1, "stop"),
        ("silence", 4, ""),
        ("answer", 3, ""),
    ],
    {},
)


@given(dramas)
@example(ASKED_TO_STOP_BEFORE_IT_WAS_STARTED)
@settings(max_examples=400)
def test_every_conversation_stays_legal_and_ends(drama: Any) -> None:
    s = played(*drama)
    check_closed(s, tuple(map(str, drama[0])))
    for work in s.works():
        assert len(s.ends_of(work.work)) == 1, f"{work.work} has {s.ends_of(work.work)}"
    asked = {d.request for d in s.data("floor.requested") if d.purpose == "say"}
    over = {r for d in s.data("response.prepared") for r in d.requests} | {
        d.request for d in s.data("floor.withdrawn")
    }
    assert asked <= over or any(e.type == "session.closed" for e in s.events)


@given(dramas)
@settings(max_examples=150)
def test_nothing_is_begun_while_the_user_has_the_floor(drama: Any) -> None:
    """A response never starts inside a spoken turn."""
    spoken: set[str] = set()
    for e in played(*drama).events:
        if e.type == "turn.started" and e.data.by != "text":
            spoken.add(e.data.turn)
        elif e.type == "turn.ended":
            spoken.discard(e.data.turn)
        elif e.type == "response.started":
            assert not spoken, f"{e.data.response} began within {spoken}"


@given(dramas, st.integers(0, 2**32))
@settings(max_examples=150)
def test_repeats_of_any_record_change_nothing(drama: Any, seed: int) -> None:
    random = Random(seed)
    s = played(*drama)
    twice: list[Event] = []
    for i, event in enumerate(s.inputs):
        twice.append(event)
        while random.random() < 0.3:
            twice.append(s.inputs[random.randrange(i + 1)])
    # An outcome that was too late for its request may not come before it either.
    assert decisions(SessionFold("s"), twice) == decided(s)


@given(dramas)
@settings(max_examples=100)
def test_a_conversation_decides_the_same_again_and_its_own_decisions_change_nothing(
    drama: Any,
) -> None:
    s = played(*drama)
    assert decisions(SessionFold("s"), s.inputs) == decided(s)
    fold = SessionFold("s")
    again: list[Event] = []
    for event in s.inputs:
        for step in fold.feed(event):
            again += step.decisions
            for decision in step.decisions:
                fold.feed(decision)
    assert again == decided(s)


@given(dramas, dramas, st.integers(0, 2**32))
@settings(max_examples=100)
def test_sessions_that_mix_get_what_each_gets_alone(one: Any, two: Any, seed: int) -> None:
    random = Random(seed)
    alone = {"a": played(*one, name="a"), "b": played(*two, name="b")}
    queues = {name: list(drama.inputs) for name, drama in alone.items()}
    folds = {name: SessionFold(name) for name in alone}
    mixed: dict[str, list[Event]] = {"a": [], "b": []}
    while any(queues.values()):
        name = random.choice([n for n, q in queues.items() if q])
        mixed[name] += decisions(folds[name], [queues[name].pop(0)])
    assert mixed == {name: decided(drama) for name, drama in alone.items()}


@given(dramas)
@settings(max_examples=100)
def test_outcomes_of_any_delay_leave_no_speech_without_a_turn(drama: Any) -> None:
    """Models that answer at other times move ends and answers, but no speech is lost: every stretch of speech belongs to a turn."""
    s = played(*drama)
    turns = [(t.start_us, t.end_us) for t in s.data("turn.ended") if t.reason != "text"]
    for speech in s.data("speech.started"):
        assert any(start <= speech.start_us <= end for start, end in turns), speech
