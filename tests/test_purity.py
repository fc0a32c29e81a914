"""Schemas and operators are pure (law 2): no clock, no chance, no files, no network, no environment, no threads.

Checked on the syntax trees, by what is imported and by what is called or named. Each ban says what to use instead.
"""

import pytest

from tests.support.sources import Source, parse, sources, within

pytestmark = pytest.mark.pure

TIME = "time comes as an argument: the event's media time, or a count of samples"
CHANCE = "ids are derived (schemas.ids); a seed comes from the policy"
WORLD = "what touches the world lives in infra/; hand its result over as an event"
ENVIRONMENT = (
    "settings come from the policy in the log; flows/settings.py alone reads the environment"
)
THREADS = "operators run to completion; flows do the concurrency"
GRAPH = "wrap the reducer as a step in flows/"
LOGGING = "say it with an event that carries its reason"

BANNED_IMPORTS = {
    **dict.fromkeys(("time", "datetime", "sched", "zoneinfo"), TIME),
    **dict.fromkeys(("random", "secrets", "uuid", "numpy.random"), CHANCE),
    **dict.fromkeys(
        (
            "io",
            "pathlib",
            "shutil",
            "tempfile",
            "glob",
            "sqlite3",
            "socket",
            "ssl",
            "http",
            "urllib",
        ),
        WORLD,
    ),
    **dict.fromkeys(
        ("requests", "aiohttp", "grpc", "tritonclient", "kafka", "confluent_kafka"), WORLD
    ),
    **dict.fromkeys(("subprocess", "signal", "ctypes", "mmap", "pickle", "shelve"), WORLD),
    **dict.fromkeys(("os", "platform", "getpass", "locale"), ENVIRONMENT),
    **dict.fromkeys(("threading", "asyncio", "multiprocessing", "concurrent", "queue"), THREADS),
    **dict.fromkeys(("logging", "warnings"), LOGGING),
    **dict.fromkeys(("bytewax",), GRAPH),
    **dict.fromkeys(("infra", "flows"), "imports go schemas ← operators ← infra ← flows"),
}
BANNED_CALLS = {
    **dict.fromkeys(("open", "input", "breakpoint", "__import__", "exec", "eval"), WORLD),
    "print": LOGGING,
    "id": "the address of an object differs from run to run; " + CHANCE,
    "hash": "hash() of text differs from process to process; " + CHANCE,
}
BANNED_NAMES = {
    "sys.argv": ENVIRONMENT,
    "sys.stdin": WORLD,
    "numpy.random": CHANCE,
    "importlib": WORLD,
}


def impurities(source: Source) -> list[str]:
    """One line for each thing that a pure module must not do."""
    found = set()
    for line, name in source.imports():
        banned = within(name, frozenset(BANNED_IMPORTS))
        if banned or name.startswith("."):
            why = BANNED_IMPORTS.get(banned or "", "import by the full name")
            found.add(f"{source.path}:{line}: imports {name}; instead: {why}")
    for line, name in source.names():
        banned = within(name, frozenset(BANNED_NAMES))
        if banned:
            found.add(f"{source.path}:{line}: uses {name}; instead: {BANNED_NAMES[banned]}")
    for line, name in source.calls():
        if name in BANNED_CALLS:
            found.add(f"{source.path}:{line}: calls {name}(); instead: {BANNED_CALLS[name]}")
    return sorted(found)


@pytest.mark.parametrize("source", sources("schemas", "operators"), ids=lambda s: s.path)
def test_schemas_and_operators_are_pure(source: Source) -> None:
    assert not (found := impurities(source)), "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from time import monotonic as now",
        "def f():\n    import random",
        "from numpy import random",
        "import numpy as np\nx = np.random.default_rng()",
        "from os import environ",
        "x = open('a')",
        "x = hash('a')",
        "print('x')",
        "import bytewax.operators as op",
        "from infra.clock import wall_us",
        "from . import sibling",
        "import sys\nx = sys.argv[1]",
    ],
)
def test_an_impure_module_is_found(text: str) -> None:
    found = impurities(parse("operators/x.py", text))
    assert found
    assert all("instead: " in line for line in found)


def test_a_pure_module_passes() -> None:
    text = "import numpy as np\nfrom hashlib import blake2b\n\ndef f(event):\n    return event.id, np.zeros(3)\n"
    assert impurities(parse("operators/x.py", text)) == []
