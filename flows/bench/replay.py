"""`venus bench replay`: what a proof costs, and how that grows with the session.

Sessions of several lengths are written into SQLite files as live flows would have written them: windows and sound in chunks of 100 ms, a
question about every nine seconds as in the demo (or a longer pause in between, as of an assistant that mostly listens), each third
answer spoken over. Each is then proved in a process of its own. Times are CPU times, so other work on the machine counts little; memory
is the growth of that process.
"""

import json
import multiprocessing
import random
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from flows.bench.feed import CHUNK_S, RATE
from flows.replay import event_chunks, prove
from flows.session_files import Wishes, export, open_any
from flows.testing.script import Session
from infra.clock import cpu_s
from infra.timeline import open_timeline
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.errors import VenusError
from schemas.record import Lane, Record

NAME = "bench"
TEXTS = ("what is the weather in Paris", "mhm", "and tomorrow", "tell me more about it", "stop")
PAUSE_S = 2.9
"""From the end of one exchange to the next."""
RUNS = 3
"""The least CPU time of so many counts: other work on the machine only adds to it."""


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """What proving one session took: CPU in s, memory in MB."""

    log: str
    media_s: float
    records: int
    read: float
    """Reading and decoding."""
    prove: float
    """All of it: reading, folding, comparing."""
    memory: float

    @property
    def fold(self) -> float:
        """Folding and comparing."""
        return self.prove - self.read

    @property
    def speed(self) -> float:
        return self.media_s / self.prove

    @property
    def per_hour(self) -> float:
        """CPU seconds per hour of conversation."""
        return self.prove * 3600 / self.media_s


class Talk(Session):
    """A conversation of any length with the voice activity of a real voice: never twice the same probability."""

    def __init__(self, pause_s: float) -> None:
        self._random = random.Random(7)
        self._pause_ms = round(pause_s * 1000)
        self._said = 0
        super().__init__(NAME, transcript=self._words, reply="This is the answer to your question.")

    def _words(self, request: Event) -> str:
        self._said += 1
        return TEXTS[self._said % len(TEXTS)]

    def hops(self, ms: int, probability: float | None) -> "Talk":
        for _ in range(ms // 32):
            wander = self._random.random() * 0.12
            voiced = (probability or 0.0) > 0.5
            super().hops(32, 0.99 - wander if voiced else 0.01 + wander)
        return self

    def round(self, number: int) -> None:
        self.silence(1504).speak(1792).silence(2496)
        if number % 3 == 0:
            self.speak(416).silence(992).speak(608)
        self.silence(self._pause_ms)


def write(url: str, seconds: float, with_media: bool = True, pause_s: float = PAUSE_S) -> None:
    """Write a session of about that length, round by round; nothing of it stays in memory."""
    talk, number, chunk = Talk(pause_s), 0, 0
    with open_timeline(url) as timeline:
        while talk.at < seconds * 1e6 or not talk.fold.ended:
            if talk.at < seconds * 1e6:
                talk.round(number)
            else:
                talk.close()
            number += 1
            timeline.append([encode(event) for event in talk.events])
            talk.events.clear()
            talk.inputs.clear()
            until = round(min(talk.at / 1e6, seconds) / CHUNK_S) if with_media else 0
            if until > chunk:
                timeline.append([_sound(i) for i in range(chunk, until)], Lane.MEDIA)
                chunk = until


def _sound(index: int) -> Record:
    pcm = Pcm(RATE, 1, index.to_bytes(4, "little") * round(CHUNK_S * RATE / 2))
    at_us = round(index * CHUNK_S * 1e6)
    return encode(Event("media.audio", NAME, f"m{index}", "bench", pcm, at_us, sequence=index))


def measure(where: str) -> ReplayFigures:
    """Prove the session of a timeline or file in this process.

    Raises:
        VenusError: the session does not prove, so that its figures would mean nothing.
    """
    with open_any(where) as timeline:
        proof = prove(timeline, digest=False)[NAME]
        if not proof.same or not proof.ended:
            raise VenusError(f"{where}: replay differs; these figures would mean nothing")
        memory = _growth(lambda note: prove(timeline, digest=False, progress=note))
        records = sum(map(len, event_chunks(timeline)))
        took = min(_cpu(lambda: prove(timeline, digest=False)) for _ in range(RUNS))
        read = min(_cpu(lambda: deque(event_chunks(timeline), maxlen=0)) for _ in range(RUNS))
    return ReplayFigures(
        log="mcap" if where.endswith(".mcap") else "sqlite",
        media_s=proof.media_us / 1e6,
        records=records,
        read=read,
        prove=took,
        memory=memory / 1e6,
    )


def _cpu(work: Callable[[], object]) -> float:
    begun = cpu_s()
    work()
    return cpu_s() - begun


def _growth(work: Callable[[Callable[[int], None]], object]) -> int:
    """By how many bytes this process grows while it works. (The system's own peak is no help: a child inherits its parent's.)"""
    process = psutil.Process()
    before = highest = process.memory_info().rss

    def note(_: int) -> None:
        nonlocal highest
        highest = max(highest, process.memory_info().rss)

    work(note)
    return int(highest - before)


def run_replay_bench(
    folder: Path,
    minutes: list[float],
    with_media: bool,
    say: Callable[[str], None],
    pause_s: float = PAUSE_S,
) -> list[ReplayFigures]:
    """Each length from the live log and from an exported session file."""
    found = []
    context = multiprocessing.get_context("spawn")
    for length in minutes:
        path = folder / f"replay-{length:g}.db"
        url = f"sqlite:///{path}"
        say(f"writing {length:g} min")
        write(url, length * 60, with_media, pause_s)
        file = path.with_suffix(".mcap")
        with open_timeline(url) as timeline:
            export(timeline, file, Wishes())
        for where in (url, str(file)):
            say(f"proving {length:g} min")
            with context.Pool(1) as pool:
                found.append(pool.apply(measure, (where,)))
        for used in folder.glob(f"replay-{length:g}.*"):
            used.unlink()
    return found


def as_json(figures: ReplayFigures) -> str:
    return json.dumps(asdict(figures) | {"speed": figures.speed, "per_hour": figures.per_hour})
