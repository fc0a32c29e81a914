"""How long a proof takes and how much memory it needs, as the session grows: linear, and flat."""

import tracemalloc
from pathlib import Path

import pytest

from flows.replay import prove
from flows.session_files import Wishes, export, open_file
from infra.clock import monotonic_s
from tests.replay.sessions import memory, talk

pytestmark = [pytest.mark.flow, pytest.mark.slow]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("long")
    found = {}
    for minutes in (5, 50):
        found[minutes] = folder / f"{minutes}.mcap"
        export(
            memory(talk("s", minutes * 60).close(), with_media=minutes == 5),
            found[minutes],
            Wishes(),
        )
    return found


def took(path: Path) -> float:
    best = 1e9
    for _ in range(3):
        with open_file(path) as log:
            begun = monotonic_s()
            assert prove(log, digest=False)["s"].same
            best = min(best, monotonic_s() - begun)
    return best


def test_time_grows_with_length(files: dict[int, Path]) -> None:
    # Ten times the length; generous, since other things run on a test machine.
    assert took(files[50]) < 20 * took(files[5])


def test_memory_does_not(files: dict[int, Path]) -> None:
    peaks = {}
    for minutes, path in files.items():
        with open_file(path) as log:
            tracemalloc.start()
            prove(log, digest=False)
            peaks[minutes] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    # One chunk of the file, decompressed, is most of it.
    assert peaks[50] < peaks[5] + 12_000_000, peaks
