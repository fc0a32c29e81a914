"""The envelope: one event as every part of the runtime sees it, whatever log it came from.

`Event` is a named tuple because a session-hour holds forty thousand of them. Its `data` is a frozen model of
`schemas.registry`; `media.audio` and `response.speech` carry `Pcm` instead, raw bytes with their format.
"""

from typing import Any, NamedTuple

from schemas.base import Kind


class Pcm(NamedTuple):
    """PCM16 little-endian, interleaved. `samples` counts per channel."""

    rate: int
    channels: int
    pcm: bytes

    @property
    def samples(self) -> int:
        return len(self.pcm) // (2 * self.channels)

    @property
    def duration_us(self) -> int:
        return self.samples * 1_000_000 // self.rate


class Event(NamedTuple):
    """One event. `mediatime` is in µs since the session opened; None where the writer gave none."""

    type: str
    """The short type name, e.g. `turn.ended`."""
    session: str
    id: str
    source: str
    data: Any
    """The model that the type is registered with, or `Pcm`."""
    mediatime: int | None = None
    cause: str | None = None
    """Id of the event that led to this one; for an outcome its request."""
    correlation: str | None = None
    """What it belongs to: a turn, a response, a work."""
    sequence: int | None = None
    """A device's count of its records; an outcome's index within its request."""
    traceparent: str | None = None
    dataref: str | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Event":
        return self  # a value: nothing of it changes

    @property
    def kind(self) -> Kind:
        from schemas.registry import kind_of

        return kind_of(self.type)
