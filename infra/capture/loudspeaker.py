"""A virtual loudspeaker: it consumes the assistant's speech in media time and says what it has really played.

When and how much is the pure model's business (`operators.playout`). Its clock is given with every call: the device's own in a live
session, the fold's in an asap one. A device that was restarted also learns from the log what its predecessor has said. Where there is
a room around it, it lets the room hear every sample that it plays.
"""

from infra.capture.room import Room
from operators.playout import Ack, Playouts
from schemas.envelope import Event

S = 1_000_000


class Loudspeaker(Playouts):
    """See the module."""

    def __init__(self, room: Room | None = None) -> None:
        super().__init__()
        self._room = room
        self._sounded: dict[str, int] = {}
        """Samples of each response that the room has heard."""
        self._said_us: dict[str, int] = {}

    def follow(self, event: Event, now: int) -> None:
        self.sound(now)
        super().follow(event, now)
        if self._room is not None:
            self._room.follow(event)

    def acknowledge(self, response: str, ack: Ack) -> None:
        """The acknowledgement has been given."""
        self.sound(ack.at_us)
        super().acknowledge(response, ack)
        self._said_us[response] = ack.played_us
        if response not in self._playouts:
            del self._said_us[response]

    def sound(self, now: int) -> None:
        """Let the room hear what has been played by `now`. Before every change, since a change moves the anchor of what is played."""
        if self._room is None:
            return
        for response, playout in self._playouts.items():
            first, last = self._sounded.get(response, 0), playout.played(now)
            if last > first and playout.state == "playing":
                first = max(first, playout.base)
                at_us = playout.anchor + (first - playout.base) * S // playout.rate
                us = (first * S // playout.rate, last * S // playout.rate)
                self._room.plays(response, at_us, *us)
            self._sounded[response] = last
        self._sounded = {r: n for r, n in self._sounded.items() if r in self._playouts}

    def due(self, now: int) -> list[tuple[str, Ack]]:
        """Give every acknowledgement that is due by `now`."""
        given = []
        while (following := self.next_ack()) is not None and following[1].at_us <= now:
            self.acknowledge(*following)
            given.append(following)
        return given

    def take_over(self, now: int) -> None:
        """Go on from where the device before was heard last: what it was playing when it died, nobody knows."""
        for response, playout in self._playouts.items():
            if playout.state == "playing":
                playout.acknowledged(self._said_us.get(response, 0), now, True)
                playout.last_ack = None
