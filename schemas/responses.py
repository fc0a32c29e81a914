"""What the assistant says: generation, synthesis, playback, and how a response ends.

A response is requested once, by one decision; its text (`response.text`) and voice (`response.speech`, PCM bytes) are outcomes.
A device plays the speech of a response from its `response.started` on, in order of the envelope's sequence, holds at
`floor.paused`, and drops all of it at `response.cancelled`.
"""

from typing import Literal

from schemas.base import Data, Kind, Writer, event
from schemas.envelope import Pcm
from schemas.transcription import FailureReason


class Message(Data):
    """A message of the chat history: what was said by the user, what was heard of the assistant."""

    role: Literal["system", "user", "assistant"]
    content: str


@event("response.requested", Kind.DECISION, Writer.CONVERSATION)
class ResponseRequested(Data):
    """Ask the language model. The prompt is here, so that the log alone says what it was asked."""

    response: str
    epoch: int
    turn: str | None
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int
    attempt: int = 1


@event("response.text", Kind.OUTCOME, Writer.INFERENCE)
class ResponseText(Data):
    """A piece of the generated text, in the order of the envelope's sequence."""

    response: str
    text: str


@event("generation.completed", Kind.OUTCOME, Writer.INFERENCE)
class GenerationCompleted(Data):
    """The language model has said all it will."""

    response: str
    text: str
    tokens: int
    finish_reason: Literal["stop", "length"]


@event("generation.failed", Kind.OUTCOME, Writer.INFERENCE)
class GenerationFailed(Data):
    """The language model could not answer, or was stopped."""

    response: str
    reason: FailureReason
    message: str = ""


@event("speech.requested", Kind.DECISION, Writer.CONVERSATION)
class SpeechRequested(Data):
    """Speak this sentence, the `index`-th of its response."""

    response: str
    index: int
    text: str
    attempt: int = 1


@event("response.speech", Kind.OUTCOME, Writer.INFERENCE)
class ResponseSpeech(Pcm):
    """Synthesised audio; cause is the `speech.requested`, correlation the response, sequence the chunk's index in it."""

    __slots__ = ()
    TYPE = "response.speech"
    VERSION = 1
    KIND = Kind.OUTCOME
    WRITER = Writer.INFERENCE


@event("speech.completed", Kind.OUTCOME, Writer.INFERENCE)
class SpeechCompleted(Data):
    """All of a sentence's speech is in the log."""

    response: str
    index: int
    duration_us: int
    """Exact length of all its chunks; 0 where there was nothing to speak."""


@event("speech.failed", Kind.OUTCOME, Writer.INFERENCE)
class SpeechFailed(Data):
    """A sentence could not be synthesised, or was stopped."""

    response: str
    index: int
    reason: FailureReason
    message: str = ""


@event("response.started", Kind.DECISION, Writer.CONVERSATION)
class ResponseStarted(Data):
    """The response takes the floor: its speech may be played from now on."""

    response: str
    epoch: int


@event("response.ended", Kind.DECISION, Writer.CONVERSATION)
class ResponseEnded(Data):
    """All of it was heard."""

    response: str
    heard_text: str
    heard_us: int


@event("response.failed", Kind.DECISION, Writer.CONVERSATION)
class ResponseFailed(Data):
    """It could not be said, or only in part."""

    response: str
    reason: str
    heard_text: str = ""
    heard_us: int = 0


@event("response.cancelled", Kind.DECISION, Writer.CONVERSATION)
class ResponseCancelled(Data):
    """Stopped for good: every buffer downstream drops what is left of it."""

    response: str
    epoch: int
    """The epoch from now on."""
    reason: str
    heard_text: str
    heard_us: int
    """Played at the moment of the decision, by the last acknowledgement and the time since."""


@event("heard.amended", Kind.DECISION, Writer.CONVERSATION)
class HeardAmended(Data):
    """The device's last word on a cancelled response: what was really played of it (law 10)."""

    response: str
    heard_text: str
    heard_us: int


@event("fault.operator", Kind.DECISION, Writer.CONVERSATION)
class OperatorFailed(Data):
    """An operator has raised an error: a fault of the program. The session ends with it, the others go on (law 8)."""

    operator: str
    error: str
    """The kind of error; `venus replay` shows where it is raised."""


@event("fault.agenda_overflow", Kind.DECISION, Writer.CONVERSATION)
class AgendaOverflow(Data):
    """One input caused more decisions than the agenda allows; the rest were dropped (law 3)."""

    limit: int
    dropped: tuple[str, ...]
