"""A virtual loudspeaker: it consumes the assistant's speech in media time and says what it has really played.

When and how much is the pure model's business (`operators.playout`). Its clock is given with every call: the device's own in a live
session, the fold's in an asap one. A device that was restarted also learns from the log what its predecessor has said.
"""

from operators.playout import Ack, Playouts


class Loudspeaker(Playouts):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self._said_us: dict[str, int] = {}

    def acknowledge(self, response: str, ack: Ack) -> None:
        """The acknowledgement has been given."""
        super().acknowledge(response, ack)
        self._said_us[response] = ack.played_us
        if response not in self._playouts:
            del self._said_us[response]

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
