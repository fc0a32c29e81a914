"""The layout's rules, checked on the syntax trees: which part may import which, who reads clocks and the environment."""

import re

import pytest

from tests.support.sources import ROOT, Source, sources, within

pytestmark = pytest.mark.pure

MAY_IMPORT = {
    "schemas": {"schemas"},
    "operators": {"schemas", "operators"},
    "infra": {"schemas", "operators", "infra"},
    "flows": {"schemas", "operators", "infra", "flows"},
}
PARTS = frozenset({*MAY_IMPORT, "tests"})
CLOCKS = frozenset(
    {
        *(f"time.{n}{ns}" for n in ("time", "monotonic", "perf_counter") for ns in ("", "_ns")),
        "time.sleep",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
ENVIRONMENT = frozenset({"os.environ", "os.getenv", "os.environb", "os.putenv"})
READS_THE_CLOCK = "infra/clock.py"
READS_THE_ENVIRONMENT = {
    "flows/settings.py",
    # Starts a program, which inherits the environment; `missing_parts` says what that will find.
    "infra/triton/server.py",
    "infra/triton/parts.py",
}
# These run inside Triton, in processes of their own, and may import nothing of ours.
INSIDE_TRITON = "infra/triton/models/"
LONGEST, LONGEST_TEST = 400, 600
"""Lines; tests may be longer, since theirs are lists of cases."""

ALL = sources(*MAY_IMPORT)
EVERY = pytest.mark.parametrize("source", ALL, ids=lambda s: s.path)


@EVERY
def test_imports_go_one_way(source: Source) -> None:
    part = source.path.partition("/")[0]
    allowed = set() if source.path.startswith(INSIDE_TRITON) else MAY_IMPORT[part]
    wrong = [
        f"{source.path}:{line}: imports {name}; {part} may import {', '.join(sorted(allowed)) or 'nothing of ours'}"
        for line, name in source.imports()
        if (found := within(name, PARTS)) is not None and found not in allowed
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@EVERY
def test_one_module_reads_the_clock(source: Source) -> None:
    if source.path == READS_THE_CLOCK or source.path.startswith(INSIDE_TRITON):
        return
    wrong = [
        f"{source.path}:{line}: uses {name}; instead: infra.clock, or a time that is handed over"
        for line, name in source.names()
        if within(name, CLOCKS)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@EVERY
def test_one_module_reads_the_environment(source: Source) -> None:
    if source.path in READS_THE_ENVIRONMENT or source.path.startswith(INSIDE_TRITON):
        return
    wrong = [
        f"{source.path}:{line}: uses {name}; instead: flows.settings, handed over as an argument"
        for line, name in source.names()
        if within(name, ENVIRONMENT)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@EVERY
def test_every_module_says_what_it_is_for(source: Source) -> None:
    if source.path.endswith("__init__.py") and source.lines == 0:
        return
    assert source.docstring, f"{source.path}: its first lines do not say what it is for"


@pytest.mark.parametrize("source", [*ALL, *sources("tests")], ids=lambda s: s.path)
def test_a_long_module_says_why(source: Source) -> None:
    if source.lines > (LONGEST_TEST if source.path.startswith("tests/") else LONGEST):
        says_why = re.search(r"\b(one file|long|length)\b", source.docstring, re.IGNORECASE)
        assert says_why, (
            f"{source.path}: {source.lines} lines; split it, or say why it is long in its docstring"
        )


def test_the_rules_look_at_something() -> None:
    assert {s.path.partition("/")[0] for s in ALL} == set(MAY_IMPORT)
    assert (ROOT / READS_THE_CLOCK).is_file()
    assert all((ROOT / path).is_file() for path in READS_THE_ENVIRONMENT)
