"""Two-channel sound from elsewhere: the voice activity model finds who speaks when; as a session it is perceived like any other."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from flows.analysis.many import read_one
from flows.foreign_wav import find_speech, import_wav
from infra.timeline import open_timeline
from infra.triton.client import VadClient
from schemas.cloudevents import decode
from schemas.errors import BadInput
from schemas.record import Lane
from tests.support.triton import triton  # noqa: F401

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def stereo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One person asks on the left, another on the right 3 s later."""
    data = Path(__file__).parents[3] / "shared" / "data"
    if not data.is_dir():
        pytest.skip(f"{data} is not here")
    ask, rate = soundfile.read(data / "check_order_12345.wav", dtype="int16")
    sound = np.zeros((10 * rate, 2), np.int16)
    sound[: len(ask), 0] = ask
    sound[5 * rate : 5 * rate + len(ask), 1] = ask
    path = tmp_path_factory.mktemp("wav") / "call.wav"
    soundfile.write(path, sound, rate)
    return path


def test_speech_on_both_channels(stereo: Path, triton) -> None:  # noqa: F811
    with VadClient(triton.url) as client:
        found = find_speech(stereo, client)
        again = read_one(str(stereo), find_speech=lambda path: find_speech(path, client))
    left, right = found["left"], found["right"]
    assert left and right and left[-1][1] < 4_000_000 and right[0][0] >= 5_000_000
    assert right[0][0] - left[0][0] == pytest.approx(5_000_000, abs=100_000)
    assert len(again.figures[0].samples["gap"]) == 1


def test_as_a_session_of_two_channels(stereo: Path) -> None:
    log = open_timeline("memory://")
    names, count = import_wav(stereo, log)
    media = [decode(r) for r in log.scan(Lane.MEDIA, 0)]
    assert names == ["call"] and count == len(media) + 2
    assert {e.correlation for e in media} == {"left", "right"}
    assert sum(e.data.duration_us for e in media if e.correlation == "left") == 10_000_000
    types = [decode(r).type for r in log.scan(Lane.TIMELINE, 0)]
    assert types == ["session.opened", "session.closed"]
    with pytest.raises(BadInput, match="already"):
        import_wav(stereo, log)


def test_one_channel_is_not_enough(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.zeros(16_000, np.int16), 16_000)
    log = open_timeline("memory://")
    with pytest.raises(BadInput, match="two are needed"):
        import_wav(tmp_path / "x.wav", log)
    assert not list(log.scan(Lane.TIMELINE, 0))
