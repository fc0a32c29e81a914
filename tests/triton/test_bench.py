"""`venus bench loop` and `harness` measure: short runs whose figures are figures. What they are is for a quiet machine to say."""

from pathlib import Path

import pytest

from flows.bench.harness import WORKS, run_harness_bench
from flows.bench.loop import run_loop
from infra.triton.server import LocalTriton

pytestmark = pytest.mark.triton


def test_the_loop_is_measured(triton: LocalTriton, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    f = run_loop(url, "sqlite", 2, 4.0, triton.url, triton.pid, lambda _: None)
    assert f.cpu_perception > 0 and f.cpu_conversation > 0 and f.cpu_triton > 0
    assert f.decisions > 0 and 0 < f.latency_p50 <= f.latency_p99
    assert 0 < f.round_trip_p50 < f.latency_p50
    assert f.replay_speed > 1


def test_the_cost_of_works_is_measured(triton: LocalTriton, tmp_path: Path) -> None:
    f = run_harness_bench(f"sqlite:///{tmp_path}/log.db", 3, 4.0, triton.url, lambda _: None)
    assert f.works_completed == WORKS
    assert f.decisions_without > 0 and f.decisions_with > 0
    assert f.ratio > 0
