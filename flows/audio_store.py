"""The user's audio as requests name it: the media lane of the open sessions, kept until a request
asks for samples.

Rules:
- Most audio is never asked for, so the flow's thread only puts the raw records aside (`add`); they
  become samples when a request wants some, or in one go when a session's backlog is long. Samples
  are counted by the same `ChannelAssembler` as in perception: the same records in the same order
  give the same samples, however late.
- The last `KEEP_S` seconds of a channel can be asked for. The two lanes have no mutual order: who
  asks for samples that were not read yet waits for them.
- A window may reach beyond the last sample of its format epoch, padded with silence; so may a
  request. What cannot come any more (a newer epoch has begun, or the session is closed and `TAIL_S`
  have passed) is silence here too.
- Media waits for its session's configuration, which names the channel of records that name none.
  Sessions that were never configured are bounded in number and size; an ended session's media is
  dropped, also what still comes.

Threads: `add`, `configured`, `closed` and `ended` belong to the flow's thread, all else to the
loop's; what lies between is the deque of raw records, and calls into the loop.
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from operators.window import AudioRing, ChannelAssembler, EpochStarted, Samples
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.cloudevents import decode
from schemas.errors import BadRecord, VenusError
from schemas.perception import AudioSpan
from schemas.record import StoredRecord

KEEP_S = 70
BACKLOG_BYTES = 1 << 19
"""Raw audio of a session that is put aside before it is counted anyway: 16 s at 16 kHz, 5 s at 48
kHz.
"""
UNCONFIGURED_BYTES = 8 << 20
"""Raw audio kept of a session whose configuration has not come; beyond, the session's audio cannot
be counted any more.
"""
UNCONFIGURED_SESSIONS = 256
ENDED_KEPT = 10_000
TAIL_S = 0.5
"""How long after a session's close (wall time) its last media may still be under way here."""
TAIL_SAMPLES = 2 * WINDOW_SAMPLES
"""At most so much of a request may be silence: the padding of a window, and a filter's tail."""


class AudioGone(VenusError):
    """The samples can never be had: too old, or their session's audio is incomplete here."""


@dataclass(slots=True)
class _Channel:
    assembler: ChannelAssembler
    ring: AudioRing
    ends: dict[int, int] = field(default_factory=dict)
    """Format epoch → the sample after its last one here, in the order of the epochs."""


@dataclass(slots=True)
class _Session:
    channel: str | None = None
    """The channel of records that name none; None until the session is configured."""
    raw: deque[StoredRecord] = field(default_factory=deque)
    backlog: int = 0
    broken: bool = False
    complete: bool = False
    """Closed, and its last media is here."""
    channels: dict[str, _Channel] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class AudioStore:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.caught_up = asyncio.Event()
        """Whether what the media lane held at the start has been read."""
        self.caught_up.set()
        self._sessions: dict[str, _Session] = {}
        self._unconfigured: OrderedDict[str, None] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    # --- the flow's thread

    def add(self, record: StoredRecord) -> None:
        """A record of the media lane."""
        key = record.key
        if not key or key in self._ended:
            return
        session = self._session(key)
        if session.channel is None and session.backlog > UNCONFIGURED_BYTES:
            session.broken = True
            return
        session.raw.append(record)
        session.backlog += len(record.value)
        if session.waiting or (session.backlog > BACKLOG_BYTES and session.channel is not None):
            session.backlog = 0
            self._loop.call_soon_threadsafe(self._digest, session)

    def configured(self, key: str, channel: str) -> None:
        if key not in self._ended:
            session = self._session(key)
            session.channel = session.channel or channel
            self._unconfigured.pop(key, None)
            if session.waiting:
                self._loop.call_soon_threadsafe(self._digest, session)

    def closed(self, key: str) -> None:
        session = self._sessions.get(key)
        if session is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, TAIL_S, self._complete, session)

    def ended(self, key: str) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)
        self._unconfigured.pop(key, None)
        self._sessions.pop(key, None)

    def _session(self, key: str) -> _Session:
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
            self._unconfigured[key] = None
            if len(self._unconfigured) > UNCONFIGURED_SESSIONS:
                oldest, _ = self._unconfigured.popitem(last=False)
                del self._sessions[oldest]
        return session

    # --- the loop's thread

    async def span(self, key: str, span: AudioSpan) -> NDArray[np.int16]:
        """The samples that a request names, as soon as they are there. The caller bounds the wait.

        Raises:
            AudioGone: they can never be there.
        """
        session = self._sessions.get(key)
        if session is None:
            if key in self._ended:
                raise AudioGone(f"session {key} has ended; its audio is not kept")
            session = await self._first_media(key)
        session.waiting += 1
        try:
            while True:
                self._digest(session)
                found = self._cut(session, span)
                if found is not None:
                    return found
                session.arrived.clear()
                await session.arrived.wait()
        finally:
            session.waiting -= 1

    async def _first_media(self, key: str) -> _Session:
        """A request came before all else of its session: look again until there is something."""
        while (session := self._sessions.get(key)) is None:
            await asyncio.sleep(0.02)
        return session

    def _cut(self, session: _Session, span: AudioSpan) -> NDArray[np.int16] | None:
        if session.broken:
            raise AudioGone(
                "the session's audio came long before its configuration and was not kept"
            )
        channel = session.channels.get(span.channel)
        if channel is None or span.epoch not in channel.ends:
            return None
        missing = span.end_sample - channel.ends[span.epoch]
        no_more = session.complete or next(reversed(channel.ends)) > span.epoch
        if missing > (TAIL_SAMPLES if no_more else 0):
            return None
        try:
            return channel.ring.span(span.epoch, span.first_sample, span.end_sample)
        except (LookupError, ValueError, VenusError) as error:
            raise AudioGone(
                f"samples {span.first_sample} to {span.end_sample} of {span.channel} "
                f"(epoch {span.epoch}) are not held any more; the last {KEEP_S} s are ({error})"
            ) from error

    def _complete(self, session: _Session) -> None:
        self._digest(session)
        session.complete = True
        session.arrived.set()

    def _digest(self, session: _Session) -> None:
        """Turn what was put aside into samples."""
        default = session.channel
        if default is None:
            return
        raw = session.raw
        while raw:
            record = raw.popleft()
            try:
                event = decode(record)
            except BadRecord:
                continue  # perception rejects it; it has no samples
            name = event.correlation or default
            channel = session.channels.get(name)
            if channel is None:
                channel = session.channels[name] = _Channel(
                    ChannelAssembler(), AudioRing(KEEP_S * SAMPLE_RATE)
                )
            for part in channel.assembler.feed(
                event.source, event.id, event.sequence, event.mediatime, event.data
            ):
                if isinstance(part, EpochStarted):
                    channel.ends[part.epoch] = 0
                elif isinstance(part, Samples):
                    channel.ring.add(part.epoch, part.first_sample, part.samples)
                    channel.ends[part.epoch] = part.first_sample + len(part.samples)
        session.arrived.set()
