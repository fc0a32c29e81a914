"""What the assistant itself has just said, to know it again in a transcript (its echo from the loudspeaker).

A transcript is the assistant's own when enough of its pairs of neighbouring words were heard of the assistant just now, its turn
began while that was being played (or within `echo.tail` after), and the sound does not speak against it. Pairs, because single words
are shared by all talk, and because a garbled word costs two pairs and not the whole match. Heard, because an answer often begins with
the words of its question, and somebody who asks again as it begins is no echo of what has not been said yet.

`turn` and `interrupt` each keep one and show it the same events, so neither has to ask the other (law 1).
"""

from itertools import pairwise

from operators.heard import words
from operators.reducer import Hop
from operators.speaking import EVENTS as SPEAKING_EVENTS
from operators.speaking import Speaking
from schemas.envelope import Event
from schemas.perception import PerceptionWindow
from schemas.policy import EchoPolicy, Policy

EVENTS = SPEAKING_EVENTS | {
    "session.configured",
    "response.requested",
    "response.prepared",
    "response.ended",
    "response.failed",
    "response.cancelled",
}
"""What `observe` wants to see."""


def is_echo(hop: Hop | PerceptionWindow, policy: EchoPolicy) -> bool:
    """Whether a hop's sound is what was played, so that it says nothing about the user's voice."""
    return hop.echo is not None and policy.threshold < 1 and hop.echo >= policy.threshold


class OwnSpeech:
    """What was heard of the response that is played, and of the one before. Times are media µs."""

    __slots__ = ("_ack_interval", "_acknowledged", "_before", "_speaking", "ended_at")

    def __init__(self) -> None:
        self._acknowledged, self._ack_interval = False, Policy().playback.ack_interval
        self._speaking: Speaking | None = None
        self._before = ""
        self.ended_at = -1

    def observe(self, event: Event, now: int) -> None:
        data, speaking = event.data, self._speaking
        match event.type:
            case "session.configured":
                self._acknowledged = data.playback == "acknowledged"
                self._ack_interval = data.policy.playback.ack_interval
            case "response.requested" | "response.prepared":
                if speaking is None or speaking.response != data.response:
                    self._speaking = Speaking(data.response, self._ack_interval, self._acknowledged)
            case "response.ended" | "response.failed" | "response.cancelled":
                if speaking is not None and speaking.response == data.response:
                    if speaking.started:
                        self._before, self.ended_at = data.heard_text, now
                    self._speaking = None
            case _ if speaking is not None:
                speaking.observe(event, now)

    def is_own(
        self, text: str, start_us: int, now: int, heard_echo: float | None, policy: EchoPolicy
    ) -> bool:
        """Whether a text that was said from `start_us` on is the assistant's; `heard_echo` is the highest echo of its windows."""
        if heard_echo is not None and heard_echo < policy.clear:
            return False
        speaking = self._speaking
        playing = speaking is not None and speaking.started
        if not playing and (self.ended_at < 0 or start_us > self.ended_at + policy.tail):
            return False
        said = words(text)
        if len(said) < policy.least_words or len(said) < 2:
            return False
        heard = [self._before]
        if speaking is not None:
            heard.append(speaking.text_until(speaking.heard_us(now)))
        own = {pair for one in heard for pair in pairwise(words(one))}
        pairs = list(pairwise(said))
        return sum(pair in own for pair in pairs) >= policy.match * len(pairs)
