"""What the interrupt operator knows: the response that it guards, the overlap without a verdict, the user's usual level."""

from dataclasses import dataclass, field

from operators.judgement import Judgement
from operators.own_speech import OwnSpeech
from operators.reducer import NEVER, Hop
from operators.speaking import Speaking
from schemas.policy import Policy

LOUDER, SOFTER = 0.5, 0.005
"""Share of a voiced hop in the level of a voice, by whether it is louder: onsets, tails and soft syllables say little about it."""


def voice_level(before: float | None, level_db: float) -> float:
    """The level of a voice after one more voiced hop: it follows the loud ones."""
    if before is None:
        return level_db
    return before + (LOUDER if level_db > before else SOFTER) * (level_db - before)


@dataclass(slots=True)
class Overlap:
    """An overlap without a verdict. Times are media µs."""

    overlap: str
    start_us: int
    voiced_us: int
    burst_us: int
    """Voiced since the last pause: acknowledgements do not add up to an interruption."""
    deadline: int
    paused: bool = False
    resumed: bool = False
    """Its time was up, and playback went on without a verdict."""
    echo: float | None = None
    """The highest echo of its windows."""
    level_db: float | None = None
    pending: Judgement | None = None
    """What the rules say, while the classifier is asked."""
    request: str | None = None
    request_deadline: int = NEVER
    asked_at: int = 0


@dataclass(slots=True)
class InterruptState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    language: str = "en"
    acknowledged: bool = False
    speaking: Speaking | None = None
    interruptible: bool = True
    """Of the present response, whatever the policy says."""
    own: OwnSpeech = field(default_factory=OwnSpeech)
    overlap: Overlap | None = None
    voice: bool = False
    """The user's voice is active."""
    user_db: float | None = None
    """The user's usual level, from what was said outside of overlaps."""
    endpoint: float | None = None
    """The endpoint model's last answer since the overlap began."""
    turn_end: int = 0
    turn_ended_at: int = -1
    turn_open: bool = False
    count: int = 0
    epoch: int = 0

    @property
    def may_stop(self) -> bool:
        return self.interruptible and self.policy.overlap.interruptible

    def listen(self, hop: Hop) -> None:
        """Take note of a voiced hop."""
        overlap, length = self.overlap, hop.end_us - hop.start_us
        if overlap is not None:
            overlap.voiced_us += length
            overlap.burst_us += length
            overlap.level_db = voice_level(overlap.level_db, hop.level_db)
        else:
            self.hear_level(hop.level_db)

    def hear_level(self, level_db: float) -> None:
        """A voiced hop outside of overlaps makes the user's usual level."""
        if self.speaking is None or not self.speaking.started:
            self.user_db = voice_level(self.user_db, level_db)

    def drop_db(self, overlap: Overlap) -> float | None:
        """How far the overlapping voice lies below the user's usual level; None where that is not known."""
        if self.user_db is None or overlap.level_db is None:
            return None
        return self.user_db - overlap.level_db
