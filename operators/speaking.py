"""One response as the operators know it: its sentences, its speech, and how much of it was heard.

`interrupt` and `respond` each keep one and show it the same events, so neither has to ask the other (law 1).
"""

from operators.heard import Sentence, heard_text
from operators.playout import Playout
from schemas.envelope import Event

EVENTS = frozenset(
    {
        "speech.requested",
        "response.speech",
        "speech.completed",
        "speech.failed",
        "response.started",
        "floor.paused",
        "floor.resumed",
        "playback.ack",
    }
)
"""What `observe` wants to see."""


class _Voice:
    __slots__ = ("done", "place", "rate", "request", "samples", "text")

    def __init__(self, request: str, text: str) -> None:
        self.request = request
        self.text = text
        self.samples = 0
        self.rate = 0
        self.place: int | None = None
        """Its place among the sentences that are played: they sound in the order in which their speech came."""
        self.done = False

    @property
    def duration_us(self) -> int:
        return self.samples * 1_000_000 // self.rate if self.rate else 0


class Speaking:
    """A response from its request to its end. `acknowledged`: whether the device says what it has played."""

    __slots__ = ("acked_us", "acknowledged", "playout", "response", "started", "voices")

    def __init__(self, response: str, ack_interval: int, acknowledged: bool) -> None:
        self.response = response
        self.acknowledged = acknowledged
        self.playout = Playout(response, ack_interval)
        self.voices: dict[int, _Voice] = {}
        self.started = False
        self.acked_us = 0

    def observe(self, event: Event, now: int) -> bool:
        """Take note of an event; returns whether it was about this response."""
        data = event.data
        if event.type == "response.speech":
            if event.correlation != self.response:
                return False
            for voice in self.voices.values():
                if voice.request == event.cause:
                    if voice.place is None:
                        voice.place = sum(v.place is not None for v in self.voices.values())
                    voice.samples += data.samples
                    voice.rate = data.rate
            self.playout.speech(now, data.samples, data.rate)
            return True
        if getattr(data, "response", None) != self.response:
            return False
        match event.type:
            case "speech.requested":
                self.voices[data.index] = _Voice(event.id, data.text)
            case "speech.completed" | "speech.failed":
                if data.index in self.voices and self.voices[data.index].request == event.cause:
                    self.voices[data.index].done = True
            case "response.started":
                self.started = True
                self.playout.start(now)
            case "floor.paused":
                self.playout.pause(now)
            case "floor.resumed":
                self.playout.resume(now)
            case "playback.ack":
                self.acked_us = max(self.acked_us, min(data.played_us, self.playout.received_us))
                self.playout.acknowledged(self.acked_us, now, data.state == "playing")
        return True

    @property
    def all_spoken(self) -> bool:
        """Every sentence that was asked for has been synthesised (or has failed)."""
        return all(voice.done for voice in self.voices.values())

    def heard_us(self, now: int) -> int:
        """What has been played, at most two acknowledgement intervals beyond what the device has said."""
        played = self.playout.played_us(now)
        if not self.acknowledged:
            return played
        return (
            max(self.acked_us, min(played, self.acked_us + 2 * self.playout.ack_interval))
            if self.started
            else 0
        )

    def text_until(self, played_us: int) -> str:
        """The words that had ended after `played_us` of its speech."""
        in_order = sorted(
            self.voices.items(),
            key=lambda item: (item[1].place is None, item[1].place or 0, item[0]),
        )
        sentences = [Sentence(v.text, v.duration_us, v.done) for _, v in in_order]
        return heard_text(sentences, played_us)

    def all_heard(self, now: int) -> bool:
        """Everything synthesised has been played, to within a millisecond of rounding."""
        played = self.acked_us if self.acknowledged else self.playout.played_us(now)
        return played + 1_000 >= self.playout.received_us
