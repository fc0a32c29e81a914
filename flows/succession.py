"""Devices of one session after each other: where the session's media ends for one that joins, and whether another has taken one's place.

The media of a channel comes from one source at a time, the one that began last: perception rejects what an earlier one still sends. So a
device that goes on after another has joined would play to nobody; it leaves, and the session is the other's, to close as well.
"""

import contextlib

from infra.timeline.port import Timeline
from schemas.base import WINDOW_US
from schemas.cloudevents import decode
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.record import Lane

ARRIVALS = ("session.opened", "device.joined")


def media_end_us(timeline: Timeline, session: str, now: int) -> int:
    """Where the session's media ends, whoever sent it: with its last window padded, and the ticks since."""
    end = now
    for record in timeline.scan(Lane.MEDIA, timeline.partition_of(session), 0, session):
        with contextlib.suppress(BadRecord):
            event = decode(record)
            if isinstance(event.data, Pcm):
                end = max(end, (event.mediatime or 0) + event.data.duration_us)
    return end + WINDOW_US


class Succession:
    """Follows a session's timeline in the place of the device whose records are of `source` and, after a slash, the lane."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._arrived = False
        self._channel: str | None = None
        self.replaced = False
        """Another device came after this one on the same channel, or this one's media is taken no more."""

    def follow(self, event: Event) -> None:
        data = event.data
        if event.type in ARRIVALS:
            own = event.source.startswith(f"{self._source}/")
            if event.type == "session.opened" and self._channel is None:
                self._channel = data.channel
            same = data.channel in (None, self._channel)
            self.replaced |= self._arrived and not own and same
            self._arrived |= own
        elif event.type == "event.rejected":
            # What it sends is in order: nothing of it is late unless another source has begun.
            media = f"{self._source}/{Lane.MEDIA.value}"
            self.replaced |= data.reason == "late" and data.source == media
