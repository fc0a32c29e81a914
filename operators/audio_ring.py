"""The newest samples of a channel, for whoever is asked about a span of them (pre-roll, transcripts).

Samples are copied in and out: nothing that is handed over changes later (A13).
"""

import numpy as np
from numpy.typing import NDArray

from schemas.base import SAMPLE_RATE

Int16 = NDArray[np.int16]


class AudioRing:
    """The newest samples of a channel by (epoch, sample): blocks of a second, the oldest go first."""

    __slots__ = ("_blocks", "_gone", "_keep")

    BLOCK = SAMPLE_RATE

    def __init__(self, samples: int = 70 * SAMPLE_RATE) -> None:
        self._keep = -(-samples // self.BLOCK) + 1
        self._blocks: dict[tuple[int, int], Int16] = {}
        self._gone: tuple[int, int] = (-1, 0)
        """The newest block that is no longer held."""

    def add(self, epoch: int, first_sample: int, samples: Int16) -> None:
        """Keep a copy of int16 samples that begin at `first_sample`."""
        done = 0
        while done < len(samples):
            index, at = divmod(first_sample + done, self.BLOCK)
            block = self._blocks.get((epoch, index))
            if block is None:
                block = self._blocks[epoch, index] = np.zeros(self.BLOCK, np.int16)
                if len(self._blocks) > self._keep:
                    oldest = next(iter(self._blocks))
                    del self._blocks[oldest]
                    self._gone = max(self._gone, oldest)
            part = samples[done : done + self.BLOCK - at]
            block[at : at + len(part)] = part
            done += len(part)

    def span(self, epoch: int, first_sample: int, end_sample: int) -> Int16:
        """A copy of the samples from `first_sample` to before `end_sample`; zeros where none came.

        Raises:
            LookupError: they begin before what is held.
        """
        out = np.zeros(max(0, end_sample - first_sample), np.int16)
        at = first_sample
        if (epoch, at // self.BLOCK) <= self._gone:
            raise LookupError(f"sample {at} of epoch {epoch} is older than what is held")
        while at < end_sample:
            index, inside = divmod(at, self.BLOCK)
            count = min(self.BLOCK - inside, end_sample - at)
            block = self._blocks.get((epoch, index))
            if block is not None:
                start = at - first_sample
                out[start : start + count] = block[inside : inside + count]
            at += count
        return out
