"""The flows on Bytewax and a timeline: order, start, stop, workers; and replay through Bytewax on one and two workers."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main, run_main

from flows.bytewax_io import CollectSink, TimelineSink, TimelineSource
from flows.conversation import build_conversation
from flows.replay import digests_through_bytewax, prove
from infra.timeline import open_timeline
from infra.timeline.port import Place, Timeline
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.record import Lane, Record
from schemas.registry import KINDS, Kind
from tests.flows.test_conversation import DECISIONS, INPUTS, LOG, scripted

pytestmark = pytest.mark.flow


def run_until(flow: Dataflow, stop: threading.Event, done: object) -> None:
    """Run a dataflow in this process until `done()` holds, then stop it cleanly."""
    watcher = threading.Thread(target=_watch, args=(stop, done), daemon=True)
    watcher.start()
    run_main(flow)
    watcher.join(5)
    assert done(), "the flow ended before it was done"  # type: ignore[operator]


def _watch(stop: threading.Event, done: object) -> None:
    for _ in range(2000):
        if done():  # type: ignore[operator]
            break
        stop.wait(0.01)
    stop.set()


def decisions(timeline: Timeline) -> list[Record]:
    return [
        Record(r.key or "", r.headers, r.value)
        for p in range(timeline.partitions)
        for r in timeline.scan(Lane.TIMELINE, p)
        if KINDS[decode(r).type] is Kind.DECISION
    ]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield f"sqlite:///{tmp_path}/t.db"


def test_the_flow_appends_what_the_fold_decides(url: str) -> None:
    with open_timeline(url) as timeline:
        timeline.append([encode(e) for e in INPUTS])
        stop = threading.Event()
        flow = build_conversation(lambda: open_timeline(url), stop)
        run_until(flow, stop, lambda: len(decisions(timeline)) >= len(DECISIONS))
        assert decisions(timeline) == DECISIONS


def test_a_restarted_flow_appends_only_what_follows(url: str) -> None:
    with open_timeline(url) as timeline:
        timeline.append(LOG[: len(LOG) * 2 // 3])
        have = len(decisions(timeline))
        timeline.append([encode(e) for e in INPUTS if encode(e) not in LOG[: len(LOG) * 2 // 3]])
        stop = threading.Event()
        flow = build_conversation(lambda: open_timeline(url), stop)
        run_until(flow, stop, lambda: len(decisions(timeline)) >= len(DECISIONS))
        assert 0 < have < len(DECISIONS)
        assert decisions(timeline) == DECISIONS


@pytest.mark.parametrize("workers", [1, 2])
def test_many_sessions_keep_their_order_on_any_number_of_workers(workers: int) -> None:
    sessions = {f"s{i}": scripted(f"s{i}") for i in range(4)}
    with open_timeline(f"memory://many-{workers}?partitions=4") as timeline:
        queues = [[encode(e) for e in s.inputs] for s in sessions.values()]
        while any(queues):
            for queue in queues:
                timeline.append([queue.pop(0) for _ in range(min(7, len(queue)))])
        results = prove(timeline)
        assert digests_through_bytewax(timeline, workers=workers) == {
            n: r.digest for n, r in results.items()
        }
        for name, session in sessions.items():
            expected = [e.type for e in session.events if KINDS[e.type] is Kind.DECISION]
            assert results[name].decisions == len(expected) == results[name].pending


def test_a_source_starts_where_it_is_told_and_sends_first_things_first() -> None:
    with open_timeline("memory://start") as timeline:
        timeline.append(LOG[:10])
        stop, seen, more = threading.Event(), [], ["extra"]
        flow = Dataflow("t")
        source = TimelineSource(
            lambda: open_timeline("memory://start"),
            (Lane.TIMELINE,),
            stop=stop,
            start=lambda _t, _p: ({Place(Lane.TIMELINE, 0): 4}, ["first"]),
            extra=lambda: [more.pop()] if more else [],
        )
        op.output("out", op.input("in", flow, source), CollectSink(seen.append))
        run_until(flow, stop, lambda: len(seen) >= 8)
        assert seen[0] == "first"
        assert [r.offset for r in seen if not isinstance(r, str)] == [4, 5, 6, 7, 8, 9]
        assert "extra" in seen


def test_two_workers_share_the_partitions() -> None:
    with open_timeline("memory://shared?partitions=4") as timeline:
        timeline.append([Record(f"k{i}", LOG[0].headers, b"{}") for i in range(40)])
        stop, seen = threading.Event(), []
        flow = Dataflow("t")
        source = TimelineSource(
            lambda: open_timeline("memory://shared?partitions=4"), (Lane.TIMELINE,), stop=stop
        )
        op.output("out", op.input("in", flow, source), CollectSink(seen.append))
        threading.Thread(target=_watch, args=(stop, lambda: len(seen) >= 40), daemon=True).start()
        cluster_main(flow, [], 0, worker_count_per_proc=2)
        assert sorted(r.key for r in seen) == sorted(f"k{i}" for i in range(40))
        assert set(range(4)) >= {r.partition for r in seen}


def test_the_sink_puts_media_on_the_media_lane(url: str) -> None:
    media = encode(Event("media.audio", "s", "m", "device", Pcm(16000, 1, b"\0\0")))
    sink = TimelineSink(lambda: open_timeline(url)).build("s", 0, 1)
    sink.write_batch([LOG[0], media, LOG[1]])
    sink.close()
    with open_timeline(url) as timeline:
        assert [r.value for r in timeline.scan(Lane.MEDIA, 0)] == [b"\0\0"]
        assert [r.headers for r in timeline.scan(Lane.TIMELINE, 0)] == [
            LOG[0].headers,
            LOG[1].headers,
        ]
