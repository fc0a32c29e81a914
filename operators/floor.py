"""Who has the floor: one fold of who speaks and since when nobody does, for every operator that waits for an eligible moment.

The floor is free while the user neither speaks nor has a turn open, and no response is under way (not even one that is still being
thought about: an answer to the user goes first).
"""

from dataclasses import dataclass, field

from schemas.envelope import Event

EVENTS = frozenset(
    {
        "speech.started",
        "speech.stopped",
        "turn.started",
        "turn.ended",
        "response.requested",
        "response.prepared",
        "response.ended",
        "response.failed",
        "response.cancelled",
    }
)
"""What `Floor.observe` wants to see."""


@dataclass(slots=True)
class Floor:
    """Times are media µs."""

    voice: bool = False
    turn_open: bool = False
    """A spoken turn: typed ones end where they begin."""
    responses: set[str] = field(default_factory=set)
    quiet_us: int = 0
    """Since when neither side has spoken, while the floor is free."""

    def observe(self, event: Event, now: int) -> None:
        data = event.data
        match event.type:
            case "speech.started":
                self.voice = True
            case "speech.stopped":
                self.voice, self.quiet_us = False, max(self.quiet_us, data.end_us)
            case "turn.started":
                self.turn_open = self.turn_open or data.by != "text"
            case "turn.ended":
                self.turn_open = self.turn_open and data.reason == "text"
                self.quiet_us = max(self.quiet_us, data.end_us)
            case "response.requested" | "response.prepared":
                self.responses.add(data.response)
            case _:
                self.responses.discard(data.response)
                self.quiet_us = max(self.quiet_us, now)

    @property
    def free(self) -> bool:
        return not (self.voice or self.turn_open or self.responses)

    def silence(self, now: int) -> int:
        """How long neither side has spoken; 0 where somebody has the floor."""
        return max(0, now - self.quiet_us) if self.free else 0


def needed_silence(waited: int, longest: int, least: int, decay: int) -> int:
    """The silence that whoever has waited so long needs before it speaks: from `longest` down to `least` within `decay`."""
    fall = max(0, longest - least)
    return least + fall - fall * min(max(waited, 0), decay) // max(1, decay)
