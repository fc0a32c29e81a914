"""The perception flow: media in, windows of voice activity out; also the ticks, and what was wrong.

    timeline + media lane ─► one step over whole batches (`Perception`) ─► timeline

The step is not keyed: a keyed step sees one session at a time, and one model call a session costs five
times what one call for many costs. Its state is rebuilt from the log (`flows.perception_restart`).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main, run_main

from flows.bytewax_io import EPOCH, Flag, TimelineSink, TimelineSource
from flows.perception_batches import WAKE, Perception, Wake
from flows.perception_restart import what_is_logged
from flows.settings import opener
from infra.clock import monotonic_s
from infra.timeline.port import Timeline
from infra.triton.client import VadClient
from schemas.record import Lane, Record

__all__ = ["WAKE", "Perception", "PerceptionStep", "Wake", "build_perception", "run_perception"]

WAKE_S = 0.1


@dataclass(slots=True)
class _Worker:
    """What each Bytewax worker (a thread) has of its own."""

    perception: Perception
    woken_s: float = 0.0


class PerceptionStep:
    """`Perception` as a step that every worker runs for the partitions it reads."""

    def __init__(
        self,
        open_timeline: Callable[[], Timeline],
        make_vad: Callable[[], Any],
        operators: Mapping[str, int],
        models: Mapping[str, str],
        wishes: Mapping[str, Any] = {},
    ) -> None:
        self._open, self._make_vad = open_timeline, make_vad
        self._operators, self._models, self._wishes = operators, models, wishes
        self._opened: list[Any] = []
        # By thread id: to Python, a worker's thread is a new one at every call, with new locals.
        self._workers: dict[int, _Worker] = {}

    def _worker(self) -> _Worker:
        thread = threading.get_ident()
        worker = self._workers.get(thread)
        if worker is None:
            worker = self._workers[thread] = _Worker(self._make())
        return worker

    def _make(self) -> Perception:
        timeline, vad = self._open(), self._make_vad()
        self._opened += [timeline, vad]
        return Perception(
            vad,
            timeline.partition_of,
            lambda partition: timeline.end(Lane.MEDIA)[partition],
            self._operators,
            self._models,
            wishes=self._wishes,
        )

    def __call__(self, items: Sequence[Any]) -> list[Record]:
        return self._worker().perception.on_batch(items)

    def wake(self) -> list[Wake]:
        """Ticks and closings need the step to run while nothing comes."""
        worker, now = self._worker(), monotonic_s()
        if now - worker.woken_s < WAKE_S:
            return []
        worker.woken_s = now
        return [WAKE]

    def close(self) -> None:
        for one in self._opened:
            one.close()


def build_perception(
    open_timeline: Callable[[], Timeline],
    step: PerceptionStep,
    stop: Flag,
    pace_s: float | None = None,
) -> Dataflow:
    """The dataflow around a step; `stop` ends it."""
    flow = Dataflow("perception")
    source = TimelineSource(
        open_timeline,
        (Lane.TIMELINE, Lane.MEDIA),
        start=what_is_logged,
        extra=step.wake,
        stop=stop,
        pace_s=pace_s,
        poll_s=WAKE_S / 2,
    )
    items = op.input("log", flow, source)
    outcomes = op.flat_map_batch("perceive", items, step)
    op.output("append", outcomes, TimelineSink(open_timeline))
    return flow


def run_perception(
    timeline_url: str,
    triton_url: str,
    models: Mapping[str, str],
    *,
    workers: int = 1,
    stop: Flag | None = None,
    pace_s: float | None = None,
    wishes: Mapping[str, Any] = {},
) -> None:
    """Run the flow until `stop` is set. `models` is recorded in each `session.configured`; `wishes` are this
    installation's policy, which a device's own wishes replace.
    """
    from operators.fold import operator_versions

    open_here = opener(timeline_url)
    step = PerceptionStep(
        open_here, partial(VadClient, triton_url), operator_versions(), models, wishes
    )
    flow = build_perception(open_here, step, stop or threading.Event(), pace_s)
    try:
        if workers == 1:
            run_main(flow, epoch_interval=EPOCH)  # type: ignore[no-untyped-call]
        else:
            cluster_main(  # type: ignore[no-untyped-call]
                flow, [], 0, epoch_interval=EPOCH, worker_count_per_proc=workers
            )
    finally:
        step.close()
