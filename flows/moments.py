"""Points of a recording, as people name them: an event's id (or its beginning), or a media time (`83.5s`, `1:23.5`)."""

import re
from dataclasses import dataclass

from schemas.base import parse_duration
from schemas.envelope import Event
from schemas.errors import BadInput

_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d{2}(?:\.\d+)?)")
_ID = re.compile(r"[0-9a-zA-Z_.:/-]{4,}")


@dataclass(frozen=True, slots=True)
class Moment:
    """Reached by the first event whose id begins with `id`, or by the first event after `us`."""

    text: str
    us: int | None = None
    id: str | None = None

    def is_reached(self, event: Event, now: int) -> bool:
        if self.us is not None:
            return now > self.us
        return self.id is not None and event.id.startswith(self.id)


def parse_moment(text: str) -> Moment:
    """Raises BadInput where it is neither."""
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hours, minutes, seconds = clock[1] or "0", clock[2], clock[3]
        return Moment(
            text, us=round((int(hours) * 3600 + int(minutes) * 60 + float(seconds)) * 1e6)
        )
    try:
        us = parse_duration(text)
    except ValueError:
        us = None
    if isinstance(us, int):
        return Moment(text, us=us)
    if _ID.fullmatch(text):
        return Moment(text, id=text)
    raise BadInput(
        f"{text!r} is neither an event's id nor a media time; write 83.5s, 1:23.5 or the id's beginning"
    )
