"""The records that perception appends, and a look at a record that costs less than decoding it.

A window is most of what the log receives, so its record is put together without its model; a test holds
it equal to what `schemas.cloudevents.encode` makes of the event.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from flows.perception_channel import Note, Pending
from schemas import ids
from schemas.base import WINDOW_US, Writer
from schemas.cloudevents import JSON_TYPE, LONGEST_NAME, encode, wire_type
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.perception import EventRejected
from schemas.policy import Policy
from schemas.record import Headers, Record, StoredRecord
from schemas.registry import MODELS
from schemas.session import ClockTick, SessionConfigured, SessionOpened

SOURCE = "perception"
UNKNOWN_SESSION = "unknown"
"""Where rejections of records without a key go."""

LONGEST_NOTE = 300
MOST_NOTES = 20
"""Notes and rejections repeat what came; the log takes a megabyte of a record."""

WIRE: dict[str, bytes] = {name: wire_type(name).encode() for name in MODELS}
_WINDOW = WIRE["perception.window"]
_OURS: dict[bytes, frozenset[bytes]] = {
    writer.value.encode(): frozenset(WIRE[n] for n, m in MODELS.items() if writer == m.WRITER)
    for writer in Writer
    if writer is not Writer.DEVICE
}


def glance(headers: Headers) -> tuple[bytes | None, bytes | None]:
    """Wire type and source of a record; None where it does not say (or writes it in its own way)."""
    wire = source = None
    for name, value in headers:
        if name == "ce_type":
            wire = value
        elif name == "ce_source":
            source = value
    return wire, source


def written_by_flow(wire: bytes | None, source: bytes | None) -> bool:
    """One of our own flows wrote this: nobody has to check it. Decisions name their operator, `conversation/turn`."""
    return wire in _OURS.get((source or b"").partition(b"/")[0], ())


def header(headers: Headers, name: str) -> str | None:
    for found, value in headers:
        if found.lower() == name:
            return value.decode(errors="replace")
    return None


def window_record(
    session: str,
    channel: str,
    pending: Pending,
    probabilities: tuple[float, ...] | None,
    level_db: float,
    reset: bool,
    echo: float | None = None,
) -> Record:
    """The record of a `perception.window`."""
    epoch, first, _, _ = pending.window
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_type", _WINDOW),
        ("ce_id", ids.window_id(session, channel, epoch, first).encode()),
        ("ce_source", b"perception"),
        ("ce_mediatime", b"%d" % (pending.start_us + WINDOW_US)),
        ("content-type", JSON_TYPE),
    )
    value = orjson.dumps(
        {
            "channel": channel,
            "epoch": epoch,
            "first_sample": first,
            "start_us": pending.start_us,
            "probabilities": probabilities,
            "level_db": level_db,
            "echo": echo,
            "reset": reset,
        }
    )
    return Record(session, headers, value)


def note_id(session: str, channel: str, note: Note) -> str:
    return ids.derived_id(note.kind, session, *note.place(channel))


def note_record(session: str, channel: str, note: Note) -> Record:
    """The record of a `perception.format_changed` or `perception.gap`."""
    data = note.data(channel)
    id_ = note_id(session, channel, note)
    return encode(Event(data.TYPE, session, id_, SOURCE, data, note.at_us, note.cause))


def tick_record(session: str, at_us: int) -> Record:
    id_ = ids.derived_id("tick", session, at_us)
    return encode(Event(ClockTick.TYPE, session, id_, SOURCE, ClockTick(), at_us))


def rejected_id(record: StoredRecord) -> str:
    return ids.derived_id("rejected", record.lane.value, record.partition, record.offset)


def rejected_record(record: StoredRecord, reason: Any, detail: str) -> Record:
    """The record of an `event.rejected`; the same for the same place, so that it is written once."""
    wire = header(record.headers, "ce_type")
    data = EventRejected(
        lane=record.lane.value,
        partition=record.partition,
        offset=record.offset,
        reason=reason,
        detail=detail[:LONGEST_NOTE],
        type=wire and wire[:LONGEST_NOTE],
        source=(header(record.headers, "ce_source") or "")[:LONGEST_NOTE] or None,
    )
    session = record.key or UNKNOWN_SESSION
    if len(session) > LONGEST_NAME:
        session = UNKNOWN_SESSION
    return encode(Event(EventRejected.TYPE, session, rejected_id(record), SOURCE, data))


def configured_id(opened: Event) -> str:
    return ids.outcome_id(opened.id, 1, SessionConfigured.TYPE, 0)


def configured_record(
    opened: Event,
    operators: dict[str, int],
    models: dict[str, str],
    wishes: Mapping[str, Any] = {},
) -> Record:
    """The answer to a session's first `session.opened`: the policy with every wish that fits, first this
    installation's `wishes`, then the device's.
    """
    facts: SessionOpened = opened.data
    policy, notes = Policy(), []
    for key, value in (*wishes.items(), *facts.policy.items()):
        try:
            policy = policy.with_changes({key: value})
        except BadInput as error:
            # What could be named instead is long, and no answer to a device.
            note = str(error).partition("; there are: ")[0]
            notes.append(note if len(note) <= LONGEST_NOTE else note[:LONGEST_NOTE] + "…")
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"… and {len(notes) - MOST_NOTES} more"]
    data = SessionConfigured(
        channel=facts.channel,
        pacing=facts.pacing,
        playback=facts.playback,
        language=facts.language,
        policy=policy,
        operators=operators,
        models=models,
        notes=tuple(notes),
    )
    id_ = configured_id(opened)
    return encode(
        Event(data.TYPE, opened.session, id_, SOURCE, data, opened.mediatime or 0, opened.id)
    )
