"""Events to and from records: CloudEvents 1.0 in Kafka's binary content mode.

Attributes travel as `ce_*` headers, the data's format as `content-type`, the data itself as the value: JSON by orjson, or raw PCM16.
The record's key is the session id. Type names on the wire are `venus.<noun>.<verb or state>.v<version>`.
See https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from schemas.base import LARGEST, LONGEST_US, Writer
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.record import Headers, Record, StoredRecord
from schemas.registry import MEDIA_TYPES, MODELS, PCM_TYPES
from schemas.upcast import upcaster

PREFIX = "venus."
JSON_TYPE = b"application/json"
MIN_PCM_RATE, MAX_PCM_RATE = 4_000, 384_000
LONGEST_VALUE = 64 * 1024
"""Bytes of JSON in a record of a device. Decisions repeat what it says, a prompt many times over; Kafka takes a megabyte."""
LONGEST_NAME = 2048
"""Characters of an attribute or a session's name."""
_OPTIONAL = ("causationid", "correlationid", "sequence", "traceparent", "dataref")
_NAMES = {f"ce_{n}" for n in ("specversion", "type", "id", "source", "mediatime", *_OPTIONAL)} | {
    "content-type"
}
"""The headers that are read."""
_LEAST = 6
"""Headers of a record with a media time and nothing else that is optional: version, type, id, source, time, content type."""


class Bounds(NamedTuple):
    """What a record of a type has to keep to."""

    earliest: int
    latest: int
    """Media time. Perception has its own answer to media at no possible time, and what follows from records may lie later than they do."""
    value: int
    """Bytes of JSON."""


@lru_cache(maxsize=1024)
def _bounds(name: str) -> Bounds:
    if MODELS[name].WRITER is not Writer.DEVICE or name in MEDIA_TYPES:
        return Bounds(-LARGEST, LARGEST, 1 << 62)
    return Bounds(0, LONGEST_US, LONGEST_VALUE)


class UnknownType(BadRecord):
    """A type that this version does not know; it passes through unharmed."""


def wire_type(name: str) -> str:
    """`turn.ended` → `venus.turn.ended.v1`."""
    return f"{PREFIX}{name}.v{MODELS[name].VERSION}"


@lru_cache(maxsize=1024)
def _wire_type_bytes(name: str) -> bytes:
    return wire_type(name).encode()


Validate = Callable[[Any], Any]


@lru_cache(maxsize=1024)
def _reader_of(wire: bytes) -> tuple[str, Validate | None]:
    """Short name of a wire type, and what makes its data from JSON; None for PCM."""
    text = wire.decode(errors="replace")
    name, _, version = text.removeprefix(PREFIX).rpartition(".v")
    model = MODELS.get(name)
    if not text.startswith(PREFIX) or model is None:
        raise UnknownType(f"type {text[:80]!r} is not one of this version's")
    upcast = None
    if version != str(model.VERSION):
        # So many digits are no version, and Python refuses to read thousands of them.
        older = int(version) if version.isdecimal() and len(version) < 10 else model.VERSION
        upcast = upcaster(name, older, model.VERSION)
        if upcast is None:
            raise UnknownType(
                f"type {text[:80]!r}: this version reads version {model.VERSION} of it"
            )
    if name in PCM_TYPES:
        return name, None
    # The validator itself, since replay calls it for every record.
    validate: Validate = model.__pydantic_validator__.validate_python
    if upcast is None:
        return name, validate
    raise_version = upcast

    def validate_older(data: Any) -> Any:
        try:
            return validate(raise_version(data))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRecord(
                f"{text}: cannot be brought up to version {model.VERSION}: {error!r}"
            ) from None

    return name, validate_older


@lru_cache(maxsize=256)
def _pcm_format(content_type: bytes) -> tuple[int, int]:
    """Rate and channels from `audio/pcm;rate=16000;channels=1`."""
    kind, *parameters = content_type.decode("ascii", "replace").replace(" ", "").lower().split(";")
    values = dict(p.partition("=")[::2] for p in parameters)
    try:
        rate, channels = int(values["rate"]), int(values.get("channels", "1"))
    except (KeyError, ValueError):
        rate = channels = 0
    if kind != "audio/pcm" or not 0 < rate <= MAX_PCM_RATE or channels < 1:
        raise BadRecord(
            f"content-type {content_type.decode('ascii', 'replace')!r} is not PCM audio; write audio/pcm;rate=16000;channels=1"
        )
    return rate, channels


def pcm_content_type(rate: int, channels: int) -> bytes:
    return f"audio/pcm;rate={rate};channels={channels}".encode()


