"""One fixture for every kind of timeline: `log_url` names an empty log of its own for each test."""

import uuid
from pathlib import Path

import pytest

from tests.support.kafka import what_is_missing

KINDS = ["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)]
# What several processes can share.
SHARED_KINDS = KINDS[1:]


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def log_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "memory":
        return f"memory://{uuid.uuid4().hex}?partitions=4"
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/log.db"
    broker = request.getfixturevalue("kafka_broker")
    return str(broker.url(broker.topic(), "partitions=4"))


@pytest.fixture
def between_processes() -> None:
    """Asked for by a test that needs a log that several processes can open."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "log_url" in metafunc.fixturenames:
        shared = "between_processes" in metafunc.fixturenames
        metafunc.parametrize("kind", SHARED_KINDS if shared else KINDS, indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say once why the Kafka tests were skipped, and how to have them."""
    missing = what_is_missing()
    if missing and any(missing in str(r.longrepr) for r in terminalreporter.getreports("skipped")):
        terminalreporter.write_line(f"Kafka tests skipped: {missing}")
