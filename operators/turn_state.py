"""What the turn operator knows: the turn that is open, and the session around it."""

from dataclasses import dataclass, field

from operators.activity import SpeechActivity
from operators.reducer import EVERY_HOP
from schemas.policy import Policy
from schemas.turns import EndReason


@dataclass(slots=True)
class OpenTurn:
    """The turn that is open. All times in media µs."""

    turn: str
    start_us: int
    epoch: int
    audio_start: int
    """First sample of the audio that is still to be transcribed."""
    audio_start_us: int
    asked: bool = False
    """Whether the models were asked about the present pause."""
    probability: float | None = None
    endpoint_failed: bool = False
    held: bool = False
    settled: EndReason | None = None
    settled_at: int = 0
    endpoint_request: str | None = None
    transcript_request: str | None = None
    transcript_end: int = 0
    """Last sample of the audio that the awaited or last transcript covers."""
    transcript_end_us: int = 0
    deadline_told: bool = False
    texts: list[str] = field(default_factory=list)
    """Text of the parts that are transcribed for good."""
    text: str | None = None
    """Text of the part from `audio_start` on; None where there is none yet."""
    reply: bool = True


@dataclass(slots=True)
class TurnState:
    alarm: int = EVERY_HOP
    policy: Policy = field(default_factory=Policy)
    channel: str = "mic"
    language: str = "en"
    activity: SpeechActivity = field(default_factory=SpeechActivity)
    turn: OpenTurn | None = None
    count: int = 0
    epoch: int = 0
    end_sample: int = 0
    """Samples of the epoch that have been heard."""
    heard_until: int = 0
    """Media time of the last hop's end."""
    last_turn_end: int = 0
    muted: bool = False
    closed_at: int | None = None
    awaited: dict[str, str] = field(default_factory=dict)
    """Requests for which the answer's kind is awaited by no open turn any more → their turn, for late transcripts."""

    @property
    def silent_since(self) -> int | None:
        """Where the user fell silent; None while speaking."""
        activity = self.activity
        return activity.silence_start if activity.active else activity.stop

    @property
    def turn_id(self) -> str | None:
        return None if self.turn is None else self.turn.turn
