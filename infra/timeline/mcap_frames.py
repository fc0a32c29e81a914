"""How a record becomes an MCAP message and back: exactly, readable by every MCAP tool, media without base64.

A channel's metadata cannot hold what differs from message to message (CloudEvents attributes, session, place), so each message
carries it, in one of three framings. The channel's message encoding says which:

| encoding | of | message |
| --- | --- | --- |
| `json` | JSON data | `{"session":…,"partition":…,"offset":…,"headers":{…},"data":<the value, byte for byte>}` |
| `protobuf` | PCM16 audio | `foxglove.RawAudio` (Foxglove plays it), the value as its `data`; field 100 `venus` holds the rest as JSON |
| `venus-record` | anything else | length (u32, little-endian) of a JSON head, the head, the value |

So `mcap cat --json` and Foxglove show events with their attributes and let you plot `data.probabilities[0]`. In `json` the data comes
last and its bytes are the record's, so that a hash over a record is the same before and after. Only what fits is framed so: a
header that is no UTF-8 or comes twice, a record without a key or with a value that is no JSON, goes into `venus-record`.
"""

import base64
import struct
from functools import lru_cache
from typing import Any

import orjson

from schemas.record import Lane, StoredRecord

JSON, AUDIO, RAW = "json", "protobuf", "venus-record"

_DATA = b',"data":'
_LENGTH = struct.Struct("<I")
_FIXED = struct.Struct("<I")
_AUDIO_TYPES = (b"audio/pcm",)


class BadFrame(ValueError):
    """A message that none of our writers made."""


def encoding_of(record: StoredRecord) -> str:
    """The framing that keeps this record exactly."""
    content_type = next((v for n, v in record.headers if n.lower() == "content-type"), b"")
    if not record.key or not _plain(record):
        return RAW
    if content_type.startswith(_AUDIO_TYPES):
        return AUDIO if audio_format(content_type) is not None else RAW
    return JSON if _is_json(record.value) else RAW


def _plain(record: StoredRecord) -> bool:
    """Whether the headers fit into a JSON object."""
    names = {name for name, _ in record.headers}
    if len(names) != len(record.headers) or "data" in names:
        return False  # a name twice, or the one behind which the value begins
    try:
        for _, value in record.headers:
            value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True


def frame(record: StoredRecord, encoding: str) -> bytes:
    """The message of a record, in the encoding that `encoding_of` names."""
    if encoding == RAW:
        headers = [[n, base64.b64encode(v).decode()] for n, v in record.headers]
        raw = orjson.dumps(_head(record) | {"headers_base64": headers})
        return b"".join((_LENGTH.pack(len(raw)), raw, record.value))
    head = orjson.dumps(_head(record) | {"headers": {n: v.decode() for n, v in record.headers}})
    if encoding == JSON:
        return b"".join((head[:-1], _DATA, record.value, b"}"))
    return _audio_frame(record, head)


def _head(record: StoredRecord) -> dict[str, Any]:
    return {"session": record.key, "partition": record.partition, "offset": record.offset}


def unframe(message: bytes, encoding: str, lane: Lane, appended_us: int) -> StoredRecord:
    """The record of a message.

    Raises:
        BadFrame: the message is not framed as the module says.
    """
    try:
        if encoding == JSON:
            text, mark, value = message.partition(_DATA)
            if not mark:
                raise BadFrame('a message without ,"data":')
            head, value = orjson.loads(text + b"}"), value[:-1]
        elif encoding == AUDIO:
            text, value = _audio_parts(message)
            head = orjson.loads(text)
        elif encoding == RAW:
            (length,) = _LENGTH.unpack_from(message)
            head, value = orjson.loads(message[4 : 4 + length]), message[4 + length :]
        else:
            raise BadFrame(f"message encoding {encoding!r}; there are {JSON}, {AUDIO} and {RAW}")
        if "headers" in head:
            headers = tuple([(name, text.encode()) for name, text in head["headers"].items()])
        else:
            headers = tuple((n, base64.b64decode(v)) for n, v in head["headers_base64"])
        place = (lane, head["partition"], head["offset"])
        return StoredRecord(*place, appended_us, head["session"], headers, value)
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError, struct.error) as error:
        raise BadFrame(f"a message that venus did not write ({error})") from None


# --- foxglove.RawAudio by hand: a handful of fields, known in advance

_TIMESTAMP, _PCM, _FORMAT = 0x0A, 0x12, 0x1A
_RATE, _CHANNELS = 0x25, 0x2D
_HEAD = bytes((0xA2, 0x06))
"""Field 100, length-delimited."""


@lru_cache(maxsize=64)
def audio_format(content_type: bytes) -> tuple[int, int] | None:
    """Rate and channels of a PCM content type; None where it names none."""
    parts = content_type.decode("ascii", "replace").replace(" ", "").split(";")[1:]
    values = dict(p.partition("=")[::2] for p in parts)
    try:
        return int(values["rate"]), int(values.get("channels", "1"))
    except (KeyError, ValueError):
        return None


def _audio_frame(record: StoredRecord, head: bytes) -> bytes:
    content_type = next(v for n, v in record.headers if n.lower() == "content-type")
    rate, channels = audio_format(content_type) or (0, 0)
    seconds, rest = divmod(record.appended_us, 1_000_000)
    stamp = b"\x08" + _varint(seconds) + b"\x10" + _varint(rest * 1000)
    parts = [bytes((_TIMESTAMP,)), _varint(len(stamp)), stamp]
    parts += [bytes((_PCM,)), _varint(len(record.value)), record.value]
    parts += [bytes((_FORMAT,)), b"\x07pcm-s16", bytes((_RATE,)), _FIXED.pack(rate)]
    parts += [bytes((_CHANNELS,)), _FIXED.pack(channels), _HEAD, _varint(len(head)), head]
    return b"".join(parts)


def _audio_parts(message: bytes) -> tuple[bytes, bytes]:
    """The head and the PCM of a `foxglove.RawAudio`."""
    at, head, pcm = 0, b"", b""
    while at < len(message):
        tag, at = _take_varint(message, at)
        if tag & 7 == 5:
            at += 4
            continue
        if tag & 7 != 2:
            raise BadFrame(f"audio with a field of wire type {tag & 7}")
        length, at = _take_varint(message, at)
        if tag == _PCM:
            pcm = message[at : at + length]
        elif tag >> 3 == 100:
            head = message[at : at + length]
        at += length
    if not head or at != len(message):
        raise BadFrame("audio without our field 100")
    return head, pcm


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _take_varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message):
            raise BadFrame("audio that is cut short")
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def audio_schema() -> bytes:
    """The descriptor of `foxglove.RawAudio` with our field, as MCAP wants it."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

    files = FileDescriptorSet()
    TIMESTAMP.CopyToProto(files.file.add())
    file = files.file.add(name="foxglove/RawAudio.proto", package="foxglove", syntax="proto3")
    file.dependency.append(TIMESTAMP.name)
    message = file.message_type.add(name="RawAudio")
    kinds = {
        "timestamp": (1, Field.TYPE_MESSAGE),
        "data": (2, Field.TYPE_BYTES),
        "format": (3, Field.TYPE_STRING),
        "sample_rate": (4, Field.TYPE_FIXED32),
        "number_of_channels": (5, Field.TYPE_FIXED32),
        "venus": (100, Field.TYPE_STRING),
    }
    for name, (number, kind) in kinds.items():
        added = message.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
        if kind == Field.TYPE_MESSAGE:
            added.type_name = ".google.protobuf.Timestamp"
    return bytes(files.SerializeToString())
