"""The runner: limits, fairness, deadlines, retries and cancels of effects that are scripted here,
and the grouping of streamed text.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flows.effect_runner import EffectRunner, FairGate, Outbox
from flows.effects import (
    Effect,
    EffectDesk,
    Produced,
    Results,
)
from flows.grouping import grouped
from infra.clock import monotonic_s, sleep_s
from schemas.cloudevents import decode, encode
from schemas.envelope import Event
from schemas.record import Lane, StoredRecord
from schemas.session import SessionEnded
from tests.flows.effects_support import (
    OUTCOMES,
    completed,
    failed,
    nothing,
    request,
    superseded,
    text,
)

pytestmark = pytest.mark.pure


Script = Callable[[Event, Any], Results]


class Down(Exception):
    retryable = True


class Rig:
    """The real runner with a desk; `settle` waits for outcomes like a flow would."""

    def __init__(self, run: Script, **settings: Any) -> None:
        self.runner = EffectRunner()
        effect = Effect(run, failed, OUTCOMES, **settings)
        self.desk = EffectDesk({"response.requested": effect}, self.runner, "inference")
        self.out: list[Event] = []

    def __enter__(self) -> "Rig":
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def read(self, *events: Event) -> None:
        for event in events:
            record = encode(event)
            stored = StoredRecord(Lane.TIMELINE, 0, 0, 0, record.key, record.headers, record.value)
            self.out += map(decode, self.desk.read(stored))

    def until(self, done: Callable[[], bool], limit_s: float = 5.0) -> None:
        deadline = monotonic_s() + limit_s
        while not done():
            assert monotonic_s() < deadline, (
                f"still waiting after {limit_s} s; so far {self.types()}"
            )
            for produced in self.runner.drain():
                self.out += map(decode, self.desk.take(produced))
            sleep_s(0.001)

    def settle(self) -> list[str]:
        self.until(lambda: self.desk.open == 0)
        return self.types()

    def types(self) -> list[str]:
        return [getattr(e.data, "reason", e.type.rpartition(".")[2]) for e in self.out]


async def speaks(request: Event, _: Any) -> Results:
    yield text("a")
    await asyncio.sleep(0)
    yield completed("a")


async def hangs(request: Event, _: Any) -> Results:
    yield text("a")
    await asyncio.sleep(60)


def test_a_request_runs_to_its_end() -> None:
    with Rig(speaks) as rig:
        rig.read(request())
        assert rig.settle() == ["text", "completed"]


def test_a_cancel_reaches_the_call() -> None:
    gone = []

    async def notices(request: Event, _: Any) -> Results:
        try:
            yield text("a")
            await asyncio.sleep(60)
        finally:
            gone.append(request.id)

    with Rig(notices) as rig:
        rig.read(request())
        rig.until(lambda: len(rig.out) == 1)
        rig.read(superseded())
        assert rig.settle() == ["text", "cancelled"]
        rig.until(lambda: gone == ["q"])


def test_what_cannot_be_reached_is_tried_again_then_unavailable() -> None:
    tries = []

    async def down(request: Event, _: Any) -> Results:
        tries.append(1)
        raise Down("no route\nto host")
        yield

    with Rig(down, tries=3) as rig:
        rig.read(request())
        assert rig.settle() == ["unavailable"]
        assert len(tries) == 3 and rig.out[0].data.message == "no route to host"


def test_a_deadline_during_retries_says_that_nothing_could_be_reached() -> None:
    async def down(request: Event, _: Any) -> Results:
        raise Down("no route")
        yield

    with Rig(down, deadline_s=0.3) as rig:
        rig.read(request())
        assert rig.settle() == ["unavailable"]


def test_a_second_try_may_succeed() -> None:
    tries = []

    async def wakes_up(request: Event, _: Any) -> Results:
        tries.append(1)
        if len(tries) < 2:
            raise Down("not yet")
        yield completed()

    with Rig(wakes_up) as rig:
        rig.read(request())
        assert rig.settle() == ["completed"]


def test_nothing_is_tried_again_once_a_part_is_out() -> None:
    tries = []

    async def breaks(request: Event, _: Any) -> Results:
        tries.append(1)
        yield text("a")
        raise Down("gone")

    with Rig(breaks) as rig:
        rig.read(request())
        assert rig.settle() == ["text", "unavailable"]
        assert len(tries) == 1


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), StopAsyncIteration()])
def test_any_error_of_an_effect_is_its_requests_failure(error: BaseException) -> None:
    async def raises(request: Event, _: Any) -> Results:
        raise error
        yield

    with Rig(raises) as rig:
        rig.read(request())
        assert rig.settle() == ["error"]


def test_an_effect_without_a_result_has_failed() -> None:
    with Rig(nothing) as rig:
        rig.read(request())
        assert rig.settle() == ["error"]


def test_an_unknown_result_fails_its_request() -> None:
    async def odd(request: Event, _: Any) -> Results:
        yield SessionEnded(reason="closed", turns=0, responses=0)

    with Rig(odd) as rig:
        rig.read(request())
        assert rig.settle() == ["error"]


def test_a_deadline_ends_also_what_ignores_its_cancel() -> None:
    async def stubborn(request: Event, _: Any) -> Results:
        for _i in range(20):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        yield completed()

    with Rig(stubborn, deadline_s=0.1) as rig:
        rig.read(request())
        assert rig.settle() == ["timed_out"]


def test_what_is_prepared_is_bounded_and_takes_no_slot() -> None:
    async def prepare(request: Event) -> str:
        if request.id == "q":
            await asyncio.sleep(60)
        return "ready"

    async def run(request: Event, prepared: str) -> Results:
        yield completed(prepared)

    with Rig(run, prepare=prepare, prepare_s=0.3, limit=1) as rig:
        rig.read(request(), request("p"))
        assert rig.settle() == ["completed", "timed_out"]
        assert rig.out[0].cause == "p" and rig.out[0].data.text == "ready"


def test_sessions_take_turns_and_the_limit_holds() -> None:
    order: list[str] = []
    most = [0, 0]
    all_read = threading.Event()

    async def run(request: Event, _: Any) -> Results:
        most[0] += 1
        most[1] = max(most)
        order.append(request.id)
        while not all_read.is_set():  # who takes turns must be there first
            await asyncio.sleep(0.001)
        most[0] -= 1
        yield completed()

    many = [request(f"a{i}", "a") for i in range(6)]
    with Rig(run, limit=1) as rig:
        rig.read(*many, request("b0", "b"), request("b1", "b"), request("c0", "c"))
        rig.runner.call(asyncio.sleep(0.01))  # behind them on the loop: now they all wait
        all_read.set()
        rig.settle()
    assert order == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4", "a5"]
    assert most[1] == 1


def test_requests_of_one_line_never_mix() -> None:
    """D10: the speech of a response's second sentence must not begin before that of the first has ended."""

    async def run(request: Event, _: Any) -> Results:
        yield text(f"{request.id} begins")
        await asyncio.sleep(0.01 if request.id.endswith("0") else 0)
        yield completed(f"{request.id} ends")

    with Rig(run, limit=4, line=lambda request: request.session) as rig:
        rig.read(*(request(f"a{i}", "a") for i in range(3)), request("b0", "b"))
        rig.settle()
    said = [e.data.text for e in rig.out if e.data.text.startswith("a")]
    assert said == [f"a{i} {what}" for i in range(3) for what in ("begins", "ends")]
    assert [e.data.text for e in rig.out][1] == "b0 begins", "other lines go on meanwhile"


