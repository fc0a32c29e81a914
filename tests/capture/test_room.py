"""What the microphone hears of the loudspeaker: the very samples that were played, later and quieter, and none that were not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from flows.capture import DeviceOptions
from flows.mix import RATE, render_mix
from infra.capture.loudspeaker import Loudspeaker
from infra.capture.room import Echo, Room
from infra.timeline import open_timeline
from schemas.envelope import Event, Pcm
from schemas.record import Lane
from schemas.responses import ResponseCancelled, ResponseStarted
from schemas.turns import FloorPaused, FloorResumed
from tests.capture.runtime import Runtime, logged
from tests.capture.test_command import run
from tests.capture.test_device import QUESTION, of, play, recording

pytestmark = pytest.mark.flow

S = 1_000_000
R = 16_000
RAMP = (np.arange(5 * R) % 30_000 + 1).astype("<i2")
CANCELLED = ResponseCancelled(response="r", epoch=1, reason="x", heard_text="", heard_us=0)


def microphone(
    acts: list[tuple[int, Any]], echo: Echo, seconds: int = 4, chunk: int = 1600, channels: int = 1
) -> np.ndarray:
    """What a silent microphone sends while things happen (in ms) to a response whose speech is there from the start."""
    room = Room(echo, R)
    speaker = Loudspeaker(room)
    waiting: list[tuple[int, Any]] = [(0, Pcm(R, 1, RAMP.tobytes())), *acts]
    sent = []
    for at in range(0, seconds * R, chunk):
        end_us = (at + chunk) * S // R
        while waiting and waiting[0][0] * 1000 <= end_us:
            ms, data = waiting.pop(0)
            type_ = "response.speech" if isinstance(data, Pcm) else data.TYPE
            speaker.due(ms * 1000)
            speaker.follow(Event(type_, "s", f"e{ms}", "x", data, ms * 1000, None, "r"), ms * 1000)
        speaker.due(end_us)
        speaker.sound(end_us)
        pcm = room.mix(Pcm(R, channels, bytes(2 * channels * chunk)), at * S // R)
        sent.append(np.frombuffer(pcm.pcm, "<i2").reshape(-1, channels))
    return np.concatenate(sent)


@pytest.mark.parametrize("chunk", [160, 341, 1600, 16_000])
def test_every_sample_comes_back_at_its_place(chunk: int) -> None:
    started = ResponseStarted(response="r", epoch=0)
    heard = microphone([(500, started)], Echo(0.0, 150_000), chunk=chunk)[:, 0]
    at = round(0.65 * R)
    assert not heard[:at].any() and np.array_equal(heard[at:], RAMP[: len(heard) - at])


def test_it_is_quieter_and_on_every_channel() -> None:
    started = ResponseStarted(response="r", epoch=0)
    heard = microphone([(0, started)], Echo(-20.0, 40_000), channels=2)
    at = round(0.04 * R)
    expected = np.rint(RAMP[: len(heard) - at] * 0.1)
    assert np.abs(heard[at:, 0] - expected).max() <= 1
    assert np.array_equal(heard[:, 0], heard[:, 1])


def test_a_pause_is_silent_and_a_cut_is_for_good() -> None:
    acts = [
        (0, ResponseStarted(response="r", epoch=0)),
        (500, FloorPaused(response="r", overlap="o")),
        (1000, FloorResumed(response="r", overlap="o")),
        (2000, CANCELLED),
    ]
    heard = microphone(acts, Echo(0.0, 0))[:, 0]
    assert np.array_equal(heard[: R // 2], RAMP[: R // 2])
    assert not heard[R // 2 : R].any()
    assert np.array_equal(heard[R : 2 * R], RAMP[R // 2 : R // 2 + R])
    assert not heard[2 * R :].any()


def test_what_was_heard_is_not_kept() -> None:
    room = Room(Echo(-6.0, 400_000), R)
    room.follow(Event("response.speech", "s", "e", "x", Pcm(R, 1, RAMP.tobytes()), 0, None, "r"))
    for at in range(0, 5 * R, 800):
        room.plays("r", at * S // R, at * S // R, (at + 800) * S // R)
        room.mix(Pcm(R, 1, bytes(1600)), at * S // R)
        assert len(room._tape) <= round(0.5 * R)
    room.follow(Event(CANCELLED.TYPE, "s", "c", "x", CANCELLED, 0))
    assert not room._speech


def test_a_device_hears_what_its_log_says_was_played(tmp_path: Path) -> None:
    """Against the mix, which puts the same together from the log."""
    path, echo = recording(tmp_path / "q.wav", QUESTION), Echo(-12.0, 150_000)
    uninterrupted = {"overlap.interruptible": False}
    with open_timeline("memory://") as timeline:
        with Runtime(timeline, speed=3.0):
            play(timeline, path, speed=3.0, echo=echo, policy=uninterrupted, tail=0.5)
        assert len(of(timeline, "playback.ack")) > 4
        media = [e.data.pcm for e in logged(timeline, "s", Lane.MEDIA)]
        mix, _ = soundfile.read(render_mix(timeline, "s", tmp_path / "mix.wav"), dtype="float32")
    heard = np.frombuffer(b"".join(media), "<i2").astype(np.float32) / 32768
    said, _ = soundfile.read(path, dtype="float32")
    heard[: len(said)] -= said
    played = soxr.resample(mix[:, 1], RATE, R)
    late, gain = round(0.15 * R), 10 ** (-12 / 20)
    count = min(len(heard) - late, len(played))
    off = heard[late : late + count] - gain * played[:count]
    loud = np.sqrt(np.mean((gain * played[:count]) ** 2))
    assert loud > 0.01 and np.sqrt(np.mean(off**2)) < 0.1 * loud


@pytest.mark.parametrize(
    ("text", "echo"),
    [("-12dB,150ms", Echo(-12.0, 150_000)), ("0 db, 0.2s", Echo(0.0, 200_000))],
)
def test_how_an_echo_is_written(text: str, echo: Echo) -> None:
    assert Echo.parse(text) == echo


@pytest.mark.parametrize("text", ["", "-12dB", "12,150ms", "-12dB,150", "99dB,1ms", "-6dB,1min"])
def test_wrong_echoes_are_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / "q.wav", QUESTION)
    code = run(str(path), "--timeline", "memory://", "--echo", text, "--quiet")
    printed = capsys.readouterr().err
    assert code == 2 and "--echo" in printed and printed.count("\n") == 1


def test_an_echo_needs_a_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "q.wav", QUESTION)
    flags = ("--echo=-6dB,40ms", "--speed", "max", "--quiet")
    assert run(str(path), "--timeline", "memory://", *flags) == 2
    assert "decided" in capsys.readouterr().err
    assert DeviceOptions().echo is None
