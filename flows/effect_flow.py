"""The dataflow of a flow that works off requests: `flows.inference` and `flows.harness` are two of them.

timeline + finished outcomes ─► one step ─► timeline
"""

from collections.abc import Callable, Sequence
from threading import Event as StopFlag
from typing import Any, Protocol

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from flows.bytewax_io import EPOCH, TimelineSink, TimelineSource
from flows.effects import Produced
from infra.timeline import Place, Timeline
from schemas.record import Lane, Record, StoredRecord

Item = StoredRecord | Produced | Record
"""What a step is given: what was read, what its effects have produced, and what a start has already decided."""


class EffectStep(Protocol):
    """The flow without Bytewax."""

    def start(
        self, timeline: Timeline, partitions: Sequence[int]
    ) -> tuple[dict[Place, int], list[Record]]:
        """Take up what the log holds: where to read on, and the outcomes of requests that cannot go on."""
        ...

    def extra(self) -> list[Produced]:
        """What the effects have produced since."""
        ...

    def __call__(self, items: Sequence[Item]) -> list[Record]:
        """Records and results in, outcomes out."""
        ...


def build_effect_flow(
    name: str,
    lanes: Sequence[Lane],
    open_timeline: Callable[[], Timeline],
    step: EffectStep,
    stop: StopFlag,
    pace_s: float | None = None,
) -> Dataflow:
    """The dataflow around a step; `stop` ends it."""
    flow = Dataflow(name)
    source = TimelineSource(
        open_timeline, lanes, start=step.start, extra=step.extra, stop=stop, pace_s=pace_s
    )
    items: Any = op.input("log", flow, source)
    outcomes = op.flat_map_batch("effects", items, step)
    op.output("append", outcomes, TimelineSink(open_timeline))
    return flow


def run_effect_flow(flow: Dataflow) -> None:
    """Run it until its source is stopped. One worker: the effects' loop does the concurrency, and outcomes keep their order."""
    run_main(flow, epoch_interval=EPOCH)  # type: ignore[no-untyped-call]