def encode(event: Event) -> Record:
    """The record of an event."""
    headers: list[tuple[str, bytes]] = [
        ("ce_specversion", b"1.0"),
        ("ce_type", _wire_type_bytes(event.type)),
        ("ce_id", event.id.encode()),
        ("ce_source", event.source.encode()),
    ]
    if event.mediatime is not None:
        headers.append(("ce_mediatime", b"%d" % event.mediatime))
    if event.cause is not None:
        headers.append(("ce_causationid", event.cause.encode()))
    if event.correlation is not None:
        headers.append(("ce_correlationid", event.correlation.encode()))
    if event.sequence is not None:
        headers.append(("ce_sequence", b"%020d" % event.sequence))
    if event.traceparent is not None:
        headers.append(("ce_traceparent", event.traceparent.encode()))
    if event.dataref is not None:
        headers.append(("ce_dataref", event.dataref.encode()))
    data = event.data
    if isinstance(data, Pcm):
        headers.append(("content-type", pcm_content_type(data.rate, data.channels)))
        return Record(event.session, tuple(headers), data.pcm)
    headers.append(("content-type", JSON_TYPE))
    return Record(event.session, tuple(headers), orjson.dumps(data.model_dump(mode="json")))


def _integer(name: str, value: bytes | None, least: int, most: int) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        raise BadRecord(f"ce_{name} {value[:40]!r} is not a whole number") from None
    if not least <= number <= most:
        raise BadRecord(f"ce_{name} {value[:40]!r} is not between {least} and {most}")
    return number


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    if len(value) > LONGEST_NAME:
        raise BadRecord(f"an attribute of {len(value)} bytes; the longest has {LONGEST_NAME}")
    return value.decode()


def attributes(headers: Headers) -> dict[str, bytes]:
    """Header name (lower case) → value; the last of a name counts."""
    return {name.lower(): value for name, value in headers}


class _Shape(NamedTuple):
    """Where the attributes lie among a record's header values; -1 where there is none, which is where `decode_parts` keeps a None."""

    specversion: int
    type: int
    content_type: int
    id: int
    source: int
    mediatime: int
    others: tuple[int, int, int, int, int] | None
    """Of cause, correlation, sequence, traceparent and dataref; None where a record has none of them, as most do."""


# Bounded, because names come from outside.
@lru_cache(maxsize=4096)
def _shape(names: tuple[str, ...]) -> _Shape:
    """Of records with these header names, in any case; the last of a name counts."""
    place = {name.lower(): index for index, name in enumerate(names)}

    def at(name: str) -> int:
        return place.get(name, -1)

    others = (
        at("ce_causationid"),
        at("ce_correlationid"),
        at("ce_sequence"),
        at("ce_traceparent"),
        at("ce_dataref"),
    )
    return _Shape(
        at("ce_specversion"),
        at("ce_type"),
        at("content-type"),
        at("ce_id"),
        at("ce_source"),
        at("ce_mediatime"),
        None if max(others) < 0 else others,
    )


@lru_cache(maxsize=1024)
def _reading(
    specversion: bytes | None, wire: bytes | None, content_type: bytes | None
) -> tuple[str, Validate | None, tuple[int, int], Bounds]:
    """Short name, what makes the data from JSON (None for PCM), the format of PCM, bounds: what the records of a type have in common."""
    if wire is None:
        raise BadRecord("no header ce_type: not a CloudEvents record in binary mode")
    if specversion != b"1.0":
        raise BadRecord(f"ce_specversion is {specversion!r}, not 1.0")
    name, validate = _reader_of(wire)
    bounds = _bounds(name)
    if validate is None:
        rate, channels = _pcm_format(content_type or b"")
        # Of media perception says more; of speech this is all that is ever checked.
        if name not in MEDIA_TYPES and (rate < MIN_PCM_RATE or channels > 2):
            raise BadRecord(
                f"{name}: {rate} Hz, {channels} channels; at least {MIN_PCM_RATE} Hz and at most 2 channels can be used"
            )
        return name, None, (rate, channels), bounds
    if not (content_type or JSON_TYPE).startswith(JSON_TYPE):
        raise BadRecord(f"content-type {content_type!r} where application/json is needed")
    return name, validate, (0, 0), bounds


def decode(record: StoredRecord | Record) -> Event:
    """The event of a record.

    Raises:
        UnknownType: a type of a newer or foreign writer; harmless.
        BadRecord: the record breaks the contract; the message says how.
    """
    headers = record.headers
    names = tuple([name for name, _ in headers])
    return decode_parts(record.key, names, [value for _, value in headers], record.value)


