"""How a response is played: a loudspeaker that consumes speech in media time, as a pure model.

The same model serves the virtual loudspeaker of a capture device (which adds the sound), the fold (which knows from it when the
next acknowledgement of an `asap` session is due), and the operators (which know from it what was heard between two
acknowledgements). Rules:
- Speech plays from `start` on, in the order in which it came, without gaps while there is some; when it runs dry, playback waits.
- `pause` holds at a sample, `resume` goes on at that very sample, `cut` ends for good.
- Acknowledgements are due when playing begins (or begins again), every `ack_interval` while it lasts, and when it runs dry,
  pauses or is cut. All are cumulative in samples.
"""

from collections.abc import Container
from typing import Literal, NamedTuple

from schemas.envelope import Event
from schemas.policy import Policy

PlayState = Literal["waiting", "playing", "paused", "cut"]
AckState = Literal["playing", "paused", "drained", "cut"]
S = 1_000_000


class Ack(NamedTuple):
    """An acknowledgement that is due at media time `at_us`."""

    at_us: int
    played_us: int
    state: AckState


class Playout:
    """The playback of one response. Times are media µs; sample counts are at `rate`, the rate of its speech."""

    __slots__ = (
        "ack_interval",
        "anchor",
        "base",
        "last_ack",
        "owed",
        "rate",
        "received",
        "released",
        "response",
        "state",
    )

    def __init__(self, response: str, ack_interval: int) -> None:
        self.response = response
        self.ack_interval = ack_interval
        self.rate = 0
        self.received = 0
        self.state: PlayState = "waiting"
        self.released = False
        self.anchor = 0
        """Media time at which sample `base` is played, while playing."""
        self.base = 0
        self.last_ack: int | None = None
        """Media time of the last acknowledgement since playing began; None before the first."""
        self.owed: list[Ack] = []
        """Acknowledgements of pauses and cuts that have not been given yet."""

    def played(self, now: int) -> int:
        """Samples played by media time `now`."""
        if self.state != "playing":
            return self.base
        return min(self.received, self.base + max(0, now - self.anchor) * self.rate // S)

    def played_us(self, now: int) -> int:
        return self.played(now) * S // self.rate if self.rate else 0

    @property
    def received_us(self) -> int:
        return self.received * S // self.rate if self.rate else 0

    def dry_at(self) -> int:
        """Media time at which all that has come will have been played (while playing)."""
        return self.anchor - (-(self.received - self.base) * S // self.rate)

    def speech(self, now: int, samples: int, rate: int) -> None:
        """More speech has come."""
        if self.state == "cut" or samples == 0:
            return
        self._settle(now)
        self.rate = self.rate or rate
        self.received += samples * self.rate // rate
        self._maybe_play(now)

    def start(self, now: int) -> None:
        """The response has the floor: play what there is and what will come."""
        self.released = True
        self._maybe_play(now)

    def pause(self, now: int) -> None:
        if self.state in ("playing", "waiting"):
            self._hold(now)
            self.state = "paused"
            self._owe(now, "paused")

    def resume(self, now: int) -> None:
        if self.state == "paused":
            self.state = "waiting"
            self._maybe_play(now)

    def cut(self, now: int) -> None:
        """Stop for good; the device says how far it had come, if it had begun."""
        if self.state != "cut":
            self._hold(now)
            self.state = "cut"
            self._owe(now, "cut")

    def finish(self, now: int) -> None:
        """All of it was played: nothing more to say."""
        self._hold(now)
        self.state = "cut"

    def acknowledged(self, played_us: int, at_us: int, playing: bool) -> None:
        """What the device said counts more than what the model assumed: go on from there."""
        if not self.rate or self.state == "cut":
            return
        self.base = min(self.received, -(-played_us * self.rate // S))
        if self.state == "playing":
            self.anchor = at_us
            if not playing:
                self.state = "waiting"

    def _settle(self, now: int) -> None:
        """Notice that playback has run dry by `now`."""
        if self.state == "playing" and self.played(now) >= self.received:
            self._hold(now)
            self.state = "waiting"

    def _hold(self, now: int) -> None:
        self.base = self.played(now)

    def _owe(self, now: int, state: AckState) -> None:
        if self.released:
            self.owed.append(Ack(now, self.played_us(now), state))

    def _maybe_play(self, now: int) -> None:
        if self.released and self.state == "waiting" and self.received > self.base:
            self.state = "playing"
            self.anchor = now
            self.last_ack = None

    def next_ack(self) -> Ack | None:
        """The next acknowledgement that is due."""
        if self.owed:
            return self.owed[0]
        if self.state != "playing":
            return None
        if self.last_ack is None:
            return Ack(self.anchor, self.played_us(self.anchor), "playing")
        dry = self.dry_at()
        at = self.last_ack + self.ack_interval
        if at < dry:
            return Ack(at, self.played_us(at), "playing")
        return Ack(dry, self.received_us, "drained")

    def take_ack(self, ack: Ack) -> None:
        """The acknowledgement was given."""
        if self.owed and self.owed[0].state == ack.state:
            self.owed.pop(0)
        elif ack.state == "drained":
            self._settle(ack.at_us)
        elif ack.state == "playing":
            self.last_ack = ack.at_us


class Playouts:
    """What a session's loudspeaker has to play: a model for each response that may still have something to say."""

    EVENTS = frozenset(
        {
            "response.speech",
            "response.started",
            "response.ended",
            "response.cancelled",
            "response.failed",
            "floor.paused",
            "floor.resumed",
            "session.configured",
            "session.updated",
        }
    )
    """What `follow` wants to see."""

    def __init__(self) -> None:
        self._policy = Policy()
        self._playouts: dict[str, Playout] = {}

    def follow(self, event: Event, now: int) -> None:
        """Take an event of the session, in causal order, at media time `now`."""
        if event.type == "response.speech":
            # Late speech of a response that was cut makes a model that nothing ever starts.
            self._of(event.correlation or "").speech(now, event.data.samples, event.data.rate)
            return
        response: str = getattr(event.data, "response", "")
        match event.type:
            case "session.configured":
                self._policy = event.data.policy
            case "session.updated":
                self._policy = self._policy.with_accepted(event.data.policy)
            case "response.started":
                self._of(response).start(now)
            case "floor.paused":
                self._of(response).pause(now)
            case "floor.resumed":
                self._of(response).resume(now)
            case "response.cancelled" | "response.failed":
                self._of(response).cut(now)
                self._forget(response)
            case "response.ended":
                self._of(response).finish(now)
                self._forget(response)

    def next_ack(self, of: Container[str] | None = None) -> tuple[str, Ack] | None:
        """The earliest acknowledgement that is due, with its response; only of some responses if they are given."""
        first: tuple[str, Ack] | None = None
        for name, playout in self._playouts.items():
            ack = playout.next_ack() if of is None or name in of else None
            if ack is not None and (
                first is None or (ack.at_us, name) < (first[1].at_us, first[0])
            ):
                first = name, ack
        return first

    def acknowledge(self, response: str, ack: Ack) -> None:
        """The acknowledgement has been given."""
        playout = self._playouts.get(response)
        if playout is not None:
            playout.take_ack(ack)
            self._forget(response)

    def _of(self, response: str) -> Playout:
        playout = self._playouts.get(response)
        if playout is None:
            playout = self._playouts[response] = Playout(
                response, self._policy.playback.ack_interval
            )
        return playout

    def _forget(self, response: str) -> None:
        playout = self._playouts[response]
        if playout.state == "cut" and not playout.owed:
            del self._playouts[response]
