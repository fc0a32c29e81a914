"""Looking at a timeline: records as lines for people or as JSON, and what sessions there are."""

import heapq
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from infra.timeline.port import Place, Timeline
from schemas.base import Kind
from schemas.cloudevents import attributes, decode
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.record import Lane, StoredRecord

POLL_S = 0.5


def follow(
    timeline: Timeline, lanes: tuple[Lane, ...], session: str | None, on: bool
) -> Iterator[StoredRecord]:
    """The records of the lanes from the beginning, up to their present end or (`on`) for ever; across places by the time of
    their append.
    """
    partitions = range(timeline.partitions) if session is None else [timeline.partition_of(session)]
    places = [Place(lane, p) for lane in lanes for p in partitions]
    ends = {place: timeline.end(place.lane)[place.partition] for place in places}
    scans = [_up_to(timeline, place, ends[place], session) for place in places]
    yield from heapq.merge(*scans, key=lambda record: record.appended_us)
    if not on:
        return
    reader = timeline.reader(ends)
    try:
        while True:
            for record in reader.poll(POLL_S):
                if session is None or record.key == session:
                    yield record
    finally:
        reader.close()


def _up_to(
    timeline: Timeline, place: Place, end: int, session: str | None
) -> Iterator[StoredRecord]:
    """What lies before `end`: a scan of its own reads on to what has been appended since."""
    records = timeline.scan(place.lane, place.partition, 0, session)
    return takewhile(lambda record: record.offset < end, records)


def wire_types(log: Timeline) -> frozenset[str]:
    """The wire types in a session file that is in memory or says what is in it; nothing of another timeline."""
    from infra.timeline.mcap import McapTimeline
    from infra.timeline.memory import MemoryTimeline

    if isinstance(log, McapTimeline):
        return log.types
    if not isinstance(log, MemoryTimeline):
        return frozenset()
    records = (r for lane in Lane for p in range(log.partitions) for r in log.scan(lane, p))
    named = (v for r in records for n, v in r.headers if n.lower() == "ce_type")
    return frozenset(v.decode(errors="replace") for v in named)


def as_json(record: StoredRecord) -> dict[str, Any]:
    """One record as `venus tail --json` shows it; what cannot be read has no kind and says why in `data`."""
    line: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "session": record.key,
    }
    try:
        event = decode(record)
    except BadRecord as error:
        named = attributes(record.headers)
        return line | {
            "id": _text(named.get("ce_id")),
            "type": _text(named.get("ce_type")),
            "kind": None,
            "mediatime": None,
            "cause": None,
            "data": {"error": str(error), "bytes": len(record.value)},
        }
    return line | {
        "id": event.id,
        "type": event.type,
        "kind": event.kind.value,
        "mediatime": event.mediatime,
        "cause": event.cause,
        "data": shown(event),
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def shown(event: Event) -> dict[str, Any]:
    """The data of an event as JSON; media as its format and length."""
    if isinstance(event.data, Pcm):
        return {
            "rate": event.data.rate,
            "channels": event.data.channels,
            "bytes": len(event.data.pcm),
        }
    data: dict[str, Any] = event.data.model_dump(mode="json")
    return data


def essence(event: Event, width: int = 110) -> str:
    """The data of an event on one short line."""
    if isinstance(event.data, Pcm):
        return f"{event.data.duration_us / 1e3:.0f} ms, {event.data.rate} Hz"
    if event.type == "session.configured":
        return f"{event.data.pacing}, playback {event.data.playback}"
    if event.type == "perception.window":
        heard = event.data.probabilities
        marks = "???" if heard is None else "".join(" ▁▂▃▄▅▆▇█"[min(8, int(p * 9))] for p in heard)
        return f"|{marks}| {event.data.level_db:.0f} dB"
    parts = []
    for name, value in shown(event).items():
        if value in (None, "", [], {}, False):
            continue
        if name == "messages":
            value = f"{len(value)} messages"
        elif name.endswith("_us") and isinstance(value, int):
            value = f"{value / 1e6:.3f}s"
        elif isinstance(value, dict):
            value = "/".join(str(v) for v in value.values())
        elif isinstance(value, list):
            value = f"{len(value)} {name}"
        parts.append(f"{name}={value}")
    text = "  ".join(parts)
    return text if len(text) <= width else text[: width - 1] + "…"


@dataclass(slots=True)
class SessionLine:
    """One session as `venus sessions` lists it."""

    session: str
    state: str = "waiting"
    device: str = ""
    partition: int = 0
    media_us: int = 0
    turns: int = 0
    responses: int = 0
    events: int = 0
    unreadable: int = 0
    last_appended_us: int = 0
    reason: str = ""
    """Of its end; empty before."""

    def see(self, record: StoredRecord) -> None:
        self.events += 1
        self.partition = record.partition
        self.last_appended_us = max(self.last_appended_us, record.appended_us)
        try:
            event = decode(record)
        except BadRecord:
            self.unreadable += 1
            return
        if event.type == "perception.window" or event.kind is Kind.DECISION:
            self.media_us = max(self.media_us, event.mediatime or 0)
        match event.type:
            case "session.opened" if self.state == "waiting":
                self.state, self.device = "open", event.data.device
            case "session.closed" if self.state == "open":
                self.state = "closed"
            case "session.ended":
                self.state, self.reason = "ended", event.data.reason
                self.turns, self.responses = event.data.turns, event.data.responses
            case "turn.ended" if self.state != "ended":
                self.turns += 1
            case "response.requested" if self.state != "ended" and event.data.attempt == 1:
                self.responses += 1
            case "response.prepared" if self.state != "ended":
                self.responses += 1

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def sessions(timeline: Timeline) -> list[SessionLine]:
    """All sessions of a timeline in the order of their first record."""
    found: dict[str, SessionLine] = {}
    for p in range(timeline.partitions):
        for record in timeline.scan(Lane.TIMELINE, p):
            if record.key:
                found.setdefault(record.key, SessionLine(record.key)).see(record)
    return list(found.values())
