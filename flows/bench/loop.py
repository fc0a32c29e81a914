"""`venus bench loop`: what a session-second costs, and how long a decision takes, against the bare log in the same run.

Perception, conversation and the Triton VAD run as they do in `venus run`; synthetic devices feed them in real time and are not counted.
CPU is what the operating system charged to the flows and to Triton while the load was on. Latency is measured in the log itself:
from the append of the chunk that completed a window to the append of the decision which that window caused. The round trip beside it
is a bare append → read of the same log at the same time: one process appends, another follows the log as the flows do.
"""

import json
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

import psutil

from flows.bench.feed import CHUNK_S, RATE, check_fed, feed, probe, session_name, watch_probe
from flows.replay import prove
from flows.supervisor import Child
from infra.clock import monotonic_s, sleep_s
from infra.timeline import Timeline, open_timeline
from schemas.base import WINDOW_SAMPLES
from schemas.cloudevents import decode
from schemas.errors import VenusError
from schemas.record import Lane

FLOWS = ("perception", "conversation")


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """What one run showed. CPU in ms per session-second, times in ms."""

    log: str
    sessions: int
    seconds: float
    cpu_perception: float
    cpu_conversation: float
    cpu_triton: float
    decisions: int
    latency_p50: float
    latency_p99: float
    round_trip_p50: float
    round_trip_p99: float
    replay_speed: float
    """Media seconds replayed per second by the bare fold, one core."""

    @property
    def cpu(self) -> float:
        return self.cpu_perception + self.cpu_conversation + self.cpu_triton

    @property
    def round_trips(self) -> float:
        """Median latency in median round trips."""
        return self.latency_p50 / self.round_trip_p50 if self.round_trip_p50 else float("nan")


def cpu_seconds(process: psutil.Process) -> float:
    """User and system time of a process and all its descendants."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system
    return total


def percentile(values: list[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def run_loop(
    url: str,
    kind: str,
    sessions: int,
    seconds: float,
    triton_url: str,
    triton_pid: int,
    say: Callable[[str], None],
) -> LoopFigures:
    """One run on an empty timeline; Triton runs already, as process `triton_pid`."""
    open_timeline(url).close()
    flows = _start_flows(url, triton_url, say)
    context = multiprocessing.get_context("spawn")
    manager = context.Manager()
    ready, stop, trips = context.Event(), context.Event(), manager.list()
    feeder = context.Process(target=feed, args=(url, sessions, seconds, ready), daemon=True)
    prober = context.Process(target=probe, args=(url, stop), daemon=True)
    watcher = context.Process(target=watch_probe, args=(url, stop, trips), daemon=True)
    try:
        feeder.start()
        ready.wait(60)
        watcher.start()
        prober.start()
        watched = {name: psutil.Process(p.pid) for name, p in flows.items()} | {
            "triton": psutil.Process(triton_pid)
        }
        before = {name: cpu_seconds(p) for name, p in watched.items()}
        started = monotonic_s()
        while feeder.is_alive():
            for name, process in flows.items():
                if process.poll() is not None:
                    raise VenusError(
                        f"the {name} flow died during the measurement (exit code {process.returncode})"
                    )
            sleep_s(0.2)
            say(f"{kind}, {sessions} sessions: {monotonic_s() - started:.0f} of {seconds:.0f} s")
        after = {name: cpu_seconds(p) for name, p in watched.items()}
        check_fed(feeder.exitcode)
        stop.set()
        prober.join(10)
        watcher.join(10)
        sleep_s(4.0)
    finally:
        for process in flows.values():
            process.terminate()
        for process in flows.values():
            process.wait(20)
        feeder.kill()
        prober.kill()
        watcher.kill()
    per = {name: (after[name] - before[name]) * 1e3 / (sessions * seconds) for name in watched}
    with open_timeline(url) as timeline:
        latencies = [ms for _, ms in decision_latencies(timeline, sessions)]
        begun = monotonic_s()
        proofs = prove(timeline)
        took = monotonic_s() - begun
    wrong = [p.session for p in proofs.values() if not p.same]
    if wrong:
        raise VenusError(f"replay differs for {', '.join(wrong)}: these figures would mean nothing")
    return LoopFigures(
        log=kind,
        sessions=sessions,
        seconds=seconds,
        cpu_perception=per["perception"],
        cpu_conversation=per["conversation"],
        cpu_triton=per["triton"],
        decisions=len(latencies),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        round_trip_p50=percentile(list(trips), 50),
        round_trip_p99=percentile(list(trips), 99),
        replay_speed=sum(p.media_us for p in proofs.values()) / 1e6 / took,
    )


def _start_flows(
    url: str, triton_url: str, say: Callable[[str], None]
) -> dict[str, subprocess.Popen[bytes]]:
    """Start the flows and wait until they read the timeline: what they take to start is not part of the measurement."""
    children: dict[str, Child] = {}
    for name in FLOWS:
        command = [
            sys.executable,
            "-m",
            "flows",
            "flow",
            name,
            "--timeline",
            url,
            "--triton",
            triton_url,
        ]
        children[name] = Child(
            name, command, Path(tempfile.gettempdir()) / f"venus-bench-{name}.log", say
        )
        children[name].start()
    for child in children.values():
        if not child.ready.wait(60):
            for other in children.values():
                other.terminate()
            raise VenusError(f"the {child.name} flow did not start: {' '.join(child.last_words)}")
    return {name: child.process for name, child in children.items() if child.process is not None}


def decision_latencies(timeline: Timeline, sessions: int) -> list[tuple[int, float]]:
    """(media time of a window's end in µs, ms from the append of the chunk that completed it to that of its first decision)."""
    chunk_samples = round(CHUNK_S * RATE)
    names = {session_name(i) for i in range(sessions)}
    chunks: dict[tuple[str, int], int] = {}
    for partition in range(timeline.partitions):
        for record in timeline.scan(Lane.MEDIA, partition):
            if record.key in names:
                chunks[record.key, int(dict(record.headers)["ce_sequence"])] = record.appended_us
    windows: dict[str, tuple[str, int]] = {}
    found: list[tuple[int, float]] = []
    for partition in range(timeline.partitions):
        for record in timeline.scan(Lane.TIMELINE, partition):
            if record.key not in names:
                continue
            event = decode(record)
            if event.type == "perception.window":
                windows[event.id] = (record.key, event.data.first_sample + WINDOW_SAMPLES)
            elif event.cause in windows:
                session, end = windows.pop(event.cause)
                appended = chunks.get((session, (end - 1) // chunk_samples))
                if appended is not None:
                    ms = (record.appended_us - appended) / 1e3
                    found.append((end * 1_000_000 // RATE, ms))
    return found


def as_json(figures: LoopFigures) -> str:
    return json.dumps(asdict(figures) | {"cpu": figures.cpu, "round_trips": figures.round_trips})
