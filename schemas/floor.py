"""Proactive speech: somebody asks for the floor with a text, and the text is spoken at an eligible moment, never over the user.

    say.requested      observation: somebody outside (an application, a frontend) wants something said
    floor.requested    decision of whoever wants to speak (deliver: a result; idle: a prompt; floor: what was asked for outside)
    response.prepared  decision of respond: this response speaks that text; nothing is asked of the language model
    floor.withdrawn    decision of whoever asked, or of respond when the session closes: it is not wanted any more

From `response.prepared` on it is a response like any other: started, ended, failed or cancelled (which tells the asker what became of it).
"""

from typing import Literal

from schemas.base import Data, Kind, Writer, event

Purpose = Literal["holding", "delivery", "answer", "progress", "prompt", "say"]
Urgency = Literal["normal", "high"]


@event("say.requested", Kind.OBSERVATION, Writer.DEVICE)
class SayRequested(Data):
    """Say this at the next eligible moment, once. The `response.prepared` whose `requests` hold `say:<request>` speaks it, and that
    response's end says what became of it; `floor.withdrawn` says that it was not said."""

    request: str
    """The asker's name for it, unique within the session; repeats of a name are one request."""
    text: str
    urgency: Urgency = "normal"
    """`high`: as soon as nobody speaks, without waiting for a silence."""
    interruptible: bool = True
    """False: it is finished whatever is said; that is answered after."""


@event("floor.requested", Kind.DECISION, Writer.CONVERSATION)
class FloorRequested(Data):
    """Requests that wait together are spoken in their order, those of one purpose as one response."""

    request: str
    """The asker's name for it; the envelope's correlation."""
    text: str
    purpose: Purpose
    turn: str | None = None
    """The turn that it answers, if any."""
    interruptible: bool = True


@event("floor.withdrawn", Kind.DECISION, Writer.CONVERSATION)
class FloorWithdrawn(Data):
    """A request for the floor that will not be spoken any more."""

    request: str
    reason: str


@event("response.prepared", Kind.DECISION, Writer.CONVERSATION)
class ResponsePrepared(Data):
    """A response whose text is given."""

    response: str
    epoch: int
    requests: tuple[str, ...]
    """The `floor.requested` that it speaks."""
    text: str
    turn: str | None = None
    interruptible: bool = True
