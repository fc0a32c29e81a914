"""Records as others write and read them: round trips, the CloudEvents SDK both ways, and what is wrong with a bad one."""

from random import Random
from typing import Any

import orjson
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.http import CloudEvent as OldCloudEvent
from cloudevents.v1.kafka import KafkaMessage as OldKafkaMessage
from cloudevents.v1.kafka import from_binary as old_from_binary
from cloudevents.v1.kafka import to_binary as old_to_binary
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.cloudevents import UnknownType, decode, decode_plain, encode, wire_type
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.media import PlaybackAck
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import MODELS, PCM_TYPES
from schemas.turns import TurnEnded
from tests.support.events import events

pytestmark = pytest.mark.pure

ENDED = Event(
    "turn.ended",
    "séance 1",
    "id-1",
    "conversation/turn",
    TurnEnded(turn="t1", start_us=0, end_us=900_000, text="wie geht’s?", reason="complete"),
    mediatime=1_220_000,
    cause="w7",
    correlation="t1",
    sequence=3,
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    dataref="sha256:00",
)
SOUND = Event("media.audio", "s", "a1", "mic", Pcm(48_000, 2, b"\xff\x7f\x00\x80"), 0, sequence=0)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_type_comes_back_as_it_was(name: str) -> None:
    @settings(max_examples=25)
    @given(events(name))
    def comes_back(event: Event) -> None:
        assert decode(encode(event)) == event

    comes_back()


@pytest.mark.parametrize("event", [ENDED, SOUND], ids=lambda e: e.type)
def test_a_stored_record_is_the_event_too(event: Event) -> None:
    record = encode(event)
    stored = StoredRecord(Lane.TIMELINE, 3, 17, 1, record.key, record.headers, record.value)
    assert decode(stored) == event


def test_the_bytes_on_the_wire_are_those_of_the_contract() -> None:
    record = encode(ENDED)
    assert record.key == "séance 1"
    assert record.headers == (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"venus.turn.ended.v1"),
        ("ce_id", b"id-1"),
        ("ce_source", b"conversation/turn"),
        ("ce_mediatime", b"1220000"),
        ("ce_causationid", b"w7"),
        ("ce_correlationid", b"t1"),
        ("ce_sequence", b"00000000000000000003"),
        ("ce_traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("ce_dataref", b"sha256:00"),
        ("content-type", b"application/json"),
    )
    assert orjson.loads(record.value)["text"] == "wie geht’s?"
    assert dict(encode(SOUND).headers)["content-type"] == b"audio/pcm;rate=48000;channels=2"
    assert encode(SOUND).value == b"\xff\x7f\x00\x80"


# --- the SDK reads what we write


@pytest.mark.parametrize("event", [ENDED, SOUND], ids=lambda e: e.type)
def test_the_sdk_reads_our_records(event: Event) -> None:
    record = encode(event)
    message = KafkaMessage(dict(record.headers), record.key.encode(), record.value)
    read = from_binary(message, JSONFormat())
    assert (read.get_specversion(), read.get_id()) == ("1.0", event.id)
    assert (read.get_source(), read.get_type()) == (event.source, wire_type(event.type))
    assert read.get_extension("partitionkey") == event.session
    assert read.get_extension("mediatime") == str(event.mediatime)
    assert read.get_extension("causationid") == event.cause
    assert int(read.get_extension("sequence")) == event.sequence
    expected = record.value if isinstance(event.data, Pcm) else orjson.loads(record.value)
    assert read.get_data() == expected


def test_the_old_sdk_reads_our_records() -> None:
    record = encode(ENDED)
    read: Any = old_from_binary(OldKafkaMessage(dict(record.headers), record.key, record.value))
    assert (read["id"], read["type"], read["mediatime"]) == (
        "id-1",
        "venus.turn.ended.v1",
        "1220000",
    )
    assert read.data["reason"] == "complete"


# --- we read what the SDK writes


def attributes(**more: str) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "type": "venus.playback.ack.v1",
        "source": "/devices/kitchen",
        "id": "7f",
        "mediatime": "320000",
        "sequence": "12",
        "partitionkey": "s1",
        **more,
    }


ACK = PlaybackAck(response="r1", played_us=250_000, state="paused")
READ = Event("playback.ack", "s1", "7f", "/devices/kitchen", ACK, 320_000, sequence=12)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", ""]
)
def test_a_record_of_the_sdk_is_accepted(content_type: str) -> None:
    named = attributes(datacontenttype=content_type) if content_type else attributes()
    message = to_binary(CloudEvent(named, ACK.model_dump()), JSONFormat())
    assert isinstance(message.key, str)
    assert decode(Record(message.key, tuple(message.headers.items()), message.value)) == READ


