"""One Triton server for a whole test run, and the recordings that the models are asked about.

Import the fixtures into a folder's `conftest.py`: `from tests.support.triton import triton, recording  # noqa: F401`.
"""

import os
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr

from infra.triton.parts import MODELS, OPTIONAL, missing_model_parts, missing_parts
from infra.triton.server import LocalTriton
from infra.triton.wire import Array

RECORDINGS = Path(__file__).parents[3] / "shared" / "data"
RATE = 16_000


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTriton]:
    """A server with every model that is here, on the CPU."""
    missing = missing_parts()
    if missing:
        pytest.skip(f"no Triton here: {missing[0]}")
    models = (*MODELS, *(m for m in OPTIONAL if not missing_model_parts(m, os.environ)))
    with LocalTriton(models, log_path=tmp_path_factory.mktemp("triton") / "server.log") as server:
        yield server


def resampled(samples: Array, rate: int) -> Array:
    """int16 at any rate, as int16 at 16 kHz."""
    if rate == RATE:
        return samples
    floats = soxr.resample(samples.astype(np.float32), rate, RATE)
    rounded: Array = np.clip(np.rint(floats), -32768, 32767).astype(np.int16)
    return rounded


@pytest.fixture(scope="session")
def recording() -> Callable[[str], Array]:
    """Reads a mono recording of the shared folder as int16 at 16 kHz; skips where the folder is not there."""

    def read(name: str) -> Array:
        path = RECORDINGS / name
        if not path.is_file():
            pytest.skip(f"the recording {name} is not here (looked in ../shared/data)")
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
            return resampled(samples, file.getframerate())

    return read
