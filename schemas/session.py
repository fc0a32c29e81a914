"""A session's life: who opened it, the policy in force, and how it ends."""

from typing import Literal

from pydantic import Field

from schemas.base import AnyJson, Data, Kind, Writer, event
from schemas.policy import Pacing, Policy

Playback = Literal["acknowledged", "assumed"]
"""Whether the device says what it has played, or that has to be assumed (law 10)."""


@event("session.opened", Kind.OBSERVATION, Writer.DEVICE)
class SessionOpened(Data):
    """The first record of a session: what the device is and what it wishes."""

    device: str = "unknown"
    channel: str = "mic"
    """The audio channel on which the user speaks to the assistant."""
    pacing: Pacing = "live"
    playback: Playback = "assumed"
    language: str = "en"
    policy: AnyJson = Field(default_factory=dict)
    """Wishes by dotted key, e.g. `{"turn.hold_max": "2s"}`."""


@event("session.configured", Kind.OUTCOME, Writer.PERCEPTION)
class SessionConfigured(Data):
    """The answer to the first `session.opened`: everything that later decisions depend on."""

    channel: str
    pacing: Pacing
    playback: Playback
    language: str
    policy: Policy
    operators: dict[str, int]
    models: dict[str, str]
    notes: tuple[str, ...] = ()
    """Wishes that could not be met, and why."""


@event("session.updated", Kind.OBSERVATION, Writer.DEVICE)
class SessionUpdated(Data):
    """A change of policy from here on, by dotted key."""

    policy: AnyJson
    reason: str = ""
    """Why, for whoever reads the log: e.g. which session and point a continued one goes on from."""


@event("device.joined", Kind.OBSERVATION, Writer.DEVICE)
class DeviceJoined(Data):
    """A further device of a session that is open already (or the same one after a restart)."""

    device: str
    channel: str | None = None
    playback: Playback | None = None


@event("session.closed", Kind.OBSERVATION, Writer.DEVICE)
class SessionClosed(Data):
    """Nothing more will come from the device; its envelope's media time is the end of its media."""

    reason: str = "device"


@event("session.timed_out", Kind.DECISION, Writer.CONVERSATION)
class SessionTimedOut(Data):
    """Nothing has come from any device for so long that the session is taken for closed."""

    waited_us: int


@event("session.ended", Kind.DECISION, Writer.CONVERSATION)
class SessionEnded(Data):
    """The end of everything: nothing of this session is open any more."""

    reason: Literal["closed", "abandoned", "fault"]
    """`fault`: an operator failed, see `fault.operator`."""
    turns: int
    responses: int


@event("clock.tick", Kind.OBSERVATION, Writer.PERCEPTION)
class ClockTick(Data):
    """Media time moved on without media; the envelope's media time says how far."""