def test_sound_of_the_sdk_is_accepted() -> None:
    named = attributes(
        type="venus.media.audio.v1", datacontenttype="audio/pcm; rate=44100; channels=1"
    )
    message = to_binary(CloudEvent(named, b"\x01\x02"), JSONFormat())
    event = decode(Record("s1", tuple(message.headers.items()), message.value))
    assert event.data == Pcm(44_100, 1, b"\x01\x02")


def test_a_record_of_the_old_sdk_is_accepted() -> None:
    named = attributes(datacontenttype="application/json")
    message = old_to_binary(OldCloudEvent(named, ACK.model_dump()))
    assert decode(Record(str(message.key), tuple(message.headers.items()), message.value)) == READ


def test_header_names_in_other_case_are_accepted() -> None:
    record = encode(READ)
    shouted = tuple((name.upper(), value) for name, value in record.headers)
    assert decode(Record(record.key, shouted, record.value)) == READ


@given(
    st.sampled_from(sorted(MODELS)).flatmap(events),
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from(["ce_id", "CE_SOURCE", "ce_other", "Content-Type"]), max_size=3),
)
def test_neither_order_nor_what_comes_twice_matters(
    event: Event, chance: Random, more: list[str]
) -> None:
    """The last of a name counts."""
    record = encode(event)
    headers = list(record.headers)
    chance.shuffle(headers)
    earlier = [(name, b"overruled") for name in more]
    upper = [(name.upper() if chance.random() < 0.5 else name, v) for name, v in headers]
    assert decode(record._replace(headers=tuple(earlier + upper))) == event


def test_fields_of_a_newer_writer_are_left_out() -> None:
    record = encode(READ)
    newer = orjson.dumps({**ACK.model_dump(), "loudness_db": -12})
    assert decode(record._replace(value=newer)).data == ACK


# --- bad records


def changed(**headers: bytes | None) -> Record:
    """A good record with some headers changed, or taken away; `_` in a name stands for `-` after content."""
    record = encode(READ)
    kept = dict(record.headers)
    for name, value in headers.items():
        name = "content-type" if name == "content_type" else name
        if value is None:
            kept.pop(name)
        else:
            kept[name] = value
    return record._replace(headers=tuple(kept.items()))


def deep(levels: int) -> bytes:
    return b'{"arguments":{"a":%s}}' % (b"[" * levels + b"]" * levels)


def work(value: bytes) -> Record:
    return changed(ce_type=b"venus.work.requested.v1")._replace(value=value)


def spoken(rate: int, channels: int, pcm: bytes) -> Record:
    sound = Event("response.speech", "s", "a1", "inference", Pcm(rate, channels, pcm))
    return encode(sound)


def played(us: int) -> Record:
    return encode(READ)._replace(value=b'{"response":"r","played_us":%d,"state":"playing"}' % us)


BAD: list[tuple[Record, str]] = [
    (work(deep(300)), "work.requested: arguments: Value error, more than 32 levels"),
    (work(deep(32)), "work.requested: arguments: Value error, more than 32 levels"),
    (work(b'{"query":"%s"}' % (b"q" * 70_000)), "work.requested: 70012 bytes; a device may write"),
    (changed(ce_mediatime=b"%d" % 2**70), "is not between 0 and 604800000000"),
    (changed(ce_mediatime=b"604800000001"), "is not between 0 and 604800000000"),
    (changed(ce_mediatime=b"-1"), "is not between 0 and 604800000000"),
    (changed(ce_sequence=b"%d" % 2**60), "ce_sequence b'1152921504606846976' is not between"),
    (changed(ce_id=b"i" * 3000), "an attribute of 3000 bytes; the longest has 2048"),
    (encode(READ)._replace(key="s" * 3000), "a session id of 3000 characters"),
    (played(-1), "playback.ack: played_us: Input should be greater than or equal to 0"),
    (played(2**60), "playback.ack: played_us: Input should be less than or equal to"),
    (played(2**70), "playback.ack: played_us:"),
    (spoken(16_000, 1, b"abc"), "response.speech: 3 bytes are no whole samples"),
    (spoken(16_000, 2, bytes(6)), "response.speech: 6 bytes are no whole samples"),
    (spoken(1, 1, bytes(2)), "response.speech: 1 Hz, 1 channels; at least 4000 Hz"),
    (spoken(16_000, 9, bytes(18)), "response.speech: 16000 Hz, 9 channels"),
    (changed(ce_type=None), "no header ce_type: not a CloudEvents record in binary mode"),
    (changed(ce_specversion=b"0.3"), "ce_specversion is b'0.3', not 1.0"),
    (changed(ce_specversion=None), "ce_specversion is None, not 1.0"),
    (changed(ce_id=None), "ce_id and ce_source are needed"),
    (changed(ce_source=b""), "ce_id and ce_source are needed"),
    (changed(ce_mediatime=b"12.5"), "ce_mediatime b'12.5' is not a whole number"),
    (changed(ce_sequence=b"x" * 5000), "is not a whole number"),
    (changed(ce_sequence=b"9" * 5000), "is not a whole number"),
    (changed(ce_source=b"\xff"), "a header is not UTF-8"),
    (changed(content_type=b"text/plain"), "where application/json is needed"),
    (encode(READ)._replace(key=""), "the record has no key"),
    (encode(READ)._replace(value=b"{"), "playback.ack: the value is not JSON"),
    (encode(READ)._replace(value=b"\xff\xfe"), "playback.ack: the value is not JSON"),
    (encode(READ)._replace(value=b"[" * 60_000), "playback.ack: the value is not JSON"),
    (encode(READ)._replace(value=b"[]"), "playback.ack: data:"),
    (encode(READ)._replace(value=b"{}"), "playback.ack: response: Field required"),
    (
        encode(READ)._replace(value=b'{"response":"r","played_us":1,"state":"gone"}'),
        "playback.ack: state: Input should be 'playing'",
    ),
    (
        encode(SOUND)._replace(headers=changed(ce_type=b"venus.media.audio.v1").headers),
        "is not PCM audio; write audio/pcm;rate=16000;channels=1",
    ),
]


