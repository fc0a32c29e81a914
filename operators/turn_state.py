"""What the turn operator knows: the turn that is open, the one before, and the session around them. All times in media µs."""

from dataclasses import dataclass, field
from typing import Literal

from operators.activity import SpeechActivity
from operators.own_speech import OwnSpeech
from operators.reducer import EVERY_HOP
from operators.wording import Wording
from schemas.base import SAMPLE_RATE
from schemas.policy import Policy
from schemas.turns import EndReason

AWAITED_MOST = 64
"""Requests of ended turns whose answers are still looked out for."""

WORDS_CHARS = 64_000
"""Of a turn's text, whatever a device offers."""

S = 1_000_000


def samples(duration_us: int) -> int:
    return duration_us * SAMPLE_RATE // S


@dataclass(slots=True)
class OpenTurn:
    """The turn that is open."""

    turn: str
    start_us: int
    epoch: int
    audio_start: int
    """First sample of the audio that is still to be transcribed."""
    audio_start_us: int
    by: Literal["speech", "transcript"] = "speech"
    """`transcript`: voice activity knows nothing of it (yet)."""
    context_start: int = 0
    """First sample that the endpoint model may hear: that of the turn which this one continues, if any."""
    asked: bool = False
    """Whether the models were asked about the present pause."""
    probability: float | None = None
    endpoint_failed: bool = False
    wording: Wording | None = None
    """What the words say about the present pause; None while they are not known."""
    held_until: int | None = None
    """What was said last about how long the present pause is waited out at most."""
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
    earlier: str | None = None
    """The text at an earlier pause of the same part, should the next transcript fail."""
    offered: list[str] = field(default_factory=list)
    """Final texts that the device offered."""
    interim: str = ""
    """An offered text whose final form has not come."""
    offered_at: int = 0
    offered_end: int = 0
    echo: float | None = None
    """The highest echo of its windows."""
    reply: bool = True

    def words(self) -> str:
        """What is known of its text: the transcript, else an earlier one, else what the device offered."""
        last = self.text if self.text is not None else self.earlier
        own = " ".join(part for part in (*self.texts, last or "") if part)
        interim = self.interim if self.text is None else ""
        words = own or " ".join(part for part in (*self.offered, interim) if part)
        return words[:WORDS_CHARS]


@dataclass(slots=True)
class LastTurn:
    """The turn before, as long as somebody may come back to it."""

    turn: str
    start_us: int
    end_us: int
    ended_at: int
    epoch: int
    context_start: int
    echo: float | None
    text: str
    may_continue: bool
    """It wants an answer, and nobody has heard one."""


@dataclass(slots=True)
class TurnState:
    alarm: int = EVERY_HOP
    policy: Policy = field(default_factory=Policy)
    channel: str = "mic"
    language: str = "en"
    activity: SpeechActivity = field(default_factory=SpeechActivity)
    own: OwnSpeech = field(default_factory=OwnSpeech)
    turn: OpenTurn | None = None
    last: LastTurn | None = None
    count: int = 0
    epoch: int = 0
    end_sample: int = 0
    """Samples of the epoch that have been heard."""
    heard_until: int = 0
    """Media time of the last hop's end."""
    last_turn_end: int = 0
    muted: bool = False
    closed_at: int | None = None
    looked_at: int | None = None
    """When all that time may bring was last looked at and nothing followed; None where something has happened since."""
    calm_until: int | None = None
    """The first deadline after that; None where it has not been looked for."""
    awaited: dict[str, str] = field(default_factory=dict)
    """Requests for which the answer's kind is awaited by no open turn any more → their turn, for late transcripts."""

    @property
    def silent_since(self) -> int | None:
        """Where the user fell silent; None while speaking."""
        activity, turn = self.activity, self.turn
        if activity.active:
            return activity.silence_start
        if turn is not None and turn.by == "transcript":
            return max(activity.stop, turn.offered_at)
        return activity.stop

    @property
    def turn_id(self) -> str | None:
        return None if self.turn is None else self.turn.turn

    def await_late(self, request: str, turn: str) -> None:
        self.awaited[request] = turn
        if len(self.awaited) > AWAITED_MOST:
            del self.awaited[next(iter(self.awaited))]
