"""Who speaks, who holds the floor: raw speech activity, turns, overlaps."""

from typing import Literal

from schemas.base import Data, Kind, Writer, event

EndReason = Literal[
    "complete",
    "no_prediction",
    "hold_expired",
    "watchdog",
    "longest",
    "media_idle",
    "committed",
    "text",
    "closed",
    "transcript",
]


@event("speech.started", Kind.DECISION, Writer.CONVERSATION)
class SpeechStarted(Data):
    """The user's voice is active: raw activity, not yet a turn."""

    start_us: int


@event("speech.stopped", Kind.DECISION, Writer.CONVERSATION)
class SpeechStopped(Data):
    """The voice has been silent for the minimum silence; `end_us` is where it fell silent."""

    start_us: int
    end_us: int


@event("turn.started", Kind.DECISION, Writer.CONVERSATION)
class TurnStarted(Data):
    """The user has the floor, or is trying to take it."""

    turn: str
    start_us: int
    by: Literal["speech", "transcript", "text"]
    continues: str | None = None
    """The turn before, if nobody has heard an answer to it: both are one utterance and get one reply."""


@event("turn.held", Kind.DECISION, Writer.CONVERSATION)
class TurnHeld(Data):
    """The endpoint model says that more will come: wait until `until_us` at most."""

    turn: str
    probability: float
    until_us: int


@event("turn.ended", Kind.DECISION, Writer.CONVERSATION)
class TurnEnded(Data):
    """The one decision that a turn is over, with what it rests on."""

    turn: str
    start_us: int
    end_us: int
    """The end of its speech, not the moment of the decision."""
    text: str
    """Empty where no transcript came in time."""
    reason: EndReason
    probability: float | None = None
    """The endpoint model's answer about this very pause, None if there was none."""
    reply: bool = True
    ignored: str = ""
    """Words that were heard but not taken as the user's: the assistant's own, or words that the policy ignores."""


@event("turn.amended", Kind.DECISION, Writer.CONVERSATION)
class TurnAmended(Data):
    """A transcript that came after its turn had ended: history changes, nothing else."""

    turn: str
    text: str


@event("overlap.started", Kind.DECISION, Writer.CONVERSATION)
class OverlapStarted(Data):
    """The user speaks while a response is being played."""

    overlap: str
    response: str
    start_us: int


@event("floor.paused", Kind.DECISION, Writer.CONVERSATION)
class FloorPaused(Data):
    """The device holds its playback at the sample where it is, until resumed or cancelled."""

    response: str
    overlap: str


@event("floor.resumed", Kind.DECISION, Writer.CONVERSATION)
class FloorResumed(Data):
    """Playback goes on at the sample where it was paused."""

    response: str
    overlap: str


@event("overlap.resolved", Kind.DECISION, Writer.CONVERSATION)
class OverlapResolved(Data):
    """What the overlap was, how sure that is, and the evidence that decided."""

    overlap: str
    response: str
    verdict: Literal["interruption", "backchannel", "side_talk", "noise", "echo", "inconclusive"]
    kind: Literal["stop", "repair", "redirect"] | None = None
    evidence: str
    confidence: float
    speech_us: int
