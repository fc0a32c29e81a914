"""Perception after a crash at any place, and as a flow on Bytewax."""

import threading

import numpy as np
import pytest
from bytewax.testing import cluster_main, run_main
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.perception import PerceptionStep, build_perception
from flows.perception_restart import what_is_logged
from infra.timeline import open_timeline
from infra.timeline.port import Timeline
from schemas.cloudevents import decode, wire_type
from schemas.envelope import Event
from schemas.errors import BadRecord
from schemas.record import Record
from schemas.registry import MODELS
from tests.support.perceive import Bench, LevelVad, essence, speech

pytestmark = pytest.mark.flow


def busy_log() -> Bench:
    """Two sessions with all that can happen to media."""
    b = Bench()
    b.play(speech(0.3), session="early")
    b.open()
    b.open("early")
    quiet = np.zeros((16_000 * 5, 1), np.int16)
    end = b.play(np.concatenate([speech(1), quiet, speech(1)]), source="one")
    b.play(speech(1), start_us=end + 700_000, source="one")
    b.play(speech(1, 48_000, 2), 48_000, start_us=0, source="two", chunk=4801)
    b.play(speech(1), start_us=9_000_000, source="two")
    b.play(speech(2), session="early", start_us=300_000, chunk=1000)
    b.close(at_us=20_000_000)
    return b


@settings(max_examples=60, deadline=None)
@given(
    most=st.integers(1, 60),
    crashes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), min_size=1, max_size=4),
)
def test_a_crash_anywhere_and_a_restart_give_what_no_crash_gives(
    most: int, crashes: list[tuple[int, int]]
) -> None:
    """`crashes`: after so many batches, with so many records of the next one's outcomes written."""
    whole = busy_log()
    whole.run()
    b = busy_log()
    for batches, written in crashes:
        for _ in range(batches):
            b.timeline.append(b.batch(most))
        b.timeline.append(b.batch(most)[:written])
        b.start()
    b.run(most)
    for session in ("s", "early"):
        assert essence(sorted_by_channel(b, session)) == essence(sorted_by_channel(whole, session))
        ids = [e.id for e in b.written(session)]
        assert len(ids) == len(set(ids)), "nothing is appended twice"


def sorted_by_channel(b: Bench, session: str) -> list[Event]:
    """Rejections have no place among the windows; everything else has."""
    return sorted(b.written(session), key=lambda e: e.type == "event.rejected")


def test_a_restart_while_the_model_is_down_goes_on_with_a_reset() -> None:
    b = Bench()
    b.open()
    b.play(speech(0.96))
    b.run()
    b.vad.down = True
    b.play(speech(0.48), start_us=960_000)
    b.run()
    b.vad.down = False
    b.start()
    b.play(speech(0.48), start_us=1_440_000)
    b.run()
    windows = b.windows()
    assert [w.data.probabilities is None for w in windows] == [False] * 10 + [True] * 5 + [
        False
    ] * 5
    assert [w.data.reset for w in windows] == [i in (0, 11, 12, 13, 14, 15) for i in range(20)]


def test_the_model_hears_again_only_from_the_last_reset() -> None:
    b = Bench()
    b.open()
    b.play(np.zeros((16_000 * 60, 1), np.int16))
    b.run()
    resets = [i for i, w in enumerate(b.windows()) if w.data.reset]
    b.vad.batches.clear()
    b.start()
    b.run()
    assert len(b.vad.batches) == len(b.windows()) - resets[-1]


# --- on Bytewax


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"channel": [1]}', b"{" * 9999])
@pytest.mark.parametrize("time", [b"1", b"x", b"9" * 5000])
def test_what_is_written_in_the_name_of_a_flow_does_not_keep_it_from_starting(
    value: bytes, time: bytes
) -> None:
    b = Bench()
    b.open("s")
    b.play(speech(1), session="s")
    b.run()
    before = what_is_logged(b.timeline, [0])[1]
    kinds = ("window", "gap", "format_changed")
    for name in (*(f"perception.{k}" for k in kinds), "event.rejected", "response.ended"):
        headers = {
            "ce_specversion": b"1.0",
            "ce_type": wire_type(name).encode(),
            "ce_id": b"foreign",
            "ce_source": MODELS[name].WRITER.value.encode(),
            "ce_mediatime": time,
        }
        foreign = Record("s", tuple(headers.items()), value)
        with pytest.raises(BadRecord):
            decode(foreign)
        b.timeline.append([foreign])
    assert what_is_logged(b.timeline, [0])[1] == before


class ClosableVad(LevelVad):
    def close(self) -> None:
        return


@pytest.mark.parametrize("workers", [1, 2])
def test_the_flow_runs_on_bytewax(workers: int) -> None:
    url = f"memory://bytewax-{workers}?partitions=4"

    def opener() -> Timeline:
        return open_timeline(url)

    b = Bench(timeline=opener())
    sessions = [f"s{i}" for i in range(4)]
    step = PerceptionStep(opener, ClosableVad, {"turn": 1}, {})
    stop = threading.Event()
    flow = build_perception(opener, step, stop)

    def devices() -> None:
        try:
            for s in sessions:
                b.open(s, pacing="asap")
                b.close(s, b.play(speech(2), session=s))
            for _ in range(500):
                if all(len(b.written(s, "clock.tick")) >= 3 for s in sessions):
                    return
                stop.wait(0.02)
        finally:
            stop.set()

    thread = threading.Thread(target=devices)
    thread.start()
    if workers == 1:
        run_main(flow)  # type: ignore[no-untyped-call]
    else:
        cluster_main(flow, [], 0, worker_count_per_proc=workers)  # type: ignore[no-untyped-call]
    thread.join()
    step.close()
    for s in sessions:
        alone = Bench()
        alone.open(s, pacing="asap")
        alone.close(s, alone.play(speech(2), session=s))
        alone.run()
        assert essence(b.windows(s)) == essence(alone.windows(s))
        assert len(b.written(s, "session.configured")) == 1
