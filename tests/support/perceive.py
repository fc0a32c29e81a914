"""Perception without a model server: a stand-in that hears loudness, and a bench that feeds `Perception`.

`LevelVad` is recurrent on purpose: what it says of a window depends on all windows since the last reset, so
that a test notices state that was lost, mixed up or reset at the wrong place.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.perception import Perception
from flows.perception_restart import what_is_logged
from infra.timeline import Timeline, open_timeline
from infra.timeline.port import Place
from infra.triton.client import ModelUnavailable
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.ids import observation_id
from schemas.record import Lane, Record
from schemas.session import SessionClosed, SessionEnded, SessionOpened


class Answer(NamedTuple):
    probability: Any
    context: Any
    state: Any


class LevelVad:
    """Loud hops are speech; the third decimal of a probability counts the windows since the reset."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.down = False

    def infer(self, audio: Any, context: Any, state: Any, timeout_s: float = 2.0) -> Answer:
        assert audio.dtype == np.int16 and audio.shape[1:] == (1536,)
        assert context.shape == (len(audio), 64) and state.shape == (len(audio), 2, 128)
        if self.down:
            raise ModelUnavailable("grpc://nowhere:1", "silero_vad", "down")
        self.batches.append(len(audio))
        hops = audio.reshape(len(audio), 3, 512).astype(np.float64)
        loud = np.sqrt((hops**2).mean(axis=2)) > 300
        state = state.copy()
        state[:, 0, 0] += 1
        probability = np.where(loud, 0.9, 0.02) + (state[:, 0, :1] % 50) / 1000
        return Answer(probability.astype(np.float32), context.copy(), state)


def speech(
    seconds: float, rate: int = 16_000, channels: int = 1, seed: int = 0
) -> NDArray[np.int16]:
    """Loud noise with pauses, int16 [samples, channels]."""
    count = round(seconds * rate)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, channels)) * 3000
    noise[(np.arange(count) // (rate // 2)) % 3 == 2] *= 0.005
    return noise.astype(np.int16)


class Bench:
    """A log, devices that write into it, and one `Perception` that reads it; time passes when told."""

    def __init__(self, partitions: int = 2, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or open_timeline(f"memory://?partitions={partitions}")
        self.vad = LevelVad()
        self.now = 100.0
        self._sequences: dict[tuple[str, str, str], int] = {}
        self.start()

    def start(self) -> None:
        """Perception starts (again): all it knows is the log."""
        timeline = self.timeline
        self.perception = Perception(
            self.vad,
            timeline.partition_of,
            lambda partition: timeline.end(Lane.MEDIA)[partition],
            {"turn": 1},
            {"vad": "level"},
            lambda: self.now,
        )
        starts, first = what_is_logged(timeline, range(timeline.partitions))
        self._first: list[Any] = first
        self._reader = timeline.reader(starts)

    # --- devices

    def put(self, session: str, data: Any, at_us: int | None = None, **more: Any) -> Event:
        """Append an observation; its sequence counts by source and lane."""
        type_ = "media.audio" if isinstance(data, Pcm) else data.TYPE
        lane = Lane.MEDIA if isinstance(data, Pcm) else Lane.TIMELINE
        source = more.pop("source", "device-1")
        key = (session, source, lane.value)
        number = self._sequences.get(key, 0)
        self._sequences[key] = number + 1
        more.setdefault("sequence", number)
        id_ = more.pop("id", None) or observation_id(session, source, number, type_)
        event = Event(type_, session, id_, source, data, at_us, **more)
        self.timeline.append([encode(event)], lane)
        return event

    def open(self, session: str = "s", **facts: Any) -> Event:
        return self.put(session, SessionOpened(**facts), 0)

    def close(self, session: str = "s", at_us: int | None = None) -> Event:
        return self.put(session, SessionClosed(), at_us)

    def end(self, session: str = "s") -> None:
        data = SessionEnded(reason="closed", turns=0, responses=0)
        event = Event(data.TYPE, session, f"end-{session}", "conversation", data, None)
        self.timeline.append([encode(event)])

    def play(
        self,
        audio: NDArray[np.int16],
        rate: int = 16_000,
        session: str = "s",
        chunk: int | Sequence[int] | None = None,
        start_us: int = 0,
        timed: bool = True,
        **more: Any,
    ) -> int:
        """Append audio [samples, channels] in chunks of so many samples; its end in µs."""
        sizes = chunk if isinstance(chunk, Sequence) else [chunk or rate // 10]
        at, turn = 0, 0
        while at < len(audio):
            size = sizes[turn % len(sizes)]
            pcm = Pcm(rate, audio.shape[1], audio[at : at + size].tobytes())
            at_us = start_us + at * 1_000_000 // rate
            self.put(session, pcm, at_us if timed else None, **more)
            at, turn = at + size, turn + 1
        return start_us + len(audio) * 1_000_000 // rate

    # --- perception

    def batch(self, most: int = 5000) -> list[Record]:
        """What one batch of at most so many records yields; not appended yet."""
        items, self._first = self._first, []
        items += self._reader.poll(0.0, most)
        return self.perception.on_batch(items)

    def run(self, most: int = 5000, seconds: float = 0.0) -> list[Event]:
        """Read to the end; append and return what came of it, after so much time has passed."""
        self.now += seconds
        out: list[Record] = []
        while True:
            records = self.batch(most)
            if records:
                self.timeline.append(records)
                out += records
            if not records and self._at_end():
                return [decode(r) for r in out]

    def _at_end(self) -> bool:
        return all(
            self._reader.position(Place(lane, p)) >= end
            for lane in Lane
            for p, end in self.timeline.end(lane).items()
        )

    def written(self, session: str = "s", *types: str) -> list[Event]:
        """What perception has appended of a session, repeats included, of these types (default: all)."""
        partition = self.timeline.partition_of(session)
        events = [decode(r) for r in self.timeline.scan(Lane.TIMELINE, partition, 0, session)]
        ours = [e for e in events if e.source == "perception"]
        return [e for e in ours if not types or e.type in types]

    def windows(self, session: str = "s") -> list[Event]:
        return self.written(session, "perception.window")


def kinds(events: Sequence[Event]) -> list[str]:
    return [e.type.removeprefix("perception.") for e in events]


def essence(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """What must be equal between two runs, each event once."""
    once = {e.id: e for e in events}
    return [(e.id, e.type, e.mediatime, e.cause, e.data) for e in once.values()]
