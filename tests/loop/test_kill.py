"""Any flow killed with -9 at random moments, while sessions are running: no decision lost, each seen once, everything replays."""

import os
import random
import signal
import threading
from pathlib import Path

import pytest

from flows.capture import Device, DeviceOptions
from flows.replay import prove_both
from flows.settings import timeline_at
from flows.supervisor import FLOWS, IdleWatch
from infra.capture.audiofile import AudioFile
from infra.clock import sleep_s
from infra.triton.server import LocalTriton
from schemas.cloudevents import decode
from schemas.record import Lane
from schemas.registry import KINDS, REQUESTS, TERMINALS, Kind
from tests.loop.conftest import Running

pytestmark = pytest.mark.loop

TRACK = Path(__file__).parents[2] / "flows" / "demo" / "conversation.flac"
SESSIONS = 3
KILLS = 6


def test_killed_flows_lose_and_double_nothing(
    running: Running, database: str, triton: LocalTriton
) -> None:
    rng = random.Random(7)
    failed: list[BaseException] = []

    def play(name: str) -> None:
        try:
            options = DeviceOptions(
                speed=None, policy={"response.max_tokens": "6"}, ended_within_s=120
            )
            with timeline_at(database) as timeline, AudioFile(TRACK) as audio:
                Device(timeline, name, audio, options).run()
        except BaseException as error:
            failed.append(error)

    with running(database) as supervisor:
        devices = [threading.Thread(target=play, args=(f"s{i}",)) for i in range(SESSIONS)]
        for device in devices:
            device.start()
        for _ in range(KILLS):
            sleep_s(rng.uniform(0.5, 2.5))
            child = rng.choice(supervisor.children)
            assert child.process is not None
            killed = child.process
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            for _ in range(300):
                supervisor.watch()
                if child.process is not killed and child.ready.is_set():
                    break
                sleep_s(0.1)
        while any(device.is_alive() for device in devices):
            supervisor.watch()
            sleep_s(0.1)
        assert not failed, failed
        assert sum(child.restarts for child in supervisor.children) == KILLS
        assert {child.name for child in supervisor.children} == set(FLOWS)
    with timeline_at(database) as timeline:
        idle = IdleWatch(timeline)
        assert idle.idle(), "a session or a request has no end"
        idle.close()
        results = prove_both(timeline)
        assert {name: r.difference for name, r in results.items() if not r.same} == {}
        assert (
            all(r.ended and r.pending == 0 for r in results.values()) and len(results) == SESSIONS
        )
        events = [decode(r) for r in timeline.scan(Lane.TIMELINE, 0)]
    decided = [e.id for e in events if KINDS[e.type] is Kind.DECISION]
    assert len(decided) == len(set(decided)), (
        "a decision is in the log twice, though one process writes at a time"
    )
    requests = {e.id for e in events if e.type in REQUESTS}
    terminals = [e.cause for e in events if e.type in TERMINALS]
    assert requests == set(terminals) and len(terminals) == len(requests)
