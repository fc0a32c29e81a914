"""JSON results in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.polish import polish
from operators.spoken_data import VALUES, in_words
from tests.support.works import WorkSession

pytestmark = pytest.mark.pure

TIME = '{"timezone": "Europe/Paris", "datetime": "2026-12-02T16:27:48+01:00", "is_dst": false}'


@pytest.mark.parametrize(
    ("result", "answer", "spoken"),
    [
        (TIME, "", "Timezone Europe/Paris, datetime 2 December 2026, 16:27, is dst no."),
        (TIME, "In {timezone} it is {datetime}.", "In Europe/Paris it is 2 December 2026, 16:27."),
        (TIME, "It is {time}.", "Timezone Europe/Paris, datetime 2 December 2026, 16:27, is dst no."),
        ('{"result": "All is well."}', "", "All is well."),
        ('[{"title": "A", "n": 1}, {"title": "B", "n": 2.50}]', "", "Title A, n 1. Title B, n 2.5."),
        ('[{"t": "A"}, {"t": "B"}]', "First {0.t}, then {1.t}, {7.t}.", "A. B."),
        ('[{"t": "A"}, {"t": "B"}]', "First {0.t}, then {1.t}.", "First A, then B."),
        ('["tea", "milk", 3]', "", "Tea and milk and 3."),
        ('{"order": {"itemCount": 2, "paid_on": "2026-02-03", "note": null}, "gifts": []}', "",
         "Order item count 2, order paid on 3 February 2026."),
        ('{"title": "The end', "", "title: The end."),
        ("{not json}", "It is {x}.", "{not json}."),
        ("[1] See the note.", "", "[1] See the note."),
        ("It is 21 degrees.", "It is {degrees}.", "It is 21 degrees."),
        ('"quoted as JSON"', "", "Quoted as JSON."),
        ('"Yes", she said.', "", '"Yes", she said.'),
        ('\ufeff{"n": "one"}', "", "One."),
        ('```json\n{"n": "one"}\n```', "", "One."),
        ('{"first name": "Ann"}', "It is {first name}.", "It is Ann."),
        ('{"n": "one"}', "{", "One."),
        ('{"n": "one"}', "{}", "One."),
        ('{"n": "", "m": 1}', "It is {n}.", "M 1."),
        ('{"half": "\\ud800x"}', "", "half: \\ud800x."),
        ("[" * 900 + "]" * 900, "", ""),
        ("{}", "", ""),
    ],
)  # fmt: skip
def test_what_is_spoken_of_json(result: str, answer: str, spoken: str) -> None:
    assert polish(in_words(result, answer)) == spoken


words = st.text("abcXYZ_- é汉", max_size=12)
any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(words, inner),
    max_leaves=30,
)


@given(st.lists(any_json) | st.dictionaries(words, any_json))
def test_no_mark_of_json_is_spoken(value: object) -> None:
    assert not set(in_words(json.dumps(value))) & set('{}[]":')


@given(any_json, st.text(max_size=30))
def test_any_sentence_may_be_given_for_it(value: object, answer: str) -> None:
    assert polish(in_words(json.dumps(value), answer)) is not None


def test_a_long_list_is_told_in_part() -> None:
    said = in_words(json.dumps([{"n": i} for i in range(1000)]))
    assert said.count(".") < VALUES


def test_a_rule_says_what_to_say() -> None:
    rule = {
        "name": "paris",
        "skill": "time.now",
        "patterns": ["what time is it in paris"],
        "answer": "In Paris it is {datetime}.",
    }
    session = WorkSession(policy={"work.intents": [rule]})
    session.transcript = "What time is it in Paris?"
    session.silence(960).speak(1440).silence(2016).running().completes(TIME).silence(9000)
    assert session.spoken()[-1] == "In Paris it is 2 December 2026, 16:27."
