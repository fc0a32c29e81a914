"""Makes the recording of this version: `python -m tests.replay.make_recording [FOLDER]`.

Run it once for each release and commit the file; the recordings of earlier releases are never made again. It is a session file with
four scripted sessions, live and asap, that hold what a conversation can hold. The same operators give the same bytes.
"""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.timeline.mcap_write import McapSink
from schemas.envelope import Event
from schemas.floor import SayRequested
from schemas.media import InputCommitted, InputMuted, InputUnmuted, TextInput
from schemas.perception import EventRejected, PerceptionFormatChanged, PerceptionGap
from schemas.record import Lane, Record, StoredRecord
from schemas.registry import REQUESTS
from schemas.responses import GenerationFailed, SpeechFailed
from schemas.session import DeviceJoined, SessionUpdated
from schemas.transcription import (
    BackchannelFailed,
    EndpointFailed,
    TranscriptFailed,
    TranscriptOffered,
)
from schemas.work import WorkCancelRequested, WorkRequested
from tests.replay.sessions import media, records, talk
from tests.support.script import Session
from tests.support.works import WorkSession

RECORDINGS = Path(__file__).parent / "recordings"
EPOCH_US = 1_700_000_000_000_000
"""The time of the first append; a real clock would make every file another one."""
MEDIA_CHUNKS = 10


def version() -> str:
    tree = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    return str(tree["project"]["version"])


def overlaps() -> Session:
    """Questions and answers; over them a backchannel, an interruption, noise, side talk, an echo."""
    s = WorkSession("overlaps", policy={"overlap.backchannel_model": True})
    s.silence(992).says("what is there to see in Paris", 1216, 2208)
    s.says("mhm", 352, 4000)
    s.says("tell me more", 1216, 2208).says("stop", 416, 512).says("and in Rome", 608, 4000)
    s.says("what else", 960, 1920).says("", 256, 3000)
    s.says("and then", 960, 1920).says("not you, I'm on the phone", 960, 3000)
    s.echo = 0.9
    s.speak(480)
    s.echo = None
    s.silence(3000)
    # A pause in which the endpoint model is not sure, and a transcript that nobody gives.
    s.endpoint = 0.1
    s.says("I would like to", 960, 800).says("know the time", 640, 5000)
    s.endpoint, s.transcript = 0.9, lambda request: None
    s.speak(640).silence(4000)
    return s


def works() -> Session:
    """Delegated works that complete, fail and are cancelled; typed text, something to say, signals, a changed policy, prompts."""
    s = WorkSession("works", policy={"idle.prompt_after": "6s"})
    s.silence(960).says("What is the weather in Paris?", 960, 2016)
    s.running().progress("looking").called("weather").artifact("map.txt")
    s.completes("In Paris it is sunny, with a little wind from the west.").silence(6000)
    s.says("check my order number 12345", 960, 2016).running("work-2")
    s.fails("error", "work-2").silence(5000)
    s.observe(WorkRequested(skill="weather", arguments={"city": "oslo"}))
    s.observe(WorkCancelRequested(work="work-3"))
    s.cancels("work-3").silence(960)
    s.observe(TextInput(text="how are you")).silence(5000)
    s.observe(SayRequested(request="say-1", text="Somebody is at the door.")).silence(4000)
    s.observe(InputMuted()).speak(640).observe(InputUnmuted()).silence(960)
    s.observe(TranscriptOffered(text="a transcript of the device's own", final=True)).silence(3000)
    s.observe(SessionUpdated(policy={"turn.push_to_talk": True, "turn.end_silence": "640ms"}))
    s.transcript = "one more thing"
    s.speak(960).observe(InputCommitted()).silence(5000)
    s.silence(8000)  # The user is asked whether they are there.
    return s


FAILED: dict[str, Callable[[Any], Any]] = {
    "endpoint": lambda d: EndpointFailed(turn=d.turn, reason="timed_out"),
    "transcript": lambda d: TranscriptFailed(turn=d.turn, reason="unavailable"),
    "backchannel": lambda d: BackchannelFailed(overlap=d.overlap, reason="error"),
    "generate": lambda d: GenerationFailed(response=d.response, reason="error"),
    "speak": lambda d: SpeechFailed(response=d.response, index=d.index, reason="error"),
}
"""Kind of request → how it fails."""


class Faults(WorkSession):
    """The first answer of each model is a failure."""

    def outcomes(self, request: Event) -> list[Event]:
        kind = REQUESTS[request.type]
        if kind not in FAILED or any(
            e.type == request.type for e in self.events[:-1] if e.id != request.id
        ):
            return list(super().outcomes(request))
        return [self.outcome(request, FAILED[kind](request.data))]


def faults() -> Session:
    """Models that fail, media that is lost, a device that joins, a record that nobody could read, a model that delegates by its text."""
    s = Faults("faults", policy={"overlap.backchannel_model": True, "overlap.min_words": 3})
    s.silence(992)
    for data in (
        PerceptionFormatChanged(
            channel="mic",
            epoch=0,
            rate=16_000,
            channels=1,
            previous_rate=None,
            previous_channels=None,
        ),
        PerceptionGap(
            channel="mic", epoch=0, first_sample=1536, reason="lost", missing_us=40_000, filled=True
        ),
        EventRejected(
            lane="timeline", partition=0, offset=3, reason="unreadable", detail="not JSON"
        ),
    ):
        s.feed(Event(data.TYPE, s.name, data.TYPE, "perception", data, s.at))
    s.observe(DeviceJoined(device="second", playback="acknowledged"))
    s.says("is anybody there", 960, 3000).says("and now", 960, 3000)
    s.reply = "Sure. <delegate>find a train to Rome</delegate> One moment."
    s.says("find me a train", 960, 1920).says("yeah right okay", 640, 4000)
    s.running().completes("There is one at nine.").silence(5000)
    return s


def version_of_today() -> list[Session]:
    return [
        overlaps().close(),
        works().close(),
        faults().close(),
        talk("asap", 8, pacing="asap").close(),
    ]


def make(folder: Path) -> Path:
    """Write the file of this version."""
    sessions = version_of_today()
    path = folder / f"v{version()}.mcap"
    folder.mkdir(parents=True, exist_ok=True)
    timeline = [record for session in sessions for record in records(session)]
    sound = [record for session in sessions[:1] for record in media(session)[:MEDIA_CHUNKS]]
    with path.open("wb") as file:
        sink = McapSink(file, 1, {"recorded_by": f"venus {version()}"})
        for lane, found in ((Lane.TIMELINE, timeline), (Lane.MEDIA, sound)):
            for offset, record in enumerate(found):
                sink.add(_stored(lane, offset, record))
        sink.finish()
    return path


def _stored(lane: Lane, offset: int, record: Record) -> StoredRecord:
    return StoredRecord(
        lane, 0, offset, EPOCH_US + offset * 1000, record.key, record.headers, record.value
    )


if __name__ == "__main__":
    made = make(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS)
    sys.stdout.write(f"{made}: {made.stat().st_size:,} bytes\n")
