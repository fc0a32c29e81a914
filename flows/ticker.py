"""When a session's media time moves on without media (law 6). Monotonic seconds come in, media times go out.

- `live`: from 1 s after the last media (or the opening) on, a tick each second.
- `asap`: the device is the clock, so none while it feeds; only 10 s after its last record do ticks begin.
- A closed `asap` session has nothing to wait for: the ticks that drain it come at once, then one a
  second in case something still has to end.

A tick's time is the media time then plus whole seconds, and always above every time before it.
"""

TICK_S = 1.0
TICK_US = 1_000_000
ASAP_HOLD_S = 9.0
"""On top of the first second: an `asap` device is missed after 10 s."""
DRAIN_TICKS = 3


class Ticker:
    """The ticks of one session."""

    __slots__ = ("_at_us", "_count", "_floor_us", "_hold_s", "_since_s", "ticked_us")

    def __init__(
        self, now_s: float, at_us: int, *, asap: bool = False, ticked_us: int = 0, floor_us: int = 0
    ) -> None:
        self._hold_s = ASAP_HOLD_S if asap else 0.0
        self._floor_us = floor_us
        """The media time that the log had reached before a restart."""
        self.ticked_us = ticked_us
        """The highest media time that a tick has reached."""
        self.heard(now_s, at_us)

    def heard(self, now_s: float, at_us: int) -> None:
        """Media came, and reaches up to `at_us`."""
        self._at_us = max(at_us, self.ticked_us, self._floor_us)
        self._since_s, self._count = now_s, 0

    def due(self, now_s: float) -> int | None:
        """The media time of the tick that is due now; None if none is."""
        count = int((now_s - self._since_s - self._hold_s) / TICK_S)
        if count <= self._count:
            return None
        self._count = count
        self.ticked_us = self._at_us + count * TICK_US
        return self.ticked_us

    def drain(self, now_s: float, closed_us: int) -> list[int]:
        """The media times of the ticks that end an `asap` session closed at `closed_us`."""
        times = [closed_us + (i + 1) * TICK_US for i in range(DRAIN_TICKS)]
        due = [time for time in times if time > self.ticked_us]
        self._hold_s = 0.0
        self.ticked_us = max(self.ticked_us, times[-1])
        self.heard(now_s, self.ticked_us)
        return due
