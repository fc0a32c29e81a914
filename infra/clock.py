"""The only place that reads this machine's clocks or sleeps (law 2: decisions never do).

`wall_us` stamps what is appended, for people; `monotonic_s` measures time-outs and never jumps.
"""

import time


def wall_us() -> int:
    """Wall-clock time in µs since 1970."""
    return time.time_ns() // 1000


def monotonic_s() -> float:
    """Seconds from an arbitrary start; never falls."""
    return time.monotonic()


def cpu_s() -> float:
    """CPU time that this process has used; for measurements that other work on the machine must not spoil."""
    return time.process_time()


def sleep_s(seconds: float) -> None:
    """Let other threads and processes run for about this long."""
    time.sleep(seconds)
