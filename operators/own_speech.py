"""What the assistant itself has just said, to know it again in a transcript (its echo from the loudspeaker).

A transcript is the assistant's own when enough of its pairs of neighbouring words were spoken by the assistant lately, its turn
began while that was being played (or within `echo.tail` after), and the sound does not speak against it. Pairs, because single words
are shared by all talk, and because a garbled word costs two pairs and not the whole match.

`turn` and `interrupt` each keep one and show it the same events, so neither has to ask the other (law 1).
"""

from collections import deque
from itertools import pairwise

from operators.heard import words
from operators.reducer import Hop
from schemas.envelope import Event
from schemas.perception import PerceptionWindow
from schemas.policy import EchoPolicy

EVENTS = frozenset(
    {
        "speech.requested",
        "response.started",
        "response.ended",
        "response.failed",
        "response.cancelled",
    }
)
"""What `observe` wants to see."""

SENTENCES = 24
"""Sentences that are remembered."""


def is_echo(hop: Hop | PerceptionWindow, policy: EchoPolicy) -> bool:
    """Whether a hop's sound is what was played, so that it says nothing about the user's voice."""
    return hop.echo is not None and policy.threshold < 1 and hop.echo >= policy.threshold


class OwnSpeech:
    """The last sentences of the assistant. Times are media µs."""

    __slots__ = ("_said", "ended_at", "response", "started_at")

    def __init__(self) -> None:
        self._said: deque[tuple[str, tuple[str, ...]]] = deque(maxlen=SENTENCES)
        self.response: str | None = None
        """The response that is being played."""
        self.started_at = -1
        """When the last response was started; -1 before the first."""
        self.ended_at = -1

    def observe(self, event: Event, now: int) -> None:
        data = event.data
        match event.type:
            case "speech.requested":
                self._said.append((data.response, tuple(words(data.text))))
            case "response.started":
                self.response, self.started_at = data.response, now
            case _ if data.response == self.response:
                self.response, self.ended_at = None, now

    def is_own(
        self, text: str, start_us: int, heard_echo: float | None, policy: EchoPolicy
    ) -> bool:
        """Whether a text that was said from `start_us` on is the assistant's; `heard_echo` is the highest echo of its windows."""
        if self.started_at < 0 or (heard_echo is not None and heard_echo < policy.clear):
            return False
        if self.response is None and start_us > self.ended_at + policy.tail:
            return False
        said = words(text)
        if len(said) < policy.least_words or len(said) < 2:
            return False
        own = {pair for _, sentence in self._said for pair in pairwise(sentence)}
        pairs = list(pairwise(said))
        return sum(pair in own for pair in pairs) >= policy.match * len(pairs)
