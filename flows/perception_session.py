"""What perception knows of a session that is open, or whose media came before its `session.opened`."""

from flows.perception_channel import Channel, Pending
from flows.perception_restart import SessionHistory
from flows.ticker import Ticker
from operators.echo import EchoMeter
from operators.played import Played
from operators.window import us_to_samples
from schemas.envelope import Event
from schemas.record import StoredRecord
from schemas.session import SessionOpened


class PerceivedSession:
    """What perception knows of an open session, or of one whose media came first."""

    __slots__ = (
        "asap",
        "channel",
        "channels",
        "close_end",
        "close_us",
        "echo_meter",
        "first",
        "flushed",
        "heard_s",
        "history",
        "media_us",
        "name",
        "opened",
        "partition",
        "played",
        "ticker",
    )

    def __init__(self, record: StoredRecord, now: float, history: SessionHistory | None) -> None:
        self.name, self.partition = record.key or "", record.partition
        self.first, self.heard_s = record, now
        """Its first record (for a rejection), and when its last one was read."""
        self.history = history
        self.opened = self.asap = self.flushed = False
        self.channel = ""
        self.channels: dict[str | None, Channel] = {}
        self.media_us = 0
        self.close_us = 0
        self.close_end: int | None = None
        self.played, self.echo_meter = Played(), EchoMeter()
        ticked = history.ticked_us if history is not None else 0
        self.ticker = Ticker(now, 0, ticked_us=ticked)

    @property
    def reached_us(self) -> int:
        return max(self.media_us, self.ticker.ticked_us)

    def logged(self, id_: str) -> bool:
        return self.history is not None and id_ in self.history.ids

    def channel_of(self, correlation: str | None) -> Channel:
        """The channel of a record. Its key is None for the session's own, named or not."""
        key = None if self.opened and correlation == self.channel else correlation
        channel = self.channels.get(key)
        if channel is None:
            name = self.channel if key is None else key
            held = None if self.history is None else self.history.channels.get(name)
            channel = self.channels[key] = Channel(key, held)
        return channel

    def playback(self, event: Event) -> None:
        """What the loudspeaker has to play, and what its device says of it."""
        at_us = self.media_us if event.mediatime is None else event.mediatime
        self.played.follow(event, at_us)

    def echo(self, channel: Channel, pending: Pending) -> float | None:
        """The echo of a window of the user's channel; in an asap session sound is sent before it is known what is played."""
        if channel.name is not None or self.asap:
            return None
        first = us_to_samples(pending.start_us)
        return self.echo_meter.hear(pending.window.audio, first, self.played)

    def open(self, facts: SessionOpened, now: float) -> None:
        self.opened, self.channel, self.asap = True, facts.channel, facts.pacing == "asap"
        self.ticker = Ticker(
            now,
            self.reached_us,
            asap=self.asap,
            ticked_us=self.ticker.ticked_us,
            floor_us=self.history.reached_us if self.history is not None else 0,
        )
        named = self.channels.pop(facts.channel, None)
        if named is not None and None not in self.channels:
            named.name = None
            self.channels[None] = named
