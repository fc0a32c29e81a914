"""Generation and speech: streamed, repeatable, and really stopped when nobody listens any more."""

import asyncio
import re
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from infra.clock import monotonic_s
from infra.triton.client import Delta, ModelClient, ModelRejected
from infra.triton.server import LocalTriton
from tests.support.triton import resampled

pytestmark = pytest.mark.triton

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
COUNTING = [{"role": "user", "content": "Write a long story about a ship."}]


async def answer(triton: LocalTriton, *, messages: Any = CAPITAL, **wish: Any) -> list[Delta]:
    async with ModelClient(triton.url) as client:
        return [delta async for delta in client.generate(messages, **wish)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def test_an_answer_comes_piece_by_piece_and_says_why_it_ended(triton: LocalTriton) -> None:
    deltas = asyncio.run(answer(triton, max_tokens=20))
    assert "Paris" in text_of(deltas)
    assert len([delta for delta in deltas if delta.text]) > 3
    assert [delta.finish for delta in deltas] == [""] * (len(deltas) - 1) + ["stop"]
    counts = [delta.tokens for delta in deltas]
    assert counts == sorted(counts)
    assert counts[-1] <= 20


def test_an_answer_ends_at_its_limit(triton: LocalTriton) -> None:
    deltas = asyncio.run(answer(triton, max_tokens=3))
    assert (deltas[-1].finish, deltas[-1].tokens) == ("length", 3)


def test_an_answer_ends_before_a_stop_string(triton: LocalTriton) -> None:
    deltas = asyncio.run(answer(triton, max_tokens=20, stop=["of France"]))
    assert text_of(deltas) == "The capital "
    assert deltas[-1].finish == "stop"


def test_the_same_seed_gives_the_same_answer_and_another_another(triton: LocalTriton) -> None:
    def drawn(seed: int) -> str:
        wish = {"messages": COUNTING, "max_tokens": 8, "temperature": 1.5, "seed": seed}
        return text_of(asyncio.run(answer(triton, **wish)))

    first = drawn(1)
    assert drawn(1) == first
    assert drawn(2) != first


def test_no_character_is_ever_cut(triton: LocalTriton) -> None:
    messages = [{"role": "user", "content": "Answer with emojis only: 😀🚀🌍🎉"}]
    for limit in (5, 6, 7):
        deltas = asyncio.run(answer(triton, messages=messages, max_tokens=limit))
        assert "\ufffd" not in text_of(deltas)
    assert any(ord(letter) > 0xFFFF for letter in text_of(deltas)), "no emoji came, nothing shown"


@pytest.mark.parametrize("wish", [{"messages": []}, {"max_tokens": 0}, {"temperature": -1}])
def test_a_senseless_request_is_refused(triton: LocalTriton, wish: dict[str, Any]) -> None:
    with pytest.raises(ModelRejected, match=r"chat at grpc://.*bad request"):
        asyncio.run(answer(triton, **wish))


def cancelled_counts(triton: LocalTriton) -> list[int]:
    """How many tokens each cancelled generation had made, by the model's own word in the server's log."""
    log = triton.log_path.read_text(errors="replace")
    return [int(count) for count in re.findall(r"chat: cancelled after (\d+) tokens", log)]


async def stops_within(triton: LocalTriton, before: int, seconds: float) -> int:
    until = monotonic_s() + seconds
    while len(cancelled_counts(triton)) == before and monotonic_s() < until:
        await asyncio.sleep(0.02)
    counts = cancelled_counts(triton)
    assert len(counts) == before + 1, "the server went on generating"
    return counts[-1]


def test_closing_a_generation_stops_it_on_the_server(triton: LocalTriton) -> None:
    async def closed() -> tuple[int, int]:
        before = len(cancelled_counts(triton))
        async with ModelClient(triton.url) as client:
            async with aclosing(client.generate(COUNTING, max_tokens=400)) as deltas:
                async for delta in deltas:
                    if delta.tokens >= 5:
                        break
            return delta.tokens, await stops_within(triton, before, 5.0)

    read, made = asyncio.run(closed())
    assert read <= made <= read + 2


def test_cancelling_the_task_stops_the_generation_on_the_server(triton: LocalTriton) -> None:
    async def cancelled() -> tuple[int, int]:
        before = len(cancelled_counts(triton))
        seen = [0]
        async with ModelClient(triton.url) as client:

            async def read() -> None:
                async with aclosing(client.generate(COUNTING, max_tokens=400)) as deltas:
                    async for delta in deltas:
                        seen[0] = delta.tokens

            task = asyncio.create_task(read())
            while seen[0] < 3:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return seen[0], await stops_within(triton, before, 5.0)

    read, made = asyncio.run(cancelled())
    assert read <= made <= read + 2


def test_a_second_generation_does_not_wait_for_the_first(triton: LocalTriton) -> None:
    async def both() -> list[str]:
        order: list[str] = []
        async with ModelClient(triton.url) as client:

            async def run(name: str, tokens: int) -> None:
                async for delta in client.generate(COUNTING, max_tokens=tokens):
                    if delta.finish:
                        order.append(name)

            long: Coroutine[Any, Any, None] = run("long", 30)
            await asyncio.gather(long, run("short", 4))
        return order

    assert asyncio.run(both()) == ["short", "long"]


def test_speech_says_what_was_written(triton: LocalTriton) -> None:
    async def said() -> tuple[list[int], str]:
        async with ModelClient(triton.url) as client:
            text = "The weather in Paris is sunny today. Your order is on its way."
            chunks = [chunk async for chunk in client.speak(text)]
            (rate,) = {chunk.rate for chunk in chunks}
            samples = np.frombuffer(b"".join(chunk.pcm for chunk in chunks), np.int16)
            heard = await client.transcribe(resampled(samples, rate))
            return [len(chunk.pcm) for chunk in chunks], heard.text.lower()

    sizes, heard = asyncio.run(said())
    for word in ("weather", "paris", "sunny", "today", "order", "way"):
        assert word in heard
    assert len(sizes) > 4
    assert max(sizes) <= 25_000


@pytest.mark.parametrize("text", ["", "   ", "... --- !?", "\n"])
def test_text_without_words_makes_no_sound_and_no_error(triton: LocalTriton, text: str) -> None:
    async def said() -> list[Any]:
        async with ModelClient(triton.url) as client:
            return [chunk async for chunk in client.speak(text, timeout_s=10.0)]

    assert asyncio.run(said()) == []


def test_closing_speech_leaves_the_voice_free_for_the_next(triton: LocalTriton) -> None:
    async def interrupted() -> float:
        async with ModelClient(triton.url) as client:
            long = "This sentence is one of very many sentences. " * 40
            async with aclosing(client.speak(long)) as chunks:
                await anext(chunks)
            began = monotonic_s()
            assert [chunk async for chunk in client.speak("Yes.")]
            return monotonic_s() - began

    # All of the long text takes ten times this.
    assert asyncio.run(interrupted()) < 6.0