@pytest.mark.parametrize(("record", "says"), BAD, ids=[says[:40] for _, says in BAD])
def test_a_bad_record_is_one_clear_line(record: Record, says: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode(record)
    assert not isinstance(caught.value, UnknownType)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_just_fits_is_read() -> None:
    nested = decode(work(deep(31))).data
    assert decode(encode(decode(work(deep(31))))).data == nested
    assert decode(changed(ce_mediatime=b"604800000000")).mediatime == 7 * 86_400_000_000
    assert decode(played(0)).data.played_us == 0
    assert decode(spoken(4_000, 2, bytes(8))).data.samples == 2
    odd = encode(SOUND)._replace(value=b"abc")  # of media perception says what is wrong
    assert decode(odd).data.pcm == b"abc"


def test_what_a_session_file_holds_keeps_to_the_same_bounds() -> None:
    """Records whose JSON is parsed already take another way, and it must not let through what `decode` refuses."""
    for record, says in BAD:
        names = dict(record.headers)
        if "ce_type" not in names or "pcm" in names.get("content-type", b"").decode():
            continue
        try:
            headers = {name: value.decode() for name, value in names.items() if value is not None}
            data = orjson.loads(record.value)
        except ValueError:
            continue
        assert decode_plain(names["ce_type"] or b"", record.key, headers, data) is None, says


@pytest.mark.parametrize(
    "content_type",
    [
        b"audio/pcm",
        b"audio/pcm;rate=0",
        b"audio/pcm;rate=-1;channels=1",
        b"audio/pcm;rate=16000;channels=0",
        b"audio/pcm;rate=99999999;channels=1",
        b"audio/pcm;rate=16000;channels=x",
        b"audio/wav;rate=16000;channels=1",
        b"\xff",
    ],
)
def test_a_format_that_is_none_is_refused(content_type: bytes) -> None:
    headers = {**dict(encode(SOUND).headers), "content-type": content_type}
    with pytest.raises(BadRecord, match="not PCM audio"):
        decode(encode(SOUND)._replace(headers=tuple(headers.items())))


@pytest.mark.parametrize(
    "wire",
    [
        b"venus.turn.ended.v2",
        b"venus.turn.ended.v" + b"9" * 5000,
        b"venus.turn.sung.v1",
        b"com.example.other",
        b"",
        b"\xff",
        b"turn.ended",
    ],
)
def test_a_type_of_others_is_told_apart(wire: bytes) -> None:
    with pytest.raises(UnknownType):
        decode(changed(ce_type=wire))


@given(
    st.lists(st.tuples(st.text(max_size=12), st.binary(max_size=12)), max_size=4),
    st.sampled_from(sorted(set(MODELS) - PCM_TYPES)),
    st.binary(max_size=40),
)
def test_no_record_breaks_the_codec(more: list[tuple[str, bytes]], name: str, value: bytes) -> None:
    base = dict(encode(READ).headers) | {"ce_type": wire_type(name).encode()} | dict(more)
    try:
        decode(Record("s", tuple(base.items()), value))
    except BadRecord as error:
        assert "\n" not in str(error)
