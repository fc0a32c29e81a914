"""A virtual loudspeaker: it consumes the assistant's speech in media time and says what it has really played.

When and how much is the pure model's business (`operators.playout`); this follows the session's events and keeps one model for each
response that may still have something to say. Its clock is given with every call: the device's own in a live session, the fold's in
an asap one.
"""

from operators.playout import Ack, Playout
from schemas.envelope import Event


class Loudspeaker:
    """See the module. `ack_interval` in µs."""

    def __init__(self, ack_interval: int) -> None:
        self.ack_interval = ack_interval
        self._playouts: dict[str, Playout] = {}

    def follow(self, event: Event, now: int) -> None:
        """Take an event of the session, in causal order, at media time `now`."""
        response = (
            event.correlation
            if event.type == "response.speech"
            else getattr(event.data, "response", None)
        )
        if response is None:
            return
        match event.type:
            case "response.speech":
                self._of(response).speech(now, event.data.samples, event.data.rate)
            case "response.started":
                self._of(response).start(now)
            case "floor.paused":
                self._of(response).pause(now)
            case "floor.resumed":
                self._of(response).resume(now)
            case "response.cancelled" | "response.failed":
                self._of(response).cut(now)
            case "response.ended":
                self._of(response).finish(now)

    def _of(self, response: str) -> Playout:
        playout = self._playouts.get(response)
        if playout is None:
            playout = self._playouts[response] = Playout(response, self.ack_interval)
        return playout

    def next_ack(self) -> tuple[str, Ack] | None:
        """The earliest acknowledgement that is due, with its response."""
        due = [
            (ack.at_us, name, ack)
            for name, p in self._playouts.items()
            if (ack := p.next_ack()) is not None
        ]
        if not due:
            return None
        _, name, ack = min(due)
        return name, ack

    def acknowledge(self, response: str, ack: Ack) -> None:
        """The acknowledgement has been given."""
        playout = self._playouts[response]
        playout.take_ack(ack)
        if playout.state == "cut" and not playout.owed:
            # Nothing more will be played of it, but late speech must still find that it was cut.
            playout.received = playout.base

    def due(self, now: int) -> list[tuple[str, Ack]]:
        """Give every acknowledgement that is due by `now`."""
        given = []
        while (following := self.next_ack()) is not None and following[1].at_us <= now:
            self.acknowledge(*following)
            given.append(following)
        return given
