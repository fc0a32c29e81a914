"""The log's view of an event: a key, headers and a value, as any Kafka client would see them.

Nothing here knows a client library; `schemas.cloudevents` maps events to records and back. Both are named tuples, because a replay
makes a hundred thousand of them a second.
"""

from enum import StrEnum
from typing import NamedTuple

Headers = tuple[tuple[str, bytes], ...]


class Lane(StrEnum):
    """The two lanes of a timeline: events whose order decides, and the input media they refer to (law 1)."""

    TIMELINE = "timeline"
    MEDIA = "media"


class Record(NamedTuple):
    """What is appended: `key` is the session id, `headers` hold the CloudEvents attributes, `value` the data."""

    key: str
    headers: Headers
    value: bytes


class StoredRecord(NamedTuple):
    """What is read: a record with its place. `appended_us` is the log's wall-clock time of the append in µs.

    `key` is None where a foreign producer wrote a record without one (such a record is rejected later, with its place).
    """

    lane: Lane
    partition: int
    offset: int
    appended_us: int
    key: str | None
    headers: Headers
    value: bytes
