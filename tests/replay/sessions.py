"""Recorded sessions for tests, made from scripts: as many as wanted, of any length, with media."""

from collections.abc import Iterable
from typing import Any

from infra.timeline.memory import MemoryTimeline
from infra.timeline.port import Timeline
from operators.fold import SessionFold
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.record import Lane, Record
from tests.support.script import Session

CHUNK_US = 100_000


def talk(name: str = "s", length_s: float = 60.0, **options: Any) -> Session:
    """A conversation of about `length_s`: questions, answers, a backchannel, an interruption, a pause."""
    said = iter(())
    texts = ("what is the weather in Paris", "mhm", "stop", "tell me more", "and tomorrow")

    def words(request: Event) -> str:
        nonlocal said
        for text in said:
            return text
        said = iter(texts)
        return next(said)

    options.setdefault("transcript", words)
    session = Session(name, **options)
    round_ = 0
    while session.at < length_s * 1_000_000:
        session.silence(992).speak(1216).silence(2208)
        if round_ % 3 == 0:
            session.speak(352)  # a backchannel, while the assistant speaks
        elif round_ % 3 == 1:
            session.speak(416).silence(512).speak(608)  # an interruption
        session.silence(4000)
        round_ += 1
    return session


def records(session: Session) -> list[Record]:
    """The timeline lane of a scripted session, as live flows would have written it: each input, then what it let happen."""
    fold = SessionFold(session.name)
    found = []
    for event in session.inputs:
        found.append(encode(event))
        found += [encode(d) for applied in fold.feed(event) for d in applied.decisions]
    return found


def media(session: Session, rate: int = 16_000) -> list[Record]:
    """A media lane of its length in chunks of 100 ms: a ramp, so that every sample differs from its neighbour."""
    samples = rate * CHUNK_US // 1_000_000
    found = []
    for index in range(session.at // CHUNK_US):
        first = index * samples
        ramp = b"".join(((first + i) % 30_000).to_bytes(2, "little") for i in range(samples))
        pcm = Pcm(rate, 1, ramp)
        event = Event(
            "media.audio",
            session.name,
            f"m{index}",
            "device",
            pcm,
            index * CHUNK_US,
            sequence=index,
        )
        found.append(encode(event))
    return found


def record(timeline: Timeline, sessions: Iterable[Session], with_media: bool = True) -> Timeline:
    """Append the sessions to a timeline, interleaved as if they had been held at once."""
    waiting = [records(session) for session in sessions]
    if with_media:
        for session in sessions:
            for start in range(0, len(found := media(session)), 1000):
                timeline.append(found[start : start + 1000], Lane.MEDIA)
    at = 0
    while any(at < len(w) for w in waiting):
        batch = [r for w in waiting for r in w[at : at + 37]]
        timeline.append(batch)
        at += 37
    return timeline


def memory(*sessions: Session, partitions: int = 1, with_media: bool = True) -> Timeline:
    """A memory timeline that holds the sessions."""
    from infra.timeline import open_timeline

    timeline = open_timeline(f"memory://?partitions={partitions}")
    assert isinstance(timeline, MemoryTimeline)
    return record(timeline, sessions, with_media)
