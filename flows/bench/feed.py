"""The load of `venus bench loop`: synthetic devices in a process of their own, and a probe of the bare log.

Each session plays the demo's recorded speech from a place of its own, 100 ms a chunk, in real time; the sessions' chunks are spread over
the 100 ms as those of independent devices behind a gateway would be.
"""

import sys
from multiprocessing.synchronize import Event as EventType
from pathlib import Path

import numpy as np
import soundfile

from infra.clock import monotonic_s, sleep_s
from infra.timeline import open_timeline
from infra.timeline.port import Place
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.errors import VenusError
from schemas.ids import observation_id
from schemas.record import Lane, Record
from schemas.session import SessionClosed, SessionOpened

CHUNK_S = 0.1
LATEST_S = 1.0
"""A load that has fallen behind by more than this was not the load that was asked for."""
SLOTS = 10
"""Sessions are spread over so many moments of a chunk's length; those of one moment are written together, as a gateway would."""
RATE = 16_000
TRACK = Path(__file__).parent.parent / "demo" / "conversation.flac"
PROBE_SESSION = "bench-probe"


def session_name(index: int) -> str:
    return f"bench-{index:04d}"


def _record(session: str, sequence: int, data: object, at_us: int) -> Record:
    type_ = "media.audio" if isinstance(data, Pcm) else data.TYPE  # type: ignore[attr-defined]
    lane = "media" if isinstance(data, Pcm) else "events"
    source = f"bench/{lane}"
    id_ = observation_id(session, source, sequence, type_)
    return encode(Event(type_, session, id_, source, data, at_us, sequence=sequence))


def feed(url: str, sessions: int, seconds: float, ready: EventType) -> None:
    """Open the sessions, set `ready`, play for `seconds`, close them."""
    track, _ = soundfile.read(TRACK, dtype="int16")
    samples = round(CHUNK_S * RATE)
    shifts = [round(i * 7.3 * RATE) % len(track) for i in range(sessions)]
    with open_timeline(url) as timeline:
        opened = SessionOpened(device="bench", playback="assumed")
        timeline.append([_record(session_name(i), 0, opened, 0) for i in range(sessions)])
        sleep_s(2.0)
        ready.set()
        start = monotonic_s()
        chunks = round(seconds / CHUNK_S)
        for chunk in range(chunks):
            for slot in range(SLOTS):
                due = start + (chunk + 1 + slot / SLOTS) * CHUNK_S
                sleep_s(max(0.0, due - monotonic_s()))
                records = []
                for i in range(slot, sessions, SLOTS):
                    at = np.arange(chunk * samples, (chunk + 1) * samples) + shifts[i]
                    pcm = Pcm(RATE, 1, track.take(at, mode="wrap").tobytes())
                    records.append(
                        _record(session_name(i), chunk, pcm, round(chunk * CHUNK_S * 1e6))
                    )
                if records:
                    timeline.append(records, Lane.MEDIA)
        late = monotonic_s() - start - (chunks + 1) * CHUNK_S
        if late > LATEST_S:
            sys.exit(f"the load was {late:.1f} s late: this machine is too slow to feed it")
        end_us = round(chunks * CHUNK_S * 1e6)
        timeline.append(
            [_record(session_name(i), 1, SessionClosed(), end_us) for i in range(sessions)]
        )


def check_fed(exitcode: int | None) -> None:
    """Raise VenusError if the process that ran `feed` did not end well."""
    if exitcode:
        raise VenusError("the load could not be fed in real time: these figures would mean nothing")


def probe(url: str, stop: EventType) -> None:
    """Append a record of a type that nobody reads every 50 ms until `stop`; its data is the moment of the append."""
    headers = (
        ("ce_specversion", b"1.0"),
        ("ce_type", b"venus.bench.probe.v1"),
        ("ce_id", b"probe"),
        ("ce_source", b"bench"),
        ("content-type", b"application/json"),
    )
    with open_timeline(url) as timeline:
        while not stop.is_set():
            timeline.append(
                [Record(PROBE_SESSION, headers, f"{monotonic_s():.6f}".encode() + b" " * 500)]
            )
            sleep_s(0.05)


def watch_probe(url: str, stop: EventType, found: "list[float]") -> None:
    """Follow the timeline lane as a flow does, in a process of its own; ms from each probe's append to its read go to `found`."""
    times: list[float] = []
    with open_timeline(url) as timeline:
        partition = timeline.partition_of(PROBE_SESSION)
        reader = timeline.reader({Place(Lane.TIMELINE, partition): timeline.end()[partition]})
        while not stop.is_set():
            records = reader.poll(0.25)
            now = monotonic_s()
            times += [(now - float(r.value)) * 1e3 for r in records if r.key == PROBE_SESSION]
        reader.close()
    found.extend(times)
