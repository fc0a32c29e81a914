"""The conversation flow: observations and outcomes in, decisions out.

    timeline ──► key by session ──► one stateful step per session ──► timeline

The step is the shared fold (`operators.fold`): it applies each input run-to-completion over the decision operators. What it derived
is appended as one batch, in agenda order. After a restart the flow reads the log again from its beginning, derives everything anew,
and appends only what is not in the log yet (`flows.conversation_session`).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.testing import cluster_main, run_main

from flows.bytewax_io import EPOCH, Flag, TimelineSink, TimelineSource
from flows.conversation_session import ConversationSession, EndedSessions, Logged, what_is_logged
from flows.settings import opener
from infra.timeline.port import Timeline
from schemas.record import Lane, Record, StoredRecord


class _Step(StatefulBatchLogic[StoredRecord | Logged, Record, None]):
    """The Bytewax side of `ConversationSession`; its state lives in the log, so snapshots are empty."""

    def __init__(self, ended: EndedSessions) -> None:
        self._session: ConversationSession | None = None
        self._ended = ended

    def on_batch(self, values: list[StoredRecord | Logged]) -> tuple[Iterable[Record], bool]:
        out: list[Record] = []
        for value in values:
            if isinstance(value, Logged):
                self._session = ConversationSession(value.session, value.decisions)
                continue
            if value.key is None or value.key in self._ended:
                continue
            if self._session is None:
                self._session = ConversationSession(value.key)
            out.extend(self._session.feed(value))
            if self._session.ended:
                self._ended.add(value.key)
                self._session = None
        return out, self._session is None

    def on_notify(self) -> tuple[Iterable[Record], bool]:
        return (), False

    def on_eof(self) -> tuple[Iterable[Record], bool]:
        return (), False

    def notify_at(self) -> datetime | None:
        return None

    def snapshot(self) -> None:
        return None


def conversation_step(stream: Any, ended: EndedSessions) -> Any:
    """Attach the keyed step to a stream of `StoredRecord | Logged`; replay uses it as well."""
    keyed = op.key_on("session", stream, _key)
    decided = op.stateful_batch("decide", keyed, lambda _state: _Step(ended))
    return op.key_rm("unkey", decided)


def _key(item: StoredRecord | Logged) -> str:
    return item.session if isinstance(item, Logged) else (item.key or "")


BUSY_PER_S = 400.0
"""Windows a second from which gathering pays here: each batch costs a transaction and a turn of Bytewax, each window little."""


def build_conversation(
    open_timeline: Callable[[], Timeline], stop: Flag, pace_s: float | None = None
) -> Dataflow:
    """The dataflow; `stop` is an event that ends it."""
    ended = EndedSessions()
    flow = Dataflow("conversation")
    source = TimelineSource(
        open_timeline,
        (Lane.TIMELINE,),
        start=lambda timeline, partitions: what_is_logged(timeline, partitions, ended),
        stop=stop,
        pace_s=pace_s,
        busy_per_s=BUSY_PER_S,
    )
    records = op.input("timeline", flow, source)
    op.output("decisions", conversation_step(records, ended), TimelineSink(open_timeline))
    return flow


def run_conversation(
    timeline_url: str, *, stop: Flag, workers: int = 1, pace_s: float | None = None
) -> None:
    """Run the flow until `stop` is set."""
    flow = build_conversation(opener(timeline_url), stop, pace_s)
    if workers == 1:
        run_main(flow, epoch_interval=EPOCH)  # type: ignore[no-untyped-call]
    else:
        cluster_main(flow, [], 0, epoch_interval=EPOCH, worker_count_per_proc=workers)  # type: ignore[no-untyped-call]
