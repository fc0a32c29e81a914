"""Old event versions are brought up step by step, and a version without a way up is an error at the start."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import upcast
from schemas.base import Writer
from schemas.cloudevents import UnknownType, _reader_of, _reading, decode, decode_plain, encode
from schemas.errors import BadRecord
from schemas.record import Record
from schemas.registry import MODELS, PCM_TYPES
from tests.support.events import events

pytestmark = pytest.mark.pure


def old(version: bytes, data: object) -> Record:
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"venus.text.input.v" + version),
        ("ce_id", b"i"),
        ("ce_source", b"d"),
    )
    return Record("s", headers, orjson.dumps(data))


@pytest.fixture
def invented(monkeypatch: pytest.MonkeyPatch):
    """A v0 of `text.input`, in which the text was called `words`, a list."""
    steps = {("text.input", 0): lambda data: {"text": " ".join(data["words"])}}
    monkeypatch.setattr(upcast, "STEPS", steps)
    for cached in (_reader_of, _reading):
        cached.cache_clear()
    yield steps
    for cached in (_reader_of, _reading):
        cached.cache_clear()


def test_an_old_version_is_read_as_the_present_one(invented) -> None:
    event = decode(old(b"0", {"words": ["what", "time"]}))
    assert (event.type, event.data.text) == ("text.input", "what time")


def test_old_data_that_is_broken_is_a_bad_record(invented) -> None:
    with pytest.raises(BadRecord, match="cannot be brought up"):
        decode(old(b"0", {"no": 1}))


def test_a_version_without_a_way_up_or_of_the_future_is_unknown() -> None:
    for version in (b"0", b"2", b"x"):
        with pytest.raises(UnknownType):
            decode(old(version, {"text": "x"}))


def test_several_steps_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {("a", v): lambda data, v=v: {"seen": [*data["seen"], v]} for v in (1, 2, 3)}
    monkeypatch.setattr(upcast, "STEPS", steps)
    up = upcast.upcaster("a", 2, 4)
    assert up is not None and up({"seen": []}) == {"seen": [2, 3]}
    assert upcast.upcaster("a", 0, 4) is None


@pytest.mark.parametrize(
    ("steps", "versions", "message"),
    [
        ({("a", 1)}, {"a": 3}, "a v2 has no upcaster"),
        ({}, {"a": 2}, "a v1 has no upcaster"),
        ({("b", 1)}, {"a": 1}, "no such event type"),
        ({("a", 1)}, {"a": 1}, "a is at version 1"),
    ],
)
def test_gaps_are_found_at_the_start(steps, versions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        upcast.check({step: lambda data: data for step in steps}, versions)


def test_this_version_is_complete() -> None:
    upcast.check(upcast.STEPS, {name: model.VERSION for name, model in MODELS.items()})


@given(st.sampled_from(sorted(MODELS.keys() - PCM_TYPES)).flatmap(events))
def test_the_fast_path_gives_what_decode_gives(event) -> None:
    record = encode(event)
    headers = {name: value.decode() for name, value in record.headers}
    fast = decode_plain(
        headers["ce_type"].encode(), record.key, headers, orjson.loads(record.value)
    )
    bounded = MODELS[event.type].WRITER is Writer.DEVICE or max(map(len, headers.values())) > 80
    assert fast == (None if bounded else event), "what has bounds is for decode"
    assert decode(record) == event
