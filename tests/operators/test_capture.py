"""Capture: spans in a reply, structured requests, and the evidence that a request rests on."""

import pytest

from schemas.media import TextInput
from schemas.work import WorkRequested
from tests.support.works import WorkSession

pytestmark = pytest.mark.pure


def replied(reply: str, **more: object) -> WorkSession:
    session = WorkSession(reply=reply, **more)  # type: ignore[arg-type]
    session.silence(960).says("Can you find a hotel?").silence(4000)
    return session


def test_a_span_in_a_reply_is_delegated_and_neither_shown_nor_spoken() -> None:
    session = replied("One moment.<delegate>find a hotel in Rome</delegate>")
    (opened,) = session.data("delegate.opened")
    (captured,) = session.data("delegate.captured")
    assert captured.query == "find a hotel in Rome" and captured.origin == "span"
    assert (captured.route, captured.skill) == ("auto", None)
    assert captured.cutoff_us == opened.cutoff_us
    assert session.works()[0].work == "work-1"
    assert session.spoken() == ["One moment."]
    assert all("hotel" not in s.text for s in session.data("speech.requested"))


def test_a_tool_call_as_json_names_skill_and_arguments() -> None:
    session = replied('Sure.<delegate>{"skill": "hotel", "arguments": {"city": "Rome"}}</delegate>')
    (work,) = session.works()
    assert (work.route, work.skill, work.arguments) == ("skill", "hotel", {"city": "Rome"})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("A.<delegate>one <delegate>two</delegate></delegate> B is said now.", "nested"),
        ("A.<delegate>x<backend>y</delegate> B is said now.", "protocol_token"),
        ("A.<delegate>  </delegate> B is said now.", "empty"),
        (
            'A.<delegate>{"skill": "pay", "arguments": {"sum": </delegate> B is said now.',
            "bad_arguments",
        ),
    ],
)
def test_malformed_spans_are_swallowed_and_recorded(reply: str, reason: str) -> None:
    session = replied(reply)
    assert [m.reason for m in session.data("delegate.malformed")] == [reason]
    assert session.works() == []
    assert session.spoken() == ["A. B is said now."]


def test_an_interrupted_span_is_discarded() -> None:
    session = WorkSession(hold=("generate",))
    session.silence(960).says("Can you find a hotel?")
    request = session.of("response.requested")[0]
    from schemas.responses import ResponseText

    text = ResponseText(response="response-1", text="Yes.<delegate>find a ho")
    session.feed(session.outcome(request, text))
    session.observe(TextInput(text="Never mind."))
    assert [m.reason for m in session.data("delegate.malformed")] == ["interrupted"]
    assert session.works() == []


def test_the_evidence_ends_where_the_span_opened() -> None:
    session = WorkSession(reply="Fine.")
    session.silence(960).says("I like Rome.").silence(3000)
    session.reply = "Sure.<delegate>find a hotel</delegate> I will look."
    session.says("Find me a hotel.").silence(6000)
    (work,) = session.works()
    assert [(e.role, e.text) for e in work.evidence] == [
        ("user", "I like Rome."),
        ("assistant", "Fine."),
        ("user", "Find me a hotel."),
    ]
    assert all(e.at_us <= work.cutoff_us for e in work.evidence)


def test_a_structured_request_of_any_producer_is_a_work() -> None:
    session = WorkSession()
    session.silence(960)
    session.observe(WorkRequested(skill="weather", arguments={"city": "oslo"}))
    session.observe(WorkRequested(query="Summarise the news", route="general"))
    session.observe(WorkRequested())
    first, second = session.works()
    assert (first.route, first.skill, first.arguments) == ("skill", "weather", {"city": "oslo"})
    assert (second.route, second.query) == ("general", "Summarise the news")
    assert second.limit_us > first.limit_us
    assert [m.reason for m in session.data("delegate.malformed")] == ["empty"]
    session.silence(960)
    assert session.spoken() == [], "a program that asks needs no holding sentence"


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("Look up what is the weather in Oslo", ("weather", {"city": "oslo"})),
        ("What is the weather in Oslo, no, in Rome.", ("weather", {"city": "rome"})),
        ("What is the weather in Oslo? What is the weather in Rome?", None),
        ("Book a hotel in Oslo", None),
        ("And what about Oslo?", None),
    ],
)
def test_the_one_call_that_the_rules_make_of_the_words_is_noted(
    query: str, fits: tuple[str, object] | None
) -> None:
    """The route stays `auto`: a planner, where there is one, may know better."""
    session = WorkSession()
    session.observe(WorkRequested(query=query))
    (work,) = session.works()
    assert (work.route, work.skill) == ("auto", None)
    assert (work.fits and (work.fits.skill, work.fits.arguments)) == fits
    session.observe(WorkRequested(query=query, route="general"))
    assert all(w.fits is None for w in session.works()[1:])


def test_queries_are_cut_to_their_length() -> None:
    session = WorkSession()
    session.observe(WorkRequested(query="x" * 10_000))
    assert len(session.works()[0].query) == 4_000


def test_a_turn_without_reply_delegates_nothing() -> None:
    from schemas.media import InputCommitted

    session = WorkSession(endpoint=0.1)
    session.silence(960)
    session.transcript = "What is the weather in Paris?"
    session.speak(960).observe(InputCommitted(reply=False)).silence(960)
    assert session.types("turn.ended") == ["turn.ended"] and session.works() == []
