"""`venus doctor`: what this machine lacks, and the command that mends each thing."""

import importlib.util
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.settings import Settings, environment, timeline_at
from infra.triton.parts import OPTIONAL, missing_model_parts
from infra.triton.server import missing_parts
from schemas.errors import VenusError

PACKAGES = (
    "bytewax",
    "kafka",
    "crc32c",
    "numpy",
    "orjson",
    "pydantic",
    "torch",
    "transformers",
    "tritonclient",
    "soxr",
    "soundfile",
)
FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `mend` is the command or step that helps where it is not well."""

    name: str
    well: bool
    says: str
    mend: str = ""
    needed: bool = True


def examine(timeline: str, triton: str) -> Iterator[Finding]:
    """Look at everything that a run on this timeline needs."""
    version = sys.version_info
    right = (3, 11) <= version[:2] < (3, 13)
    yield Finding(
        "python",
        right,
        platform.python_version(),
        "install Python 3.11 or 3.12 and run `make run` with PYTHON=python3.11",
    )
    for name in PACKAGES:
        there = importlib.util.find_spec(name) is not None
        yield Finding(
            f"package {name}", there, "installed" if there else "missing", "pip install -e ."
        )
    if triton == "local":
        missing = missing_parts()
        for part in missing:
            yield Finding(part.name, False, part.why, part.mend)
        if not missing:
            yield Finding("models", True, "Triton and all models are here")
        yield from _optional_models()
    else:
        yield _triton_answers(triton)
    yield _timeline_opens(timeline)
    free = shutil.disk_usage(Path.cwd()).free
    yield Finding(
        "disk", free > FREE_BYTES, f"{free / 1024**3:.0f} GB free here", "free at least 2 GB"
    )
    java, home = shutil.which("java"), Settings.read().kafka_home
    says = f"java {'found' if java else 'missing'}, KAFKA_HOME {home or 'not set'}"
    mend = "only for the Kafka tests: install Java 17 and set KAFKA_HOME to an unpacked Apache Kafka 4.x"
    yield Finding("kafka for tests", bool(java and home), says, mend, needed=False)


def _optional_models() -> Iterator[Finding]:
    needed = Settings.read().backchannel
    for model in OPTIONAL:
        missing = missing_model_parts(model, environment())
        for part in missing:
            yield Finding(part.name, False, part.why, part.mend, needed)
        if not missing:
            says = "here, and switched on" if needed else "here; off unless VENUS_BACKCHANNEL=on"
            yield Finding(f"model {model}", True, says)


def _triton_answers(url: str) -> Finding:
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(url.removeprefix("grpc://"))
    try:
        ready = client.is_server_ready(client_timeout=3)
    except Exception as error:
        return Finding(
            "triton",
            False,
            f"{url} does not answer: {str(error).splitlines()[0]}",
            "start it, or use --triton local",
        )
    return Finding(
        "triton", bool(ready), f"{url} is {'ready' if ready else 'not ready'}", "see its log"
    )


def _timeline_opens(url: str) -> Finding:
    try:
        with timeline_at(url, create=False) as timeline:
            return Finding("timeline", True, f"{url}: {timeline.partitions} partition(s)")
    except VenusError as error:
        fresh = "no file" in str(error) or "does not exist" in str(error)
        return Finding(
            "timeline",
            fresh,
            f"{error}" + (" (it will be made)" if fresh else ""),
            "check the URL; is the broker running?",
        )
