"""What holds for every test: each module says what kind of test it is, and Hypothesis runs alike on any machine."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from operators.fold import SessionFold
from schemas.envelope import Event
from tests.support.kafka import kafka_broker, own_kafka_broker  # noqa: F401  (one broker a run)
from tests.support.triton import recording, triton  # noqa: F401  (one model server a run)

CATEGORIES = frozenset({"pure", "case", "timeline", "flow", "triton", "loop", "browser", "slow"})
"""What `pytestmark` of a module must name at least one of; `kafka` comes on top of `timeline`."""

# Time limits on single examples fail on a busy machine and find nothing there.
_SLOW_IS_FINE = [HealthCheck.too_slow]
settings.register_profile("default", deadline=None, suppress_health_check=_SLOW_IS_FINE)
settings.register_profile(
    "ci", deadline=None, suppress_health_check=_SLOW_IS_FINE, derandomize=True, print_blob=True
)
settings.register_profile("nightly", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)


_ISOLATED = SessionFold._failed


def _raised(fold: SessionFold, error: Exception, event: Event) -> None:
    raise error.__cause__ or error


# An operator that fails ends its session, which a test that looks for something else might not notice.
SessionFold._failed = _raised  # type: ignore[assignment,method-assign]


@pytest.fixture
def failing_operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An operator's error ends its session, as it does outside the tests."""
    monkeypatch.setattr(SessionFold, "_failed", _ISOLATED)
    yield


def undeclared(module: object) -> str | None:
    """What is wrong with a test module's declaration, in one line."""
    marks = getattr(module, "pytestmark", [])
    marks = marks if isinstance(marks, list | tuple) else [marks]
    if CATEGORIES & {mark.name for mark in marks}:
        return None
    known = ", ".join(sorted(CATEGORIES))
    return f"declares no category: add `pytestmark = pytest.mark.pure` (or one of {known})"


SERVICES = frozenset({"triton", "loop", "kafka"})
"""What is marked so, or asks for a fixture of such a name, shares the servers of one process."""


def group_of(item: pytest.Item) -> str | None:
    """Which tests stay in one process where two run at a time: one Triton and one broker a run, and works are counted by all alike."""
    fixtures = {name.split("_")[0] for name in getattr(item, "fixturenames", ())}
    if SERVICES & (fixtures | {mark.name for mark in item.iter_markers()}):
        return "services"
    return "harness" if item.path.parent.name == "harness" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stop before any test runs where a module does not say what it is, and say which tests belong together."""
    modules = {item.path: item.module for item in items if isinstance(item, pytest.Function)}
    wrong = [
        f"{path}: {what}"
        for path, module in sorted(modules.items())
        if (what := undeclared(module)) is not None
    ]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
    for item in items:
        group = group_of(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
