"""Speech activity: hysteresis over the hops' voice probabilities, in whole hops.

Quiet → speech when hops at or above the activation threshold, not interrupted by one below the deactivation threshold, add up to the
minimum speech; speech → quiet when the silence that began with a hop below the deactivation threshold has lasted the minimum
silence without a hop at or above activation. A hop without a probability counts as silence, so that a dead model ends a turn
instead of hanging it.
"""

from math import inf
from typing import Literal

from operators.reducer import NEVER
from schemas.policy import VadPolicy

Transition = Literal["started", "stopped"]


class SpeechActivity:
    """The activity of one channel. All times are media µs, all at hop boundaries."""

    __slots__ = ("_run_hops", "_run_start", "active", "silence_start", "start", "stop")

    def __init__(self) -> None:
        self.active = False
        self.start = 0
        """Where the speech began (while active, or of the last one)."""
        self.stop = 0
        """Where the last speech fell silent."""
        self.silence_start: int | None = None
        """While active: where the present silence began."""
        self._run_start: int | None = None
        self._run_hops = 0

    def step(
        self, vad: VadPolicy, probability: float | None, start_us: int, end_us: int
    ) -> Transition | None:
        """Take the next hop."""
        p = 0.0 if probability is None else probability
        if self.active:
            if p >= vad.activation:
                self.silence_start = None
            elif p < vad.deactivation and self.silence_start is None:
                self.silence_start = start_us
            if self.silence_start is not None and end_us - self.silence_start >= vad.min_silence:
                return self.close(self.silence_start)
            return None
        if p >= vad.activation:
            if self._run_start is None:
                self._run_start = start_us
                self._run_hops = 0
            self._run_hops += end_us - start_us
            if self._run_hops >= vad.min_speech:
                self.active = True
                self.start, self._run_start = self._run_start, None
                self.silence_start = None
                return "started"
        elif p < vad.deactivation:
            self._run_start = None
        return None

    def steady(self, vad: VadPolicy) -> tuple[float, float, int]:
        """(least, most, before): hops of at least and below these probabilities that end before leave everything here as it is."""
        if not self.active:
            return -inf, vad.activation, 0 if self._run_start is not None else NEVER
        if self.silence_start is None:
            return vad.deactivation, inf, NEVER
        return -inf, vad.activation, self.silence_start + vad.min_silence

    @property
    def stirring(self) -> int | None:
        """Where a voice has begun that may become speech; None while there is none."""
        return None if self.active else self._run_start

    def close(self, at_us: int) -> Transition:
        """End the speech at `at_us`."""
        self.active = False
        self.stop = at_us
        self.silence_start = None
        self._run_start = None
        return "stopped"
