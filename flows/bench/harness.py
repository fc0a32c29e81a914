"""What works cost the conversation: decision latency beside eight works, four of them computing, against the same run without.

Perception, conversation and harness run as in `venus run`, the Triton VAD too; synthetic devices feed them in real time. For the first
part of the run nothing is delegated; then eight works are asked for at once. Both parts are measured in the log itself: from the append
of the chunk that completed a window to the append of the decision which that window caused.
"""

import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from flows.bench.feed import check_fed, feed, session_name
from flows.bench.loop import decision_latencies, percentile
from infra.clock import monotonic_s, sleep_s
from infra.timeline import open_timeline
from infra.timeline.port import Timeline
from schemas.cloudevents import encode
from schemas.envelope import Event
from schemas.errors import VenusError
from schemas.ids import observation_id
from schemas.record import Lane
from schemas.work import WorkRequested

FLOWS = ("perception", "conversation", "harness")
SKILLS = "flows.bench.skills"
WORKS, BUSY = 8, 4
SETTLE_S = 4.0
"""Left out at the beginning of each part: flows warm up, workers start."""


@dataclass(frozen=True, slots=True)
class HarnessFigures:
    """ms, and what became of the works."""

    sessions: int
    work_seconds: float
    decisions_without: int
    decisions_with: int
    p50_without: float
    p99_without: float
    p50_with: float
    p99_with: float
    works_completed: int

    @property
    def ratio(self) -> float:
        """p99 with works in p99 without."""
        return self.p99_with / self.p99_without if self.p99_without else float("nan")


def run_harness_bench(
    url: str, sessions: int, work_seconds: float, triton_url: str, say: Callable[[str], None]
) -> HarnessFigures:
    """One run on an empty timeline; Triton runs already."""
    open_timeline(url).close()
    options = ["--timeline", url, "--triton", triton_url, "--skills", SKILLS]
    flows = {
        name: subprocess.Popen([sys.executable, "-m", "flows", "flow", name, *options])
        for name in FLOWS
    }
    part_s = work_seconds + SETTLE_S
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    total_s = 2 * part_s + 2.0
    feeder = context.Process(target=feed, args=(url, sessions, total_s, ready), daemon=True)
    try:
        feeder.start()
        ready.wait(60)
        started, asked = monotonic_s(), False
        while feeder.is_alive():
            for name, process in flows.items():
                if process.poll() is not None:
                    raise VenusError(f"the {name} flow died (exit code {process.returncode})")
            passed = monotonic_s() - started
            if not asked and passed >= part_s:
                asked = True
                _ask(url, work_seconds)
            say(f"{'with' if asked else 'without'} works: {passed:.0f} of {total_s:.0f} s")
            sleep_s(0.1)
        check_fed(feeder.exitcode)
        sleep_s(3.0)
    finally:
        for process in flows.values():
            process.terminate()
        for process in flows.values():
            process.wait(20)
        feeder.kill()
    with open_timeline(url) as timeline:
        found = decision_latencies(timeline, sessions)
        completed = sum(_is(r, b"venus.work.completed.v1") for r in _records(timeline))
    split = part_s * 1e6
    without = [ms for at, ms in found if SETTLE_S * 1e6 <= at < split]
    beside = [ms for at, ms in found if split + SETTLE_S * 1e6 <= at < 2 * split]
    return HarnessFigures(
        sessions,
        work_seconds,
        len(without),
        len(beside),
        percentile(without, 50),
        percentile(without, 99),
        percentile(beside, 50),
        percentile(beside, 99),
        completed,
    )


def _ask(url: str, seconds: float) -> None:
    """Ask for all works at once, as a program would."""
    session, source = session_name(0), "bench/works"
    records = []
    for number in range(WORKS):
        skill = "bench_busy" if number < BUSY else "bench_sleep"
        data = WorkRequested(skill=skill, arguments={"seconds": seconds, "number": number})
        id_ = observation_id(session, source, number, data.TYPE)
        records.append(encode(Event(data.TYPE, session, id_, source, data, None, sequence=number)))
    with open_timeline(url) as timeline:
        timeline.append(records)


def _records(timeline: Timeline) -> Any:
    for partition in range(timeline.partitions):
        yield from timeline.scan(Lane.TIMELINE, partition)


def _is(record: Any, wire: bytes) -> bool:
    return dict(record.headers).get("ce_type") == wire


def as_json(figures: HarnessFigures) -> str:
    return json.dumps(asdict(figures) | {"ratio": figures.ratio})
