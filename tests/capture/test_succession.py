"""Whether a device has been replaced: by whoever came after it on its channel, or by what became of its media."""

from typing import Any

import pytest

from flows.succession import Succession
from schemas.envelope import Event
from schemas.perception import EventRejected
from schemas.session import DeviceJoined, SessionOpened

pytestmark = pytest.mark.pure

OPENED = SessionOpened(device="file")


def rejected(reason: Any, source: str) -> EventRejected:
    return EventRejected(
        lane="media", partition=0, offset=1, reason=reason, detail="", source=source
    )


@pytest.mark.parametrize(
    ("story", "replaced"),
    [
        ([("me", OPENED)], False),
        ([("me", OPENED), ("me", OPENED)], False),
        ([("other", OPENED), ("me", DeviceJoined(device="file"))], False),
        ([("other", OPENED), ("third", DeviceJoined(device="x")), ("me", OPENED)], False),
        ([("me", OPENED), ("other", DeviceJoined(device="file"))], True),
        ([("me", OPENED), ("me2", DeviceJoined(device="file"))], True),
        ([("me", OPENED), ("other", OPENED)], True),
        ([("me", OPENED), ("other", DeviceJoined(device="x", channel="kitchen"))], False),
        ([("me", OPENED), ("other", DeviceJoined(device="x", channel=OPENED.channel))], True),
        ([("me", OPENED), ("perception", rejected("late", "me/media"))], True),
        ([("me", OPENED), ("perception", rejected("format", "me/media"))], False),
        ([("me", OPENED), ("perception", rejected("late", "other/media"))], False),
    ],
)
def test_who_is_replaced(story: list[tuple[str, Any]], replaced: bool) -> None:
    succession = Succession("me")
    for index, (source, data) in enumerate(story):
        succession.follow(Event(data.TYPE, "s", str(index), f"{source}/timeline", data))
    assert succession.replaced is replaced
