"""What a turn means for works: rules, corrections, cancels, questions; and the templates that they are written in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.heard import words as words_of
from operators.intents import read_turn
from operators.works import Work, WorkBook
from schemas.errors import BadInput
from schemas.policy import Policy
from schemas.templates import match_template, parse_template
from tests.support.works import ORDER, WEATHER

pytestmark = pytest.mark.pure

POLICY = Policy().with_changes({"work.intents": [WEATHER, ORDER]}).work


def book(*works: tuple[str, str, dict[str, Any], str]) -> WorkBook:
    made = WorkBook()
    for i, (rule, skill, arguments, status) in enumerate(works, 1):
        name = f"work-{i}"
        work = Work(name, f"q{i}", f"about the {rule}", skill, arguments, rule, 0, 30_000_000)
        work.status = status  # type: ignore[assignment]
        if status == "completed":
            work.delivery, work.text = "undelivered", "It is sunny."
        made.works[name] = work
    return made


PARIS = ("weather", "weather", {"city": "paris"}, "running")
TOLD = ("weather", "weather", {"city": "paris"}, "completed")


def read(text: str, works: WorkBook | None = None) -> list[tuple[Any, ...]]:
    found = read_turn(POLICY, "en", text, works or WorkBook())
    return [(m.kind, m.rule and m.rule.name, m.arguments, m.work) for m in found]


@pytest.mark.parametrize(
    ("text", "rule", "arguments"),
    [
        ("What is the weather in Paris?", "weather", {"city": "paris"}),
        (
            "Hey, can you tell me what's the weather like in New York please?",
            "weather",
            {"city": "new york"},
        ),
        ("What is the weather in Paris and how are you", "weather", {"city": "paris"}),
        ("What is the weather in Paris, no, in Rome.", "weather", {"city": "rome"}),
        ("Check the status of my order number 1, 2, 3, 4, 5.", "order", {"number": "12345"}),
        ("Check my order number 1-2-3-4-5.", "order", {"number": "12345"}),
        ("check my order 12345", "order", {"number": "12345"}),
        ("Okay, check my order one two oh four.", "order", {"number": "1204"}),
    ],
)
def test_a_rule_finds_its_arguments(text: str, rule: str, arguments: dict[str, str]) -> None:
    assert read(text) == [("delegate", rule, arguments, None)]


@pytest.mark.parametrize(
    "text",
    [
        "Tell me a joke about the weather.",
        "Stop.",
        "cancel that",
        "is it done yet?",
        "What was the result?",
        "No, to Rome.",
        "",
    ],
)
def test_without_a_work_other_words_mean_nothing(text: str) -> None:
    assert read(text) == []


def test_two_sentences_are_two_tasks() -> None:
    found = read("What is the weather in Paris? What is the weather in Rome?")
    assert [m[2]["city"] for m in found] == ["paris", "rome"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("No, to Rome.", {"city": "rome"}),
        ("No. To Rome.", {"city": "rome"}),
        ("I mean Rome", {"city": "rome"}),
        ("Sorry, I meant in New York please.", {"city": "new york"}),
        ("No, check my order one two three", {"number": "123"}),
    ],
)
@pytest.mark.parametrize("before", [PARIS, TOLD])
def test_a_correction_names_the_work_it_changes(
    text: str, arguments: dict[str, str], before: Any
) -> None:
    (found,) = read(text, book(before))
    assert found[0] == "correct" and found[2] == arguments and found[3] == "work-1"


@pytest.mark.parametrize(
    "text",
    [
        "No, thanks.",
        "no that's fine",
        "No way.",
        "No, I don't think so.",
        "Stop.",
        "Wait.",
        "never mind",
        "No.",
        "Yeah.",
    ],
)
def test_what_only_sounds_like_a_correction_or_stops_speech_leaves_works_alone(text: str) -> None:
    assert read(text, book(PARIS)) == []


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("Cancel that.", "work-2"),
        ("please cancel it", "work-2"),
        ("cancel the weather please", "work-1"),
        ("Cancel my order", "work-2"),
        ("cancel everything", None),
    ],
)
def test_cancel_finds_the_work_that_is_meant(text: str, work: str | None) -> None:
    works = book(PARIS, ("order", "order_status", {"number": "1"}, "running"))
    assert read(text, works) == [("cancel", None, {}, work)]


def test_questions_about_works() -> None:
    assert read("Is it done yet?", book(PARIS)) == [("progress", None, {}, "work-1")]
    assert read("What was the result?", book(TOLD)) == [("recall", None, {}, "work-1")]
    assert read("What was the result?", book(PARIS)) == [("recall", None, {}, None)]


def test_a_continuation_names_the_work_before() -> None:
    assert read("And what about Berlin?", book(TOLD)) == [
        ("delegate", "weather", {"city": "berlin"}, "work-1")
    ]


@pytest.mark.parametrize("pattern", ["", "a {b", "[]", "{1x}", "{a:words}", "(a", "x" * 401])
def test_a_pattern_that_cannot_be_read_says_so(pattern: str) -> None:
    with pytest.raises(BadInput):
        parse_template(pattern)
    with pytest.raises(BadInput):
        Policy().with_changes({"work.intents": [{**WEATHER, "patterns": [pattern]}]})


def test_rules_can_be_written_on_a_command_line() -> None:
    policy = Policy().with_changes(
        {"work.intents": json.dumps([WEATHER]), "work.allow": '["time.*"]'}
    )
    assert policy.work.intents == POLICY.intents[:1] and policy.work.allow == ("time.*",)
    with pytest.raises(BadInput):
        Policy().with_changes({"work.intents": "weather"})


def test_no_pattern_is_costly() -> None:
    template = parse_template("[a] " * 90 + "{x} b")
    assert match_template(template, ["a"] * 60) is None


@given(
    st.lists(
        st.sampled_from(
            words_of("no to rome what is the weather in paris and cancel that 1 two order check my")
        ),
        max_size=30,
    )
)
def test_any_words_are_read_without_harm(words: list[str]) -> None:
    for meaning in read_turn(POLICY, "en", " ".join(words), book(PARIS, TOLD)):
        assert meaning.kind in ("delegate", "correct", "cancel", "progress", "recall")
