"""Runs effects on one asyncio loop in a thread of its own, so that the flow never waits for a
model.

Rules:
- Every request that was submitted and not cancelled yields one terminal result, whatever the effect
  does: its deadline is kept by the loop, not by the effect, and an effect that ends without a
  terminal result has failed.
- Per effect, at most `limit` run at a time. Those that wait take turns by session, in their own
  order within a session. Those of one line (`Effect.line`) never run at the same time.
- The outbox is bounded: an effect that produces faster than the log takes it waits.
- Retries only while the error says that a retry makes sense and nothing was yielded yet; what was
  yielded may be in the log.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
)

from flows.effects import Effect, Produced, Result, one_line
from schemas.envelope import Event

OUTBOX_LIMIT = 1_000
JOIN_S = 5.0
STOP_S = 8.0
"""How long effects that were cancelled may clean up, and `finish` may take: a tool server that does
not listen has to be killed, which its client does after some seconds.
"""

T = TypeVar("T")


class FairGate:
    """At most `limit` inside; those outside take turns by session, first come first served within
    one.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def __call__(self, session: str) -> AsyncIterator[None]:
        await self._enter(session)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, session: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the turn came together with the cancel: pass it on
            raise

    def _leave(self) -> None:
        while self._waiting:
            session, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[session] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Outbox:
    """Results on their way from the loop to the flow's thread."""

    def __init__(self, limit: int = OUTBOX_LIMIT) -> None:
        self._limit = limit
        self._items: deque[Produced] = deque()
        self._room = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def put(self, item: Produced) -> None:
        """From the loop: wait while the outbox is full."""
        while len(self._items) >= self._limit:
            self._room.clear()
            if len(self._items) >= self._limit:
                await self._room.wait()
        self._items.append(item)

    def put_now(self, item: Produced) -> None:
        """For terminal results, of which there is one a request: never waits."""
        self._items.append(item)

    def drain(self) -> list[Produced]:
        """From the flow's thread: all there is now."""
        out: list[Produced] = []
        while self._items and len(out) < self._limit:
            out.append(self._items.popleft())
        if len(out) >= self._limit // 2 and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.set)
        return out


class EffectRunner:
    """The loop, its thread and the tasks on it. `submit`, `cancel` and `drain` belong to the flow's
    thread.
    """

    def __init__(self, name: str = "effects") -> None:
        self.outbox = Outbox()
        self.loop = asyncio.new_event_loop()
        self.outbox.bind(self.loop)
        self._gates: dict[int, FairGate] = {}
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Kept alive by the requests that stand in line."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        self._thread = Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, request: Event, effect: Effect) -> None:
        self.loop.call_soon_threadsafe(self._start, request, effect)

    def cancel(self, request: str) -> None:
        self.loop.call_soon_threadsafe(self._cancel, request)

    def drain(self) -> list[Produced]:
        return self.outbox.drain()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something of the owner's on the loop and wait for it (opening, closing a client)."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(JOIN_S)

    def close(self, finish: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop everything, then do `finish` on the loop, for what belongs to it. Requests that are
        open stay open in the log: the next start takes them up.
        """
        if self._closing:
            return
        self._closing = True
        try:
            asyncio.run_coroutine_threadsafe(self._stop(finish), self.loop).result(2 * STOP_S)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(JOIN_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    async def _stop(self, finish: Callable[[], Awaitable[None]] | None) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=STOP_S)
            if finish is not None:
                async with asyncio.timeout(STOP_S - 0.5):
                    await finish()
        finally:
            await self.loop.shutdown_asyncgens()

    # --- on the loop

    def _start(self, request: Event, effect: Effect) -> None:
        if self._closing:
            return
        task = self.loop.create_task(_Run(self, request, effect).go())
        self._tasks[request.id] = task
        task.add_done_callback(lambda done: self._forget(request.id, done))

    def _forget(self, request: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(request) is task:
            del self._tasks[request]

    def _cancel(self, request: str) -> None:
        task = self._tasks.get(request)
        if task is not None:
            task.cancel()

    def gate(self, effect: Effect) -> FairGate:
        gate = self._gates.get(id(effect))
        if gate is None:
            gate = self._gates[id(effect)] = FairGate(effect.limit)
        return gate

    def line(self, request: Event, effect: Effect) -> AbstractAsyncContextManager[None]:
        if effect.line is None:
            return nullcontext()
        name = f"{id(effect)}/{request.session}/{effect.line(request)}"
        lock = self._lines.get(name)
        if lock is None:
            lock = self._lines[name] = asyncio.Lock()
        return lock


class _Run:
    """One request on its way to its terminal result."""

    def __init__(self, runner: EffectRunner, request: Event, effect: Effect) -> None:
        self._runner, self._request, self._effect = runner, request, effect
        self._ended = False
        self._yielded = False
        self._unreachable: BaseException | None = None
        """Why the try before failed, while the next one is due."""
        self._timer: asyncio.TimerHandle | None = None

    async def go(self) -> None:
        try:
            await self._work()
        except asyncio.CancelledError:
            # Cancelled from outside: the desk has ended the request. Cancelled by a library of its
            # own accord: that is a failure.
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                self._fail_now("error", "the call was cancelled from within")
        except Exception as error:
            self._end(
                self._effect.failed(self._request, self._effect.reason_of(error), one_line(error))
            )
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _work(self) -> None:
        effect, request = self._effect, self._request
        prepared: Any = None
        if effect.prepare is not None:
            self._arm(effect.prepare_s, "what it needs did not come")
            prepared = await effect.prepare(request)
        async with self._runner.line(request, effect):
            self._arm(effect.deadline_s, "no answer")
            async with self._runner.gate(effect)(request.session):
                await self._try(prepared)
        if not self._ended:
            self._fail_now("error", "it ended without a result")

    async def _try(self, prepared: Any) -> None:
        effect = self._effect
        retrying = AsyncRetrying(
            stop=stop_after_attempt(effect.tries) | stop_after_delay(effect.retry_s),
            wait=wait_exponential(multiplier=0.2, max=3.0),
            retry=retry_if_exception(self._worth_a_retry),
            reraise=True,
        )
        async for attempt in retrying:
            self._unreachable = None
            with attempt:
                async with aclosing(effect.run(self._request, prepared)) as results:
                    async for result in results:
                        if effect.outcomes[result.TYPE]:  # type: ignore[union-attr]
                            self._end(result)
                            return
                        self._yielded = True
                        await self._runner.outbox.put(Produced(self._request.id, result))

    def _worth_a_retry(self, error: BaseException) -> bool:
        if self._yielded or self._effect.reason_of(error) != "unavailable":
            return False
        self._unreachable = error
        return True

    def _arm(self, seconds: float, what: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._timer = self._runner.loop.call_later(
            seconds, self._expire, task, f"{what} within {seconds:g} s"
        )

    def _expire(self, task: "asyncio.Task[None]", message: str) -> None:
        if self._unreachable is None:
            self._fail_now("timed_out", message)
        else:
            self._fail_now("unavailable", one_line(self._unreachable))
        task.cancel()

    def _fail_now(self, reason: Any, message: str) -> None:
        self._end(self._effect.failed(self._request, reason, message))

    def _end(self, result: Result) -> None:
        if not self._ended:
            self._ended = True
            self._runner.outbox.put_now(Produced(self._request.id, result))
