"""No record stops a flow (law 11): whatever can be read can be taken, and what is decided of it can be written."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.conversation_session import ConversationSession
from schemas.cloudevents import LONGEST_NAME, decode, encode
from schemas.envelope import Event
from schemas.media import TextInput
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import KINDS, MEDIA_TYPES, MODELS, REQUESTS, Kind
from schemas.session import SessionClosed
from schemas.transcription import TranscriptOffered
from tests.support.events import events
from tests.support.perceive import Bench, speech
from tests.support.script import Session

pytestmark = pytest.mark.flow

KAFKA_TAKES = 1_048_588
TYPES = sorted(
    name
    for name, kind in KINDS.items()
    if kind is not Kind.DECISION and name not in {*MEDIA_TYPES, "session.configured"}
)


def stored(record: Record) -> StoredRecord:
    return StoredRecord(Lane.TIMELINE, 0, 0, 0, record.key, record.headers, record.value)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(TYPES).flatmap(events), min_size=1, max_size=8),
    st.sampled_from(["live", "asap"]),
    st.randoms(use_true_random=False),
)
def test_whatever_is_said_the_decisions_can_be_written(
    said: list[Event], pacing: Any, chance: random.Random
) -> None:
    session = ConversationSession("s")
    asked: list[Event] = []

    def feed(event: Event) -> None:
        for record in session.feed(stored(encode(event))):
            assert len(record.value) < KAFKA_TAKES
            decision = decode(record)
            if decision.type in REQUESTS:
                asked.append(decision)

    opening = Session(pacing=pacing).silence(100).speak(900).silence(1500).inputs
    for event in opening:
        feed(event)
    for number, event in enumerate(said):
        writer = MODELS[event.type].WRITER.value
        changes: dict[str, Any] = {"session": "s", "id": f"x{number}", "source": writer}
        if asked and writer not in ("device", "perception"):
            request = chance.choice(asked)
            changes |= {"cause": request.id, "correlation": request.correlation}
            if not isinstance(event.data, tuple):
                same = set(type(event.data).model_fields) & set(type(request.data).model_fields)
                fitting = {f: getattr(request.data, f) for f in same & {"turn", "response", "work"}}
                changes["data"] = event.data.model_copy(update=fitting)
        feed(event._replace(**changes))


@settings(max_examples=40)
@given(st.lists(st.sampled_from(TYPES).flatmap(events), min_size=1, max_size=8))
def test_whatever_is_said_perception_goes_on(said: list[Event]) -> None:
    b = Bench()
    b.open()
    for number, event in enumerate(said):
        source = MODELS[event.type].WRITER.value
        b.timeline.append([encode(event._replace(session="s", id=f"x{number}", source=source))])
    b.open("other")
    b.play(speech(1), session="other")
    heard = [e for e in b.run() if e.session == "other"]
    assert [e.type for e in heard].count("perception.window") == 10


def test_a_record_that_nothing_foresaw_is_rejected_and_the_others_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = Bench()
    b.open()
    b.run()
    monkeypatch.setattr("flows.perception_session.PerceivedSession.playback", lambda *_: 1 / 0)
    ack = MODELS["playback.ack"](response="r", played_us=0, state="playing")
    b.put("s", ack, 0)
    b.play(speech(1))
    out = b.run()
    [rejected] = [e for e in out if e.type == "event.rejected"]
    assert rejected.data.reason == "unreadable" and rejected.data.type == "venus.playback.ack.v1"
    assert "ZeroDivisionError: division by zero" in rejected.data.detail
    assert [e.type for e in out].count("perception.window") == 10


def test_what_perception_answers_is_small_whatever_it_was_asked() -> None:
    b = Bench()
    b.open(policy={f"key{n}": n for n in range(600)} | {"vad.activation": "x" * 5_000})
    [configured] = b.run()
    notes = configured.data.notes
    assert len(notes) == 21 and notes[-1] == "… and 581 more"
    assert notes[0] == "no policy key 'key0'" and max(map(len, notes)) <= 301
    assert len(encode(configured).value) < 20_000

    text = encode(Event("text.input", "s", "t", "device-1", TextInput(text="x")))
    wire = b"venus.text.input.v1"
    long = tuple((n, b"s" * 500_000 if n == "ce_source" else v) for n, v in text.headers)
    b.timeline.append([text._replace(headers=long)])
    [rejected] = b.run()
    assert (rejected.data.type or "").encode() == wire
    assert rejected.data.source == "s" * 300 and len(encode(rejected).value) < 2_000

    record = StoredRecord(Lane.TIMELINE, 0, 7, 0, "s" * 500_000, text.headers, text.value)
    [answer] = [decode(r) for r in b.perception.on_batch([record])]
    assert answer.session == "unknown" and f"the longest has {LONGEST_NAME}" in answer.data.detail


def test_long_texts_do_not_add_up_to_more_than_the_log_takes() -> None:
    session = ConversationSession("s")
    opening = Session(playback="assumed").inputs
    said = [
        Event("text.input", "s", f"t{n}", "device", TextInput(text="\x01" * 10_000 + f"end {n}"), n)
        for n in range(40)
    ]
    offers = [
        Event(
            "transcript.offered",
            "s",
            f"o{n}",
            "device",
            TranscriptOffered(text="word " * 13_000),
            n,
        )
        for n in range(40, 80)
    ]
    close = Event("session.closed", "s", "c", "device", SessionClosed(), 10_000_000)
    written = []
    for event in (*opening, *said, *offers, close):
        written += session.feed(stored(encode(event)))
    prompts = [decode(r).data for r in written if decode(r).type == "response.requested"]
    assert prompts and max(len(r.value) for r in written) < KAFKA_TAKES
    assert all(sum(len(m.content) for m in p.messages[1:]) <= 64_000 for p in prompts)


@pytest.mark.parametrize(
    "arguments",
    ['{"a":' + "[" * 40 + "]" * 40 + "}", '{"a":' + "[" * 30_000, '{"a":"\\ud800"}', '{"a":NaN}'],
    ids=["deep", "endless", "half a character", "not a number"],
)
def test_a_tool_call_that_could_not_be_written_is_malformed(arguments: str) -> None:
    reply = '<delegate>{"skill":"weather","arguments":' + arguments + "}</delegate>"
    s = Session(reply=reply).silence(500).speak(1000).silence(3000)
    assert [e.data.reason for e in s.of("delegate.malformed")] == ["bad_arguments"]


def test_a_great_number_in_a_tool_call_is_one_that_the_log_takes() -> None:
    reply = '<delegate>{"skill":"weather","arguments":{"a":1' + "0" * 30 + "}}</delegate>"
    s = Session(reply=reply, hold=("work",)).silence(500).speak(1000).silence(3000)
    [captured] = s.of("delegate.captured")
    assert decode(encode(captured)).data.arguments == {"a": 1e30}
