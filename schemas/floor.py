"""Proactive speech: somebody asks for the floor with a text, and the text is spoken at an eligible moment, never over the user.

    floor.requested    decision of whoever wants to speak (deliver: a result; a prompt; …)
    response.prepared  decision of respond: this response speaks that text; nothing is asked of the language model
    floor.withdrawn    decision of whoever asked, or of respond when the session closes: it is not wanted any more

From `response.prepared` on it is a response like any other: started, ended, failed or cancelled (which tells the asker what became of it).
"""

from typing import Literal

from schemas.base import Data, Kind, Writer, event

Purpose = Literal["holding", "delivery", "answer", "progress", "prompt"]


@event("floor.requested", Kind.DECISION, Writer.CONVERSATION)
class FloorRequested(Data):
    """Requests that wait together are spoken in their order, those of one purpose as one response."""

    request: str
    """The asker's name for it; the envelope's correlation."""
    text: str
    purpose: Purpose
    turn: str | None = None
    """The turn that it answers, if any."""


@event("floor.withdrawn", Kind.DECISION, Writer.CONVERSATION)
class FloorWithdrawn(Data):
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