def decode_parts(
    key: str | None, names: tuple[str, ...], values: list[bytes | None], value: bytes
) -> Event:
    """`decode` of what a record is made of, for logs that can do without making one.

    `values` are those of the headers; the list is not the caller's any more.
    """
    if not key:
        raise BadRecord("the record has no key; the key is the session id")
    if len(key) > LONGEST_NAME:
        raise BadRecord(f"a session id of {len(key)} characters; the longest has {LONGEST_NAME}")
    specversion, type_, content_type, id_, source, mediatime, others = _shape(names)
    values.append(None)
    name, validate, (rate, channels), (earliest, latest, longest) = _reading(
        values[specversion], values[type_], values[content_type]
    )
    try:
        event_id, event_source = _text(values[id_]), _text(values[source])
        if not event_id or not event_source:
            raise BadRecord("ce_id and ce_source are needed")
        data: Any
        if validate is None:
            if len(value) % (2 * channels) and name not in MEDIA_TYPES:
                raise BadRecord(f"{name}: {len(value)} bytes are no whole samples")
            data = Pcm(rate, channels, value)
        else:
            if len(value) > longest:
                raise BadRecord(f"{name}: {len(value)} bytes; a device may write {longest}")
            data = validate(orjson.loads(value or b"{}"))
        time = _integer("mediatime", values[mediatime], earliest, latest)
        if others is None:
            return Event(name, key, event_id, event_source, data, time)
        cause, correlation, sequence, traceparent, dataref = others
        return Event(
            name,
            key,
            event_id,
            event_source,
            data,
            time,
            _text(values[cause]),
            _text(values[correlation]),
            _integer("sequence", values[sequence], -LARGEST, LARGEST),
            _text(values[traceparent]),
            _text(values[dataref]),
        )
    except orjson.JSONDecodeError as error:
        raise BadRecord(f"{name}: the value is not JSON: {error}") from None
    except UnicodeDecodeError as error:
        raise BadRecord(f"{name}: a header is not UTF-8: {error.reason}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRecord(
            f"{name}: {'.'.join(map(str, first['loc'])) or 'data'}: {first['msg']}"
        ) from None


WINDOW = "perception.window"
_WINDOW_WIRE = wire_type(WINDOW).encode()
_window_data: Validate = MODELS[WINDOW].__pydantic_validator__.validate_python
_USUAL = 80
"""Characters of an attribute that the fast paths take; beyond, bytes and characters have to be told apart."""


def decode_window(session: str, id: str, source: str, mediatime: bytes, data: Any) -> Event:
    """`decode` of a window with no other attributes and with its JSON parsed, as most records of a log are, at half the cost.

    Raises:
        ValueError: it has something that `decode` has to look at.
    """
    time = int(mediatime)
    if (
        not (session and id and source and -LARGEST <= time <= LARGEST)
        or len(session) > _USUAL
        or len(id) > _USUAL
        or len(source) > _USUAL
    ):
        raise ValueError
    # As `Event(...)` does, without working out which fields it was given.
    return tuple.__new__(
        Event,
        (WINDOW, session, id, source, _window_data(data), time, None, None, None, None, None),
    )


def decode_plain(wire: bytes, session: str, headers: dict[str, str], data: Any) -> Event | None:
    """The event of a record whose headers and JSON data have been parsed already (session files); what `decode` would give.

    None where this fast path does not apply: then `decode` decides, and says what is wrong.
    """
    get = headers.get
    try:
        if wire == _WINDOW_WIRE and len(headers) == _LEAST:
            if get("ce_specversion") != "1.0" or get("content-type") != "application/json":
                return None
            return decode_window(
                session,
                headers["ce_id"],
                headers["ce_source"],
                headers["ce_mediatime"].encode(),
                data,
            )
        name, validate = _reader_of(wire)
        id_, source = get("ce_id"), get("ce_source")
        plain = (
            validate is not None and id_ and source and session and get("ce_specversion") == "1.0"
        )
        if not plain or get("content-type", "application/json") != "application/json":
            return None
        if MODELS[name].WRITER is Writer.DEVICE or max(map(len, headers.values())) > _USUAL:
            return None  # what has bounds is for `decode`
        if not headers.keys() <= _NAMES:
            return None  # one may be another in capitals
        # As bytes: in text, Python takes the digits of every script for a number.
        mediatime, sequence = get("ce_mediatime"), get("ce_sequence")
        time = None if mediatime is None else int(mediatime.encode())
        count = None if sequence is None else int(sequence.encode())
        if (time is not None and abs(time) > LARGEST) or (
            count is not None and abs(count) > LARGEST
        ):
            return None
        return Event(
            name,
            session,
            id_,  # type: ignore[arg-type]
            source,  # type: ignore[arg-type]
            validate(data),  # type: ignore[misc]
            time,
            get("ce_causationid"),
            get("ce_correlationid"),
            count,
            get("ce_traceparent"),
            get("ce_dataref"),
        )
    except (BadRecord, ValueError, KeyError):
        return None
