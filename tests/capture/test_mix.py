"""The mix: the user where he was heard, the assistant as it was really played, aligned on media time (cases G)."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from flows.mix import RATE, render_mix
from infra.timeline import Timeline, open_timeline
from schemas.errors import BadInput
from schemas.media import PlaybackAck
from tests.capture.runtime import REPLY, Runtime, logged, spoken
from tests.capture.test_device import INTERRUPTING, MURMURING, QUESTION, of, play, recording
from tests.support.perceive import Bench

pytestmark = pytest.mark.flow

S = 1_000_000
Float = NDArray[np.float64]


def loudness(lane: Float, from_s: float, to_s: float) -> float:
    return float(np.sqrt(np.mean(lane[round(from_s * RATE) : round(to_s * RATE)] ** 2)))


def read(path: Path) -> tuple[Float, Float]:
    sound, rate = soundfile.read(path, always_2d=True)
    assert rate == RATE and sound.shape[1] == 2
    return sound[:, 0], sound[:, 1]


def user_lane(b: Bench, tmp_path: Path, end_us: int) -> Float:
    """Close the session, render it, and return the left side."""
    b.close(at_us=end_us)
    b.run()
    left, right = read(render_mix(b.timeline, "s", tmp_path / "mix.wav"))
    assert len(left) == end_us * RATE // S and not right.any()
    return left


def noise(seconds: float, rate: int = 16_000, seed: int = 0) -> NDArray[np.int16]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((round(seconds * rate), 1)) * 3000).astype(np.int16)


# --- the user's side


def test_g1_a_stall_and_a_burst_do_not_make_the_recording_longer(tmp_path: Path) -> None:
    b = Bench()
    b.open()
    b.play(noise(2))
    b.run()
    b.run(seconds=1.0)
    b.run(seconds=1.0)
    b.play(noise(2, seed=1), start_us=2 * S)
    left = user_lane(b, tmp_path, b.play(noise(1, seed=2), start_us=4 * S))
    assert all(loudness(left, s, s + 0.9) > 0.05 for s in range(5))


@pytest.mark.parametrize("pause_s", [0.5, 1.0, 3.0])
def test_g2_g7_silence_lies_where_the_pause_was(tmp_path: Path, pause_s: float) -> None:
    b = Bench()
    b.open()
    b.play(noise(2))
    left = user_lane(b, tmp_path, b.play(noise(1), start_us=round((2 + pause_s) * S)))
    assert loudness(left, 1.9, 1.99) > 0.05
    assert loudness(left, 2.01, 2 + pause_s - 0.01) < 0.001
    assert loudness(left, 2 + pause_s + 0.01, 2 + pause_s + 0.1) > 0.05


@pytest.mark.parametrize("rate", [16_000, 22_050, 48_000])
def test_g5_the_last_part_of_a_chunk_is_there(tmp_path: Path, rate: int) -> None:
    b = Bench()
    b.open()
    left = user_lane(b, tmp_path, b.play(noise(1.037, rate), rate))
    assert loudness(left, 1.005, 1.035) > 0.02


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_g8_many_gaps_do_not_drift(tmp_path: Path, rate: int) -> None:
    """Clicks every 420 ms, with media missing between them: each lies where it belongs, the last like the first."""
    b = Bench()
    b.open()
    chunk = np.zeros((rate * 330 // 1000, 1), np.int16)
    chunk[rate // 10 : rate // 10 + rate // 100] = 20_000
    count = 300
    for i in range(count):
        end = b.play(chunk, rate, start_us=i * 420_000, chunk=len(chunk))
        if i % 20 == 0:
            b.run()
    left = user_lane(b, tmp_path, end)
    for i in (0, 1, count // 2, count - 1):
        window = np.abs(left[i * 420 * RATE // 1000 :][: 330 * RATE // 1000])
        click = np.flatnonzero(window > 0.3)[0] / RATE
        assert click == pytest.approx(0.1, abs=0.001)


def test_a_users_sample_lies_at_its_time(tmp_path: Path) -> None:
    b = Bench()
    b.open()
    audio = np.zeros((32_000, 1), np.int16)
    audio[20_000] = 30_000
    left = user_lane(b, tmp_path, b.play(audio, chunk=777))
    assert np.argmax(np.abs(left)) == 20_000 * RATE // 16_000


def test_g4_only_the_sessions_channel_is_the_user(tmp_path: Path) -> None:
    b = Bench()
    b.open()
    silent = np.zeros((32_000, 1), np.int16)
    end = b.play(silent)
    b.play(noise(2), source="far", correlation="far")
    left = user_lane(b, tmp_path, end)
    assert loudness(left, 0, 2) < 0.001


# --- the assistant's side


def conversation(timeline: Timeline, path: Path, parts: Any, **more: Any) -> None:
    rate = more.pop("speech_rate", RATE)
    said = {2: "no, that is not what I meant"} if parts is INTERRUPTING else {2: "mhm"}
    with Runtime(timeline, hears=lambda n: said.get(n, "what is this"), speech_rate=rate):
        play(timeline, recording(path, parts), **{"speed": None, **more})


def whole_reply(timeline: Timeline, response: str) -> NDArray[np.int16]:
    """What the models had to say, whether it was played or not."""
    heard = [e.data.pcm for e in of(timeline, "response.speech") if e.correlation == response]
    return np.frombuffer(b"".join(heard), np.int16)


@pytest.mark.parametrize("parts", [QUESTION, MURMURING, INTERRUPTING])
def test_the_assistant_is_heard_exactly_as_it_was_acknowledged(tmp_path: Path, parts: Any) -> None:
    """At equal rates to the sample: each stretch between two acknowledgements, and silence everywhere else."""
    with open_timeline("memory://") as timeline:
        conversation(timeline, tmp_path / "a.wav", parts)
        sound, _ = soundfile.read(
            render_mix(timeline, "s", tmp_path / "m.wav"), dtype="int16", always_2d=True
        )
        expected = np.zeros(len(sound), np.int16)
        acks: dict[str, list[tuple[int, PlaybackAck]]] = {}
        for event in of(timeline, "playback.ack"):
            acks.setdefault(event.data.response, []).append((event.mediatime or 0, event.data))
        for response, its in acks.items():
            reply = whole_reply(timeline, response)
            began, playing = 0, False
            for (at, ack), (_, then) in pairwise(its):
                if ack.state != "playing":
                    playing = False
                    continue
                first, last = (-(-us * RATE // S) for us in (ack.played_us, then.played_us))
                if not playing:
                    began = round(at * RATE / S) - first
                expected[began + first : began + last] = reply[first:last]
                playing = True
        assert np.array_equal(sound[:, 1], expected) and expected.any()
        (closed,) = of(timeline, "session.closed")
        assert len(sound) == (closed.mediatime or 0) * RATE // S


def test_d1_what_was_cut_is_not_in_the_recording(tmp_path: Path) -> None:
    with open_timeline("memory://") as timeline:
        conversation(timeline, tmp_path / "a.wav", INTERRUPTING, speech_rate=22_050)
        _, right = read(render_mix(timeline, "s", tmp_path / "m.wav"))
        (cancelled,) = of(timeline, "response.cancelled")
        cut = next(e for e in of(timeline, "playback.ack") if e.data.state == "cut")
        started = next(
            e for e in of(timeline, "response.started") if e.data.response == "response-2"
        )
        silent = right[
            -(-(cut.mediatime or 0) * RATE // S) + 24 : (started.mediatime or 0) * RATE // S - 24
        ]
        assert len(silent) > RATE // 10 and not silent.any()
        assert cancelled.data.heard_us > 500_000
        begins = next(
            e for e in of(timeline, "response.started") if e.data.response == "response-1"
        )
        assert (
            loudness(right, (begins.mediatime or 0) / S + 0.1, (begins.mediatime or 0) / S + 0.5)
            > 0.01
        )


def test_what_is_only_assumed_to_be_played_is_in_the_recording_too(tmp_path: Path) -> None:
    with open_timeline("memory://") as timeline:
        conversation(timeline, tmp_path / "a.wav", QUESTION, playback="assumed")
        assert not of(timeline, "playback.ack")
        sound, _ = soundfile.read(
            render_mix(timeline, "s", tmp_path / "m.wav"), dtype="int16", always_2d=True
        )
        (started,) = of(timeline, "response.started")
        at = round((started.mediatime or 0) * RATE / S)
        reply = whole_reply(timeline, "response-1")
        assert len(reply) == sum(len(spoken(t, RATE)) for t in _sentences(REPLY))
        assert np.array_equal(sound[at : at + len(reply), 1], reply)


def _sentences(text: str) -> list[str]:
    first, _, second = text.partition(". ")
    return [first + ".", second]


def test_a_session_without_media_is_one_clear_line(tmp_path: Path) -> None:
    with open_timeline("memory://") as timeline:
        with pytest.raises(BadInput, match="no session 'nobody' with media"):
            render_mix(timeline, "nobody", tmp_path / "m.wav")
        conversation(timeline, tmp_path / "a.wav", QUESTION)
        assert logged(timeline, "s")
        with pytest.raises(BadInput, match="cannot be written"):
            render_mix(timeline, "s", tmp_path / "a.wav" / "m.wav")
