"""The whole loop for tests: the flows as processes on a log of the test's own, over the test run's one Triton."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from flows.supervisor import Supervisor
from infra.clock import monotonic_s, sleep_s
from infra.triton.server import LocalTriton

Running = Callable[[str], AbstractContextManager[Supervisor]]


@pytest.fixture(scope="session")
def running(triton: LocalTriton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`with running(url) as supervisor:` has all flows reading the timeline at `url`."""

    @contextmanager
    def start(url: str) -> Iterator[Supervisor]:
        with Supervisor(url, triton.url, log_dir=tmp_path_factory.mktemp("log")) as supervisor:
            until = monotonic_s() + 60
            while not supervisor.ready:
                assert monotonic_s() < until, f"the flows do not start: {supervisor.log_dir}"
                supervisor.watch()
                sleep_s(0.05)
            yield supervisor

    yield start


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/timeline.db"