def test_closing_ends_nothing_in_the_log() -> None:
    with Rig(hangs) as rig:
        rig.read(request())
        rig.until(lambda: len(rig.out) == 1)
    assert rig.runner.drain() == [] and rig.desk.open == 1


def test_a_full_outbox_makes_the_effect_wait() -> None:
    async def scenario() -> int:
        box, sent = Outbox(limit=4), 0
        box.bind(asyncio.get_running_loop())

        async def flood() -> None:
            nonlocal sent
            for _ in range(10):
                await box.put(Produced("q", text("a")))
                sent += 1

        task = asyncio.create_task(flood())
        await asyncio.sleep(0.01)
        held = sent
        while not task.done():
            box.drain()
            await asyncio.sleep(0)
        return held

    assert asyncio.run(scenario()) == 4


def test_a_turn_that_comes_with_a_cancel_is_passed_on() -> None:
    async def scenario() -> str:
        gate = FairGate(1)
        got: list[str] = []

        async def enter(name: str) -> None:
            async with gate(name):
                got.append(name)

        async with gate("first"):
            tasks = [asyncio.create_task(enter(n)) for n in ("second", "third")]
            await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks, timeout=1)
        return got[0]

    assert asyncio.run(scenario()) == "third"


async def _pieces(*script: str | float) -> AsyncIterator[str]:
    for item in script:
        if isinstance(item, str):
            yield item
        else:
            await asyncio.sleep(item)


@pytest.mark.parametrize(
    ("script", "groups"),
    [
        (
            ["One", " two", " three", " four", " five", " six"],
            ["One", " two three four five", " six"],
        ),
        (["Yes", ".", " And", " no", "."], ["Yes", ".", " And no."]),
        (["", "a", ""], ["a"]),
        ([], []),
    ],
)
def test_text_is_grouped(script: list[str | float], groups: list[str]) -> None:
    assert asyncio.run(_groups(script, longest_s=60)) == groups


def test_text_does_not_wait_for_long() -> None:
    script = ["a", " b", 1.0, " c"]
    assert asyncio.run(_groups(script, longest_s=0.01)) == ["a", " b", " c"]


async def _groups(script: list[str | float], longest_s: float) -> list[str]:
    return [g async for g in grouped(_pieces(*script), longest_s=longest_s)]


def test_an_error_of_the_model_comes_through_the_grouping() -> None:
    async def breaks() -> AsyncIterator[str]:
        yield "a"
        raise Down("x")

    async def collect() -> None:
        async for _ in grouped(breaks()):
            pass

    with pytest.raises(Down):
        asyncio.run(collect())
