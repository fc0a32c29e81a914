"""Audio files as a microphone: formats, exact chunk boundaries, and one clear line for what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flows.cli import main
from infra.capture.audiofile import AudioFile
from schemas.envelope import Pcm
from schemas.errors import BadInput

pytestmark = pytest.mark.flow


def tone(seconds: float, rate: int, channels: int = 1) -> NDArray[np.int16]:
    t = np.arange(round(seconds * rate)) / rate
    one = (np.sin(2 * np.pi * 440 * t) * 12000).astype(np.int16)
    return np.repeat(one[:, None], channels, axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audio")


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize(
    ("rate", "channels"), [(8000, 1), (16000, 1), (24000, 2), (44100, 2), (48000, 1)]
)
def test_every_format_is_read_to_its_end(
    folder: Path, ending: str, rate: int, channels: int
) -> None:
    path = folder / f"t-{rate}-{channels}.{ending}"
    soundfile.write(path, tone(0.7, rate, channels), rate)
    with AudioFile(path) as audio:
        chunks = list(audio.chunks(100))
        assert (audio.rate, audio.channels) == (rate, channels)
        assert all((c.rate, c.channels) == (rate, channels) for c in chunks)
        assert sum(c.samples for c in chunks) == audio.samples
        assert abs(audio.length_us - 700_000) < 120_000  # mp3 pads


@given(st.floats(0.3, 400), st.sampled_from([8000, 16000, 22050, 44100]))
def test_chunks_are_the_file_whatever_their_length(
    tmp_path_factory: pytest.TempPathFactory, ms: float, rate: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"c{rate}.wav"
    if not path.exists():
        soundfile.write(path, tone(0.5, rate), rate)
    with AudioFile(path) as audio:
        chunks = list(audio.chunks(ms))
    assert b"".join(c.pcm for c in chunks) == tone(0.5, rate).tobytes()
    ends = np.cumsum([c.samples for c in chunks])[:-1]
    expected = [round(i * ms * rate / 1000) for i in range(1, len(chunks) + 9)]
    assert set(ends) <= set(expected), "a boundary is not where the beginning of the file puts it"


def test_a_chunk_of_0_is_the_whole_file(folder: Path) -> None:
    path = folder / "whole.wav"
    soundfile.write(path, tone(0.5, 16000), 16000)
    with AudioFile(path) as audio:
        assert [c.samples for c in audio.chunks(0)] == [8000]


@pytest.mark.parametrize("ending", ["flac", "wav", "ogg", "mp3"])
def test_a_truncated_file_gives_what_can_be_read_and_then_the_line(
    folder: Path, ending: str
) -> None:
    rng = np.random.default_rng(1)
    path, cut = folder / f"long.{ending}", folder / f"cut.{ending}"
    soundfile.write(path, (rng.standard_normal(160_000) * 3000).astype(np.int16), 16000)
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    got: list[Pcm] = []
    with AudioFile(cut) as audio, pytest.raises(BadInput) as line:
        for chunk in audio.chunks(100):
            got.append(chunk)
    assert f"cut.{ending}: damaged or truncated after " in str(line.value)
    assert "\n" not in str(line.value)
    read, whole = b"".join(c.pcm for c in got), soundfile.read(path, dtype="int16")[0]
    assert 2.5 < len(read) / 32_000 < 7.5
    with AudioFile(cut) as audio:
        chunks = audio.chunks(0)
        one = next(chunks)
        with pytest.raises(BadInput, match="what came before was used"):
            next(chunks)
    assert len(one.pcm) >= len(read)
    if ending != "mp3":  # the last frames of a cut mp3 are what the decoder makes of them
        assert read == whole.tobytes()[: len(read)] == one.pcm[: len(read)]


def test_a_wav_from_a_pipe_promises_nothing(folder: Path) -> None:
    """Its writer could not go back and fill in the length."""
    path = folder / "pipe.wav"
    soundfile.write(path, tone(0.5, 16000), 16000)
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with AudioFile(path) as audio:
        assert sum(c.samples for c in audio.chunks(100)) == 8000


def test_chunks_shorter_than_a_sample_are_a_sample(folder: Path) -> None:
    path = folder / "fine.wav"
    soundfile.write(path, tone(0.01, 8000), 8000)
    with AudioFile(path) as audio:
        assert [c.samples for c in audio.chunks(0.05)] == [1] * 80


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("text.wav", b"this is no audio at all\n" * 20, "not a readable audio file"),
        ("text.mp3", b"this is no audio at all\n" * 20, "not a readable audio file"),
        ("empty.wav", b"", "not a readable audio file"),
        ("header.wav", None, "no audio in it"),
        ("six.wav", None, "6 channels"),
        ("1.wav", None, "1 samples a second; from 4000 to 384000 can be used"),
        ("3999.wav", None, "3999 samples a second"),
        ("384001.wav", None, "384001 samples a second"),
        ("2000000.wav", None, "2000000 samples a second"),
    ],
)
def test_what_is_no_audio_is_one_clear_line(
    folder: Path, name: str, content: bytes | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / name
    if content is not None:
        path.write_bytes(content)
    elif name == "header.wav":
        soundfile.write(path, np.zeros((0, 1), np.int16), 16000)
    elif path.stem.isdecimal():
        soundfile.write(path, np.zeros(100, np.int16), int(path.stem))
    else:
        soundfile.write(path, tone(0.1, 16000, 6), 16000)
    with pytest.raises(SystemExit) as stopped:
        main(["capture", str(path), "--timeline", f"sqlite:///{folder}/none.db"])
    line = capsys.readouterr().err.strip()
    assert stopped.value.code == 2
    assert says in line and name in line and "\n" not in line
    assert not (folder / "none.db").exists(), "nothing may be made for a file that cannot be played"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.wav"], "no such file"),
        (["{wav}", "--speed", "-1"], "--speed"),
        (["{wav}", "--speed", "fast"], "--speed"),
        (["{wav}", "--speed", "nan"], "--speed"),
        (["{wav}", "--chunk-ms", "-5"], "--chunk-ms"),
        (["{wav}", "--chunk-ms", "nan"], "--chunk-ms"),
        (["{wav}", "--tail", "-1"], "--tail"),
        (["{wav}", "--max-wait", "nan"], "--max-wait"),
        ([".", "--speed", "max"], "not a file"),
        (["{wav}", "--policy", "turn.nothing=1"], "no policy key"),
        (["{wav}", "--policy", "turn.hold_max"], "key=value"),
        (["{wav}", "--timeline", "ftp://x"], "unknown kind of timeline"),
        (["{wav}", "--timeline", "kafka://127.0.0.1:1/t"], "127.0.0.1:1"),
    ],
)
def test_wrong_use_of_capture_is_one_clear_line(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wav = folder / "fine.wav"
    soundfile.write(wav, tone(0.2, 16000), 16000)
    given_ = [a.replace("{wav}", str(wav)) for a in arguments]
    if "--timeline" not in given_:
        given_ += ["--timeline", f"sqlite:///{folder}/unused.db"]
    with pytest.raises(SystemExit) as stopped:
        main(["capture", *given_])
    line = capsys.readouterr().err.strip()
    assert stopped.value.code == 2 and says in line and "Traceback" not in line


def test_without_flows_the_device_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from flows.capture import Device, DeviceOptions
    from flows.settings import timeline_at
    from schemas.errors import VenusError

    wav = folder / "lonely.wav"
    soundfile.write(wav, tone(0.2, 16000), 16000)
    with timeline_at("memory://lonely") as timeline, AudioFile(wav) as audio:
        device = Device(timeline, "s", audio, DeviceOptions(configured_within_s=0.3))
        with pytest.raises(VenusError, match="venus run"):
            device.run()
