"""What the log holds already when perception starts (law 11).

The timeline lane is looked through once. Of each open session that gives: which outcomes are there (by
id), per channel the last window and the last reset before it, and where epochs began. The media lane is
then read again from the first record of a session that is not over: the same records give the same
samples; the model hears them only from the last reset on, and only what follows the last logged window
is appended. Sessions that have ended are done with. What is being played when it starts is followed again from its beginning; what was
played before that is forgotten, and with it how the room sounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from flows.perception_channel import ChannelHistory
from flows.perception_records import WIRE, glance, header, written_by_flow
from infra.timeline.port import Place, Timeline
from operators.window import us_to_samples
from schemas.cloudevents import UnknownType, decode
from schemas.errors import BadRecord
from schemas.record import Lane, StoredRecord
from schemas.registry import forged

_WINDOW, _FORMAT, _GAP = (WIRE[f"perception.{n}"] for n in ("window", "format_changed", "gap"))
_REJECTED, _TICK = WIRE["event.rejected"], WIRE["clock.tick"]
_SPEECH, _ACK = WIRE["response.speech"], WIRE["playback.ack"]
_RESPONSE_OVER = frozenset(WIRE[f"response.{n}"] for n in ("ended", "cancelled", "failed"))
_OPENED, _CLOSED, _ENDED = (WIRE[f"session.{n}"] for n in ("opened", "closed", "ended"))


@dataclass(slots=True)
class SessionHistory:
    """What the log holds of a session that has not ended."""

    ids: set[str] = field(default_factory=set)
    """Ids of the outcomes of perception, windows and ticks apart."""
    channels: dict[str, ChannelHistory] = field(default_factory=dict)
    reached_us: int = 0
    """The highest media time that is logged, and the highest of a tick."""
    ticked_us: int = 0


@dataclass(slots=True)
class History:
    """The first item that a worker's perception gets."""

    sessions: dict[str, SessionHistory] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    rejected: set[tuple[str, int, int]] = field(default_factory=set)
    """(lane, partition, offset) of the records that were rejected."""
    forgotten: set[str] = field(default_factory=set)
    """Sessions whose media was given up because nothing opened them."""
    media_ends: dict[int, int] = field(default_factory=dict)
    """Partition → where the media lane ended at the start."""
    media_starts: dict[int, int] = field(default_factory=dict)
    """Partition → where the media lane is read from."""

    def take(self, record: StoredRecord, wire: bytes | None) -> None:
        """A record that perception wrote, or the end of a session."""
        key = record.key or ""
        if wire == _ENDED:
            self.ended[key] = None
            self.sessions.pop(key, None)
            return
        if wire == _REJECTED:
            data = orjson.loads(record.value)
            self.rejected.add((data["lane"], data["partition"], data["offset"]))
            if data["reason"] == "no_session":
                self.forgotten.add(key)
            return
        if key in self.ended:
            return
        session = self.sessions.setdefault(key, SessionHistory())
        reached = int(header(record.headers, "ce_mediatime") or 0)
        session.reached_us = max(session.reached_us, reached)
        if wire == _TICK:
            session.ticked_us = max(session.ticked_us, reached)
        else:
            self._outcome(session, record, wire, reached)

    def _outcome(
        self, session: SessionHistory, record: StoredRecord, wire: bytes | None, at_us: int
    ) -> None:
        if wire not in (_WINDOW, _FORMAT, _GAP):
            session.ids.add(header(record.headers, "ce_id") or "")
            return
        data: dict[str, Any] = orjson.loads(record.value)
        channel = session.channels.setdefault(data["channel"], ChannelHistory())
        if wire == _WINDOW:
            place = (data["epoch"], data["first_sample"])
            if data["reset"]:
                channel.reset = max(channel.reset, place)
            if place > channel.last:
                channel.last, channel.failed = place, data["probabilities"] is None
            return
        session.ids.add(header(record.headers, "ce_id") or "")
        if wire == _FORMAT:
            channel.bases[data["epoch"]] = at_us
        elif data["reason"] == "buffer_full":
            dropped = data["first_sample"] + us_to_samples(data["missing_us"]) - 1
            if (data["epoch"], dropped) > channel.last:
                channel.last, channel.failed = (data["epoch"], dropped), True


class _Playback:
    """What was said of the responses that are not over."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], list[StoredRecord]] = {}

    def take(self, record: StoredRecord, wire: bytes) -> None:
        """A record about a response."""
        if wire == _SPEECH:
            name = header(record.headers, "ce_correlationid") or ""
        else:
            name = orjson.loads(record.value)["response"]
        place = (record.key or "", name)
        if wire in _RESPONSE_OVER:
            self._records.pop(place, None)
        else:
            self._records.setdefault(place, []).append(record)

    def records(self) -> list[StoredRecord]:
        """In the order of each response."""
        return [record for records in self._records.values() for record in records]


def what_is_logged(
    timeline: Timeline, partitions: Sequence[int]
) -> tuple[dict[Place, int], list[Any]]:
    """A worker's start: where to read on, and the items that stand for what lies before."""
    history = History(media_ends=timeline.end(Lane.MEDIA))
    starts: dict[Place, int] = {}
    again: list[StoredRecord] = []
    playback = _Playback()
    for partition in partitions:
        following = 0
        for record in timeline.scan(Lane.TIMELINE, partition):
            following = record.offset + 1
            wire, source = glance(record.headers)
            if written_by_flow(wire, source):
                if not _readable(record):
                    continue  # in the name of a flow, but not by one
                if source == b"perception" or wire == _ENDED:
                    history.take(record, wire)
                elif wire == _SPEECH or wire in _RESPONSE_OVER:
                    playback.take(record, wire)
            elif wire in (_OPENED, _CLOSED) or _unusable(record, timeline):
                again.append(record)
            elif wire == _ACK:
                playback.take(record, wire)
        starts[Place(Lane.TIMELINE, partition)] = following
    for partition in partitions:
        begin = _media_start(timeline, partition, history)
        starts[Place(Lane.MEDIA, partition)] = history.media_starts[partition] = begin
    again += playback.records()
    again = [r for r in again if r.key not in history.ended and not _was_rejected(r, history)]
    return starts, [history, *again]


def _readable(record: StoredRecord) -> bool:
    try:
        decode(record)
    except BadRecord:
        return False
    return True


def _unusable(record: StoredRecord, timeline: Timeline) -> bool:
    """Whether perception has to say something about a record of a device."""
    if record.key and timeline.partition_of(record.key) != record.partition:
        return True
    try:
        event = decode(record)
    except UnknownType:
        return False
    except BadRecord:
        return True
    return forged(event.type, event.source)


def _was_rejected(record: StoredRecord, history: History) -> bool:
    return (record.lane.value, record.partition, record.offset) in history.rejected


def _media_start(timeline: Timeline, partition: int, history: History) -> int:
    """The first media record that may still matter."""
    end = history.media_ends.get(partition, 0)
    for record in timeline.scan(Lane.MEDIA, partition):
        if record.offset >= end or record.key not in history.ended:
            return min(record.offset, end)
    return end
