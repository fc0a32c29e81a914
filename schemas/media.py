"""Media in, and what the user does besides speaking: typed text, push-to-talk, mute, playback acknowledgements.

`media.audio` carries PCM16 bytes (`schemas.envelope.Pcm`); its envelope names the source, the sequence and, if the device knows
it, the media time of the first sample. Its channel is the envelope's correlation id (default: the session's channel).
"""

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Data, Kind, Writer, event
from schemas.envelope import Pcm


@event("media.audio", Kind.OBSERVATION, Writer.DEVICE)
class MediaAudio(Pcm):
    """Microphone audio on the media lane: content-type `audio/pcm;rate=…;channels=…`."""

    __slots__ = ()
    TYPE = "media.audio"
    VERSION = 1
    KIND = Kind.OBSERVATION
    WRITER = Writer.DEVICE


@event("text.input", Kind.OBSERVATION, Writer.DEVICE)
class TextInput(Data):
    """Typed text; a turn of its own."""

    text: str


@event("input.committed", Kind.OBSERVATION, Writer.DEVICE)
class InputCommitted(Data):
    """Push-to-talk released: the turn is over, whatever the silence."""

    reply: bool = True


@event("input.muted", Kind.OBSERVATION, Writer.DEVICE)
class InputMuted(Data):
    """The microphone is off; what comes from it is not speech of the user."""


@event("input.unmuted", Kind.OBSERVATION, Writer.DEVICE)
class InputUnmuted(Data):
    """The microphone is on again."""


@event("playback.ack", Kind.OBSERVATION, Writer.DEVICE)
class PlaybackAck(Data):
    """How much of a response the user's loudspeaker has really played, cumulatively."""

    response: str
    played_us: Annotated[int, Field(ge=0)]
    state: Literal["playing", "paused", "drained", "cut"]
    """`drained`: all that had arrived is played; `cut`: stopped for good."""
