"""How a proof's time and memory grow with the session: linear, and flat. Ratios within one run; `venus bench replay` has the figures."""

import tracemalloc

import pytest

from flows.bench.replay import NAME, measure, write
from flows.replay import prove
from flows.session_files import Wishes, export, open_any
from infra.timeline import open_timeline

pytestmark = pytest.mark.flow

MINUTES = (2, 20)


@pytest.fixture(scope="module", params=["sqlite", "mcap"])
def logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A short and a long session, each with its sound, as the live log and as a session file."""
    folder = tmp_path_factory.mktemp("long")
    found = []
    for minutes in MINUTES:
        url = f"sqlite:///{folder}/{minutes}.db"
        write(url, minutes * 60)
        if request.param == "mcap":
            with open_timeline(url) as timeline:
                export(timeline, folder / f"{minutes}.mcap", Wishes())
            url = str(folder / f"{minutes}.mcap")
        found.append(url)
    return found


def test_time_grows_with_length(logs: list[str]) -> None:
    short, long = (measure(log) for log in logs)
    assert 9 < long.records / short.records < 11
    # Linear is 10; other things run on a test machine. Quadratic would be 100.
    assert long.prove < 25 * short.prove
    # Reading is no more than folding and comparing by far: the sound in the file is not read.
    assert long.read < 3 * long.fold


def test_memory_does_not(logs: list[str]) -> None:
    peaks = []
    for log in logs:
        with open_any(log) as timeline:
            tracemalloc.start()
            assert prove(timeline, digest=False)[NAME].same
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    # A batch of rows, or one chunk of the file, is most of it.
    assert peaks[1] < 1.5 * peaks[0] + 4_000_000, peaks
