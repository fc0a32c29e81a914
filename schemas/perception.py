"""What perception makes of media: windows of speech probability, and what was wrong with the media."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Data, Kind, Writer, event


class AudioSpan(Data):
    """Samples at 16 kHz of one format epoch of a channel, `first_sample` to before `end_sample`."""

    channel: str
    epoch: int
    first_sample: int
    end_sample: int


@event("perception.window", Kind.OUTCOME, Writer.PERCEPTION)
class PerceptionWindow(Data):
    """Three hops (96 ms) of one channel. The envelope's media time is the window's end."""

    channel: str
    epoch: int
    """Counts the channel's formats and devices; sample counts start anew with each."""
    first_sample: int
    start_us: int
    probabilities: tuple[float, ...] | None
    """Voice activity of each hop; None where the model did not answer in time."""
    level_db: float
    """RMS of the window, dB relative to full scale (-100 for silence)."""
    echo: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """How far the playback acknowledged for that time explains the window (a correlation); None where nothing is known of an echo."""
    reset: bool = False
    """The model's state was reset before this window; a restart may begin here."""


@event("perception.gap", Kind.OUTCOME, Writer.PERCEPTION)
class PerceptionGap(Data):
    """Media that is missing, or a device whose clock had to be moved."""

    channel: str
    epoch: int
    first_sample: int
    reason: Literal["lost", "device_restarted", "buffer_full", "sequence"]
    missing_us: int
    filled: bool
    """Whether silence of the same length took its place in the samples."""
    offset_us: int = 0
    """What is added to the device's media times from here on."""


@event("perception.format_changed", Kind.OUTCOME, Writer.PERCEPTION)
class PerceptionFormatChanged(Data):
    """A new format epoch of a channel begins; the envelope's media time says when."""

    channel: str
    epoch: int
    rate: int
    channels: int
    previous_rate: int | None
    previous_channels: int | None


@event("event.rejected", Kind.OUTCOME, Writer.PERCEPTION)
class EventRejected(Data):
    """A record that could not be used (law 11): where it lies, why, and how to mend its writer."""

    lane: Literal["timeline", "media"]
    partition: int
    offset: int
    reason: Literal[
        "unreadable",
        "unknown_type",
        "invalid",
        "wrong_partition",
        "wrong_writer",
        "late",
        "format",
        "no_session",
    ]
    detail: str
    type: str | None = None
    source: str | None = None
