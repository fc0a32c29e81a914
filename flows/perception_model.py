"""The voice activity model in perception: one window of many channels a call, state in and state out.

A call that fails or takes over `TIMEOUT_S` leaves its windows without probabilities, and the state
behind them is reset: time moves on (law 5, design section 5). For `PAUSE_S` after that the model is not asked
at all, since each try could cost another `TIMEOUT_S`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flows.perception_channel import Channel, Pending
from infra.triton.client import ModelError, ModelRejected
from operators.window import levels_db

log = logging.getLogger(__name__)

TIMEOUT_S = 2.0
PAUSE_S = 1.0
MAX_BATCH = 128
DIGITS = 4
"""Decimals of a logged probability; more would be the model's noise."""


class Vad(Protocol):
    """`infra.triton.client.VadClient`, or a stand-in."""

    def infer(self, audio: Any, context: Any, state: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """audio int16 [B, 1536], context float32 [B, 64], state float32 [B, 2, 128] → `.probability`
        [B, 3], `.context`, `.state`.
        """
        ...


class Heard(NamedTuple):
    """What there is to say of a window."""

    probabilities: tuple[float, ...] | None
    level_db: float
    reset: bool


class VadRounds:
    """Runs rounds of windows through the model and keeps each channel's state with the channel."""

    def __init__(self, vad: Vad, clock: Callable[[], float]) -> None:
        self._vad, self._clock = vad, clock
        self._retry_s: float | None = None

    def hear(self, batch: Sequence[tuple[Channel, Pending]]) -> list[Heard]:
        """The next window of each of up to `MAX_BATCH` different channels."""
        audio = np.stack([pending.window.audio for _, pending in batch])
        resets = [channel.resets.before(pending.window) for channel, pending in batch]
        for (channel, _), reset in zip(batch, resets, strict=True):
            if reset:
                channel.context = np.zeros_like(channel.context)
                channel.state = np.zeros_like(channel.state)
        result = self._ask(batch, audio)
        levels = levels_db(audio)
        if result is None:
            for channel, _ in batch:
                channel.resets.after(None)
            return [Heard(None, *both) for both in zip(levels, resets, strict=True)]
        heard = []
        said: list[list[float]] = np.asarray(result.probability).tolist()
        for i, (channel, _) in enumerate(batch):
            # Copies: a view would keep the whole batch for as long as its slowest channel lives.
            channel.context = result.context[i].copy()
            channel.state = result.state[i].copy()
            probabilities = tuple([round(p, DIGITS) for p in said[i]])
            channel.resets.after(probabilities)
            heard.append(Heard(probabilities, levels[i], resets[i]))
        return heard

    def _ask(self, batch: Sequence[tuple[Channel, Pending]], audio: NDArray[np.int16]) -> Any:
        if self._retry_s is not None and self._clock() < self._retry_s:
            return None
        context = np.stack([channel.context for channel, _ in batch])
        state = np.stack([channel.state for channel, _ in batch])
        try:
            result = self._vad.infer(audio, context, state, timeout_s=TIMEOUT_S)
        except ModelError as error:
            if self._retry_s is None:
                level = logging.ERROR if isinstance(error, ModelRejected) else logging.WARNING
                log.log(level, "no voice activity: %s; windows go on without probabilities", error)
            self._retry_s = self._clock() + PAUSE_S
            return None
        if self._retry_s is not None:
            self._retry_s = None
            log.warning("voice activity is back")
        return result
