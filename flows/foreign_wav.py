"""Two-channel sound from elsewhere: whose speech is where, by perception's own voice activity model on both channels.

`speech_finder` answers at once, for `venus stats`; `import_wav` puts the recording into a timeline as a session with two channels, left
(the user) and right, which the live flows then perceive like any other.
"""

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flows.analysis.floor import Span
from flows.analysis.foreign import SpeechFinder
from infra.capture.audiofile import AudioFile
from infra.timeline.port import Timeline
from infra.triton.client import VadClient, vad_start
from infra.triton.wire import ModelError
from operators.activity import SpeechActivity
from operators.window import ChannelAssembler, Samples, Windower
from schemas.base import HOP_US, WINDOW_HOPS, WINDOW_SAMPLES, WINDOW_US
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput
from schemas.ids import observation_id
from schemas.policy import VadPolicy
from schemas.record import Lane, Record
from schemas.session import SessionClosed, SessionOpened

SIDES = ("left", "right")
CHUNK_MS = 100.0
SOURCE = "import"
LOCAL = "local"


def check_wav(path: Path) -> None:
    """Raises BadInput where `path` is not a whole recording with two channels, before something is made for it."""
    if not sum(len(pieces) for _, pieces in _sides(path)):
        raise BadInput(f"{path}: there is no sound in it")


def _sides(path: Path) -> Iterator[tuple[int, list[Pcm]]]:
    """(first sample, one mono piece for each channel) through the file."""
    with AudioFile(path) as audio:
        if audio.channels != 2:
            raise BadInput(
                f"{path}: {audio.channels} channel{'s' * (audio.channels != 1)}; speakers are told apart "
                "by their channels, so two are needed"
            )
        done = 0
        for pcm in audio.chunks(CHUNK_MS):
            both = np.frombuffer(pcm.pcm, dtype="<i2").reshape(-1, 2)
            yield done, [Pcm(pcm.rate, 1, both[:, side].tobytes()) for side in range(2)]
            done += len(both)


@contextmanager
def _model_server(triton: str) -> Iterator[str]:
    """The URL of a server with the voice activity model: the one named, or one that is started for it."""
    if triton != LOCAL:
        yield triton
        return
    from infra.triton.server import LocalTriton

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalTriton(("silero_vad",), log_path=Path(folder) / "triton.log") as server,
    ):
        yield server.url


def find_speech(path: Path, client: VadClient) -> dict[str, list[Span]]:
    """Speech on each channel of a sound file, by the default policy's thresholds.

    Raises:
        BadInput: not two channels, or the model does not answer.
    """
    assemblers = [ChannelAssembler() for _ in SIDES]
    windowers = [Windower() for _ in SIDES]
    held: list[list[NDArray[np.int16]]] = [[], []]
    activities = [SpeechActivity() for _ in SIDES]
    found: dict[str, list[Span]] = {side: [] for side in SIDES}
    context, state = vad_start(len(SIDES))
    at, vad = 0, VadPolicy()

    def hear() -> None:
        nonlocal at, context, state
        while all(held):
            audio = np.stack([windows.pop(0) for windows in held])
            try:
                heard = client.infer(audio, context, state)
            except ModelError as error:
                raise BadInput(f"{path}: {error}") from None
            context, state = heard.context, heard.state
            for side, activity in enumerate(activities):
                for hop in range(WINDOW_HOPS):
                    start = at + hop * HOP_US
                    if (
                        activity.step(
                            vad, float(heard.probability[side][hop]), start, start + HOP_US
                        )
                        == "stopped"
                    ):
                        found[SIDES[side]].append((activity.start, activity.stop))
            at += WINDOW_US

    for index, (_, pieces) in enumerate(_sides(path)):
        for side, pcm in enumerate(pieces):
            for piece in assemblers[side].feed(SOURCE, f"{index}", index, None, pcm):
                if isinstance(piece, Samples):
                    held[side] += [w.audio for w in windowers[side].feed(piece)]
        hear()
    for side in range(len(SIDES)):
        for piece in assemblers[side].flush():
            if isinstance(piece, Samples):
                held[side] += [w.audio for w in windowers[side].feed(piece)]
        held[side] += [w.audio for w in windowers[side].finish()]
    longest = max(map(len, held))
    for windows in held:
        windows += [np.zeros(WINDOW_SAMPLES, np.int16)] * (longest - len(windows))
    hear()
    for name, activity in zip(SIDES, activities, strict=True):
        if activity.active:
            found[name].append((activity.start, activity.silence_start or at))
    return found


def speech_finder(triton: str) -> SpeechFinder:
    """A finder that asks the given server, or one of its own."""

    def find(path: Path) -> dict[str, list[Span]]:
        check_wav(path)
        with _model_server(triton) as url, VadClient(url) as client:
            return find_speech(path, client)

    return find


def import_wav(path: Path, into: Timeline, session: str | None = None) -> tuple[list[str], int]:
    """Append a two-channel recording as a session; returns its name and the number of records.

    Raises:
        BadInput: not readable, not two channels, or the session is there already.
    """
    from flows.session_files import sessions_on

    check_wav(path)
    name = session or path.stem
    if name in sessions_on(into):
        raise BadInput(
            f"{path}: session {name!r} is on {into.url} already; name another with --session"
        )
    source = f"{SOURCE}/{secrets.token_hex(4)}"
    records: list[Record] = []
    count, end = 0, 0
    opened = SessionOpened(device=SOURCE, channel=SIDES[0], pacing="asap")
    into.append([encode(_event(name, source, 0, opened, 0))])
    for index, (first, pieces) in enumerate(_sides(path)):
        for side, pcm in zip(SIDES, pieces, strict=True):
            at = first * 1_000_000 // pcm.rate
            id_ = observation_id(name, f"{source}/{side}", index, "media.audio")
            event = Event("media.audio", name, id_, f"{source}/{side}", pcm, at, None, side, index)
            records.append(encode(event))
            end = max(end, at + pcm.duration_us)
        if len(records) >= 500:
            into.append(records, Lane.MEDIA)
            count, records = count + len(records), []
    into.append(records, Lane.MEDIA)
    into.append([encode(_event(name, source, 1, SessionClosed(), end))])
    return [name], count + len(records) + 2


def _event(
    session: str, source: str, sequence: int, data: SessionOpened | SessionClosed, at: int
) -> Event:
    id_ = observation_id(session, source, sequence, data.TYPE)
    return Event(data.TYPE, session, id_, source, data, at, sequence=sequence)
