"""Groups the pieces of a streamed text: a record per token would cost the log more than the token
cost the model.

The first piece goes out at once, since speech can begin with it; then a few pieces together, after
`GROUP_S` at the latest, and at once where a sentence ends, since its synthesis waits for just that.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

GROUP_PIECES = 4
GROUP_S = 0.15
SENTENCE_ENDS = (".", "!", "?", ";", ":", "…", "。", "！", "？", "；", "\n")


async def grouped(
    pieces: AsyncIterator[str], most: int = GROUP_PIECES, longest_s: float = GROUP_S
) -> AsyncGenerator[str, None]:
    """The same text in fewer pieces; none is empty. Closing this closes `pieces`."""
    held: list[str] = []
    first = True
    timer: asyncio.Task[None] | None = None
    following: asyncio.Future[str] | None = None
    try:
        while True:
            if following is None:
                following = asyncio.ensure_future(anext(pieces))
            both: list[asyncio.Future[Any]] = [following] if timer is None else [following, timer]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            flush = timer is not None and timer.done()
            if following.done():
                done, following = following, None
                try:
                    piece = done.result()
                except StopAsyncIteration:
                    break
                if piece:
                    held.append(piece)
                    flush = (
                        flush
                        or first
                        or len(held) >= most
                        or piece.rstrip(" ").endswith(SENTENCE_ENDS)
                    )
            if held and flush:
                yield "".join(held)
                held, first = [], False
            if timer is not None and (not held or timer.done()):
                timer.cancel()
                timer = None
            if held and timer is None:
                timer = asyncio.create_task(asyncio.sleep(longest_s))
        if held:
            yield "".join(held)
    finally:
        for task in (timer, following):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()
