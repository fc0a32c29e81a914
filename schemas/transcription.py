"""Requests to the speech models about the user's audio, and their answers."""

from typing import Literal

from schemas.base import Data, Kind, Writer, event
from schemas.perception import AudioSpan

FailureReason = Literal["error", "unavailable", "rejected", "cancelled", "lost", "timed_out"]
"""Why a request failed: the model erred, could not be reached, refused the input; superseded; lost in a crash; too late."""


class Word(Data):
    """A word with its media times."""

    text: str
    start_us: int
    end_us: int
    probability: float | None = None


@event("endpoint.requested", Kind.DECISION, Writer.CONVERSATION)
class EndpointRequested(Data):
    """Has the user finished? Asked about the end of a turn's audio."""

    turn: str
    audio: AudioSpan
    attempt: int = 1


@event("endpoint.predicted", Kind.OUTCOME, Writer.INFERENCE)
class EndpointPredicted(Data):
    """How sure the endpoint model is that the turn is over."""

    turn: str
    probability: float
    """Of the turn being complete."""


@event("endpoint.failed", Kind.OUTCOME, Writer.INFERENCE)
class EndpointFailed(Data):
    """No prediction came; silence alone decides."""

    turn: str
    reason: FailureReason
    message: str = ""


@event("transcript.requested", Kind.DECISION, Writer.CONVERSATION)
class TranscriptRequested(Data):
    """What was said in this audio? `start_us` is the media time of its first sample."""

    turn: str
    audio: AudioSpan
    start_us: int
    language: str = "en"
    attempt: int = 1


@event("transcript.interim", Kind.OUTCOME, Writer.INFERENCE)
class TranscriptInterim(Data):
    """Words so far; they may still change."""

    turn: str
    text: str


@event("transcript.final", Kind.OUTCOME, Writer.INFERENCE)
class TranscriptFinal(Data):
    """The words of the requested audio; an empty text says that there were none."""

    turn: str
    text: str
    words: tuple[Word, ...] = ()
    language: str = ""


@event("transcript.failed", Kind.OUTCOME, Writer.INFERENCE)
class TranscriptFailed(Data):
    """No words came."""

    turn: str
    reason: FailureReason
    message: str = ""


@event("transcript.offered", Kind.OBSERVATION, Writer.DEVICE)
class TranscriptOffered(Data):
    """What a device's or a full-duplex model's own recognition heard, unasked: a proposal like any other.

    Where voice activity missed the speech it starts a turn; within a turn it stands in for a transcript that does not come.
    """

    text: str
    final: bool = True
    """False: an interim text, replaced by the next one."""
    start_us: int | None = None
    end_us: int | None = None
    """Media time of the words, if the device knows; without it they count as said just now."""


@event("backchannel.requested", Kind.DECISION, Writer.CONVERSATION)
class BackchannelRequested(Data):
    """Is this, said over the assistant, a mere acknowledgement? Asked only where `overlap.backchannel_model` is on."""

    overlap: str
    response: str
    text: str
    assistant: str
    """The last words of the assistant that had been heard."""
    speech_us: int
    language: str = "en"
    attempt: int = 1


@event("backchannel.predicted", Kind.OUTCOME, Writer.INFERENCE)
class BackchannelPredicted(Data):
    """How sure the classifier is that the assistant should go on."""

    overlap: str
    probability: float
    """Of being a backchannel."""


@event("backchannel.failed", Kind.OUTCOME, Writer.INFERENCE)
class BackchannelFailed(Data):
    """The classifier gave no answer; the rules decide."""

    overlap: str
    reason: FailureReason
    message: str = ""


@event("request.superseded", Kind.DECISION, Writer.CONVERSATION)
class RequestSuperseded(Data):
    """A request whose answer is not wanted any more: whoever works on it may stop."""

    request: str
    reason: str


@event("request.timed_out", Kind.DECISION, Writer.CONVERSATION)
class RequestTimedOut(Data):
    """An awaited answer did not come within its time; the conversation goes on without it."""

    request: str
    kind: str
    waited_us: int
