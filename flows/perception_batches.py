"""Perception without Bytewax: a batch of what was read in, the records to append out.

Rules:
- Media is assembled as it comes, opened session or not, so that samples depend on the media lane alone;
  what it became waits, bounded, for `session.opened`, which is answered with `session.configured`.
- What a batch yields is appended in this order: answers and rejections at once, then the windows of all
  channels in rounds, then ticks. Within a channel, notes and windows keep the order of the media.
- `session.closed` is acted on when the media lane has been read up to where it ended at that time: the
  last window is padded, and later media is late.
- Everything of a session is dropped at `session.ended`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flows.perception_channel import Channel, Note, Pending
from flows.perception_model import MAX_BATCH, Vad, VadRounds
from flows.perception_records import (
    WIRE,
    configured_id,
    configured_record,
    glance,
    note_id,
    note_record,
    rejected_record,
    tick_record,
    window_record,
    written_by_flow,
)
from flows.perception_restart import History
from flows.perception_session import PerceivedSession
from infra.clock import monotonic_s
from operators.played import EVENTS as PLAYBACK
from schemas.base import Kind, Writer
from schemas.cloudevents import UnknownType, decode
from schemas.envelope import Event
from schemas.errors import BadRecord, TimelineUnavailable
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import KINDS, MEDIA_TYPES, MODELS, forged

log = logging.getLogger(__name__)

WAITING_SESSIONS = 256
WAITING_S = 60.0
"""After so long without a further record, the media of a session that nobody opened is given up."""
CLOSE_S = 10.0
"""A closed session's media is taken as complete when its partition has been silent for so long,
whatever the offsets say (the end of a Kafka partition may be a hole).
"""
ENDED_KEPT = 100_000
_ENDED = WIRE["session.ended"]
_PLAYBACK = frozenset(WIRE[name] for name in PLAYBACK)
_MURMUR = (
    "its key belongs to partition {right}; write with Kafka's murmur2 partitioner "
    "(librdkafka: partitioner=murmur2_random)"
)


class Wake:
    """An item that says nothing but that time has passed."""


WAKE = Wake()


class Perception:
    """The flow without Bytewax: a batch of items in, the records to append out.

    Args:
        vad: the voice activity model.
        partition_of: the partition in which a session lives.
        media_end: the end of a partition of the media lane now; may raise TimelineUnavailable.
        operators: name → version of the decision operators, for `session.configured`.
        models: what the models are, for `session.configured`.
        wishes: policy of this installation, before the device's own wishes.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        vad: Vad,
        partition_of: Callable[[str], int],
        media_end: Callable[[int], int],
        operators: Mapping[str, int],
        models: Mapping[str, str],
        clock: Callable[[], float] = monotonic_s,
        wishes: Mapping[str, Any] = {},
    ) -> None:
        self._rounds = VadRounds(vad, clock)
        self._partition_of, self._media_end, self._clock = partition_of, media_end, clock
        self._operators, self._models = dict(operators), dict(models)
        self._wishes = dict(wishes)
        self._log = History()
        self._sessions: dict[str, PerceivedSession] = {}
        self._waiting: dict[str, PerceivedSession] = {}
        self._closing: dict[str, PerceivedSession] = {}
        self._ready: dict[Channel, PerceivedSession] = {}
        self._media_next: dict[int, int] = {}
        self._media_s: dict[int, float] = {}

    @property
    def sessions(self) -> int:
        """How many sessions are held."""
        return len(self._sessions)

    def on_batch(self, items: Sequence[StoredRecord | History | Wake]) -> list[Record]:
        """Take items in order; return the records to append, in order."""
        out: list[Record] = []
        now = self._clock()
        for item in items:
            if isinstance(item, StoredRecord):
                self._record(item, now, out)
            elif isinstance(item, History):
                self._log = item
                self._media_next.update(item.media_starts)
        drained = self._close(now)
        self._listen(out)
        for session in drained:
            closed_us = max(session.close_us, session.media_us)
            out += [tick_record(session.name, t) for t in session.ticker.drain(now, closed_us)]
        self._tick(out)
        return out

    def _record(self, record: StoredRecord, now: float, out: list[Record]) -> None:
        try:
            if record.lane is Lane.MEDIA:
                self._media_next[record.partition] = record.offset + 1
                self._media_s[record.partition] = now
                self._media(record, now, out)
            else:
                self._event(record, now, out)
        except Exception as error:
            # Nothing here asks anybody else, so trying again would end the same way, for every session (law 11).
            log.exception("%s %d/%d", record.lane.value, record.partition, record.offset)
            detail = f"perception could not take it: {type(error).__name__}: {error}"
            self._reject(record, "unreadable", detail, out)

    # --- the media lane

    def _media(self, record: StoredRecord, now: float, out: list[Record]) -> None:
        log, key = self._log, record.key
        if log.rejected and (record.lane.value, record.partition, record.offset) in log.rejected:
            return
        old = record.offset < log.media_ends.get(record.partition, 0)
        if key in log.ended:
            if not old:
                self._reject(record, "late", "its session has ended", out)
            return
        if old and key in log.forgotten:
            return
        event = self._decoded(record, out)
        if event is None:
            return
        if event.type not in MEDIA_TYPES:
            self._reject(record, "invalid", f"{event.type} belongs on the timeline lane", out)
            return
        session = self._sessions.get(event.session)
        if session is None:
            session = self._first_media(record, now, out)
        if session.flushed:
            self._reject(record, "late", "its session was closed and its media is complete", out)
            return
        channel = session.channel_of(event.correlation)
        before_us = channel.end_us
        others = session.media_us > channel.end_us
        rejected = channel.feed(event, session.reached_us, others)
        if rejected is not None:
            self._reject(record, rejected.reason, rejected.detail, out)
        session.media_us = max(session.media_us, channel.end_us)
        session.heard_s = now
        if session.opened:
            if channel.end_us != before_us:  # what is repeated or refused is not media
                session.ticker.heard(now, session.media_us)
            if channel.work:
                self._ready[channel] = session
        else:
            channel.keep_waiting()

    def _first_media(self, record: StoredRecord, now: float, out: list[Record]) -> PerceivedSession:
        session = self._new_session(record, now)
        self._waiting[session.name] = session
        if len(self._waiting) > WAITING_SESSIONS:
            self._give_up(next(iter(self._waiting.values())), out)
        return session

    def _give_up(self, session: PerceivedSession, out: list[Record]) -> None:
        del self._waiting[session.name], self._sessions[session.name]
        detail = "media came, from this record on, but no session.opened; it was dropped"
        self._reject(session.first, "no_session", detail, out)

    # --- the timeline lane

    def _event(self, record: StoredRecord, now: float, out: list[Record]) -> None:
        wire, source = glance(record.headers)
        if written_by_flow(wire, source):
            if wire == _ENDED and record.key:
                self._end(record.key)
            elif wire in _PLAYBACK:
                self._playback(record, out)
            return
        event = self._decoded(record, out)
        if event is None or event.session in self._log.ended:
            return
        if event.type in MEDIA_TYPES:
            self._reject(record, "invalid", f"{event.type} belongs on the media lane", out)
            return
        writer = MODELS[event.type].WRITER
        if writer is not Writer.DEVICE:
            if forged(event.type, event.source):
                detail = f"only {writer} writes {event.type}, not {event.source}"
                self._reject(record, "wrong_writer", detail, out)
            return
        session = self._sessions.get(event.session)
        if event.type == "session.opened":
            self._open(record, event, session, now, out)
        elif session is not None and session.opened and KINDS[event.type] is Kind.OBSERVATION:
            if session.asap:
                session.ticker.heard(now, session.media_us)
            if event.type in PLAYBACK:
                session.playback(event)
            elif event.type == "session.closed" and not session.flushed:
                session.close_us = max(session.close_us, event.mediatime or 0)
                session.heard_s = now
                self._closing[session.name] = session

    def _playback(self, record: StoredRecord, out: list[Record]) -> None:
        session = self._sessions.get(record.key or "")
        if session is not None and session.opened and not session.asap:
            event = self._decoded(record, out)
            if event is not None:
                session.playback(event)

    def _open(
        self,
        record: StoredRecord,
        event: Event,
        session: PerceivedSession | None,
        now: float,
        out: list[Record],
    ) -> None:
        if session is not None and session.opened:
            if session.asap:  # a device that waits repeats its last word
                session.ticker.heard(now, session.media_us)
            return
        if session is None:
            session = self._new_session(record, now)
        self._waiting.pop(session.name, None)
        session.open(event.data, now)
        if not session.logged(configured_id(event)):
            out.append(configured_record(event, self._operators, self._models, self._wishes))
        for channel in session.channels.values():
            self._ready[channel] = session

    def _new_session(self, record: StoredRecord, now: float) -> PerceivedSession:
        session = PerceivedSession(record, now, self._log.sessions.pop(record.key or "", None))
        self._sessions[session.name] = session
        return session

    def _end(self, key: str) -> None:
        ended = self._log.ended
        ended[key] = None
        if len(ended) > ENDED_KEPT:
            del ended[next(iter(ended))]
        session = self._sessions.pop(key, None)
        self._waiting.pop(key, None)
        self._closing.pop(key, None)
        self._log.sessions.pop(key, None)
        if session is not None:
            for channel in session.channels.values():
                self._ready.pop(channel, None)

    def _close(self, now: float) -> list[PerceivedSession]:
        """Finish the media of closed sessions whose media has all been read; the `asap` ones among them."""
        done = [s for s in self._closing.values() if self._all_read(s, now)]
        for session in done:
            del self._closing[session.name]
            session.flushed = True
            for channel in session.channels.values():
                channel.finish()
                self._ready[channel] = session
                session.media_us = max(session.media_us, channel.end_us)
            session.ticker.heard(session.heard_s, max(session.close_us, session.media_us))
        return [session for session in done if session.asap]

    def _all_read(self, session: PerceivedSession, now: float) -> bool:
        if session.close_end is None:
            try:
                session.close_end = self._media_end(session.partition)
            except TimelineUnavailable:
                return False
        read = self._media_next.get(session.partition, 0)
        quiet_s = now - max(session.heard_s, self._media_s.get(session.partition, 0.0))
        return read >= session.close_end or quiet_s >= CLOSE_S

    # --- both

    def _decoded(self, record: StoredRecord, out: list[Record]) -> Event | None:
        """The event of a record that is where it belongs; else None, and it is rejected."""
        try:
            event = decode(record)
        except UnknownType:
            return None
        except BadRecord as error:
            self._reject(record, "unreadable", str(error), out)
            return None
        right = self._partition_of(event.session)
        if right != record.partition:
            self._reject(record, "wrong_partition", _MURMUR.format(right=right), out)
            return None
        return event

    def _reject(self, record: StoredRecord, reason: str, detail: str, out: list[Record]) -> None:
        if (record.lane.value, record.partition, record.offset) not in self._log.rejected:
            out.append(rejected_record(record, reason, detail))

    def _listen(self, out: list[Record]) -> None:
        """Work everything off in rounds: the next window of every channel that has one."""
        ready = self._ready
        while ready:
            batch: list[tuple[Channel, Pending]] = []
            for channel in list(ready):
                session = ready.pop(channel)
                pending = _next_window(channel, session, out)
                if pending is not None:
                    ready[channel] = session  # to the end: nobody waits for more than his turn
                    batch.append((channel, pending))
                    if len(batch) == MAX_BATCH:
                        break
            if not batch:
                return
            for (channel, pending), heard in zip(batch, self._rounds.hear(batch), strict=True):
                session = ready[channel]
                echo = session.echo(channel, pending)
                if not pending.logged:
                    name = channel.name or session.channel
                    out.append(window_record(session.name, name, pending, *heard, echo))

    def _tick(self, out: list[Record]) -> None:
        now = self._clock()
        for session in self._sessions.values():
            if session.opened:
                at_us = session.ticker.due(now)
                if at_us is not None:
                    out.append(tick_record(session.name, at_us))
        for session in list(self._waiting.values()):
            if now - session.heard_s >= WAITING_S:
                self._give_up(session, out)


def _next_window(channel: Channel, session: PerceivedSession, out: list[Record]) -> Pending | None:
    """Append the channel's notes up to its next window, and take that."""
    work = channel.work
    while work:
        item = work.popleft()
        if isinstance(item, Note):
            name = channel.name or session.channel
            if not session.logged(note_id(session.name, name, item)):
                out.append(note_record(session.name, name, item))
        else:
            channel.windows -= 1
            return item
    return None
