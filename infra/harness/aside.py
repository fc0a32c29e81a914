"""Starts a program that makes room for the conversation and does not outlive the Harness: `python aside.py PID COMMAND…`.

The standard library alone, so that it can be run by its path in any environment. Priority has two parts: niceness, and, for a process
with a session of its own, the weight of that session's group, without which niceness counts only inside it. What computes also leaves
one core alone: a process that wakes up on a core where another computes, however humble, waits for the end of its slice.
"""

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
COMPUTES, SERVES = 19, 10
"""Niceness of what may compute for long, and of what mostly waits (a server that must also come up in time)."""


def make_room(harness: int, niceness: int) -> bool:
    """Step aside for everybody else; False: the Harness has ended already."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.nice(niceness)
        cores = sorted(os.sched_getaffinity(0))
        if niceness >= COMPUTES and len(cores) > 1:
            os.sched_setaffinity(0, cores[1:])
    except (AttributeError, OSError):
        pass
    # The kernel takes a change of a group's weight from an ordinary user ten times a second.
    for _ in range(20 if os.getsid(0) == os.getpid() else 0):
        try:
            with open("/proc/self/autogroup", "w") as file:
                file.write(str(niceness))
            break
        except BlockingIOError:
            select.select([], [], [], 0.05)
        except OSError:
            break
    return os.getppid() == harness


def aside(command: list[str]) -> list[str]:
    """The command that starts `command` in this way."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), *command]


if __name__ == "__main__":
    if make_room(int(sys.argv[1]), SERVES):
        try:
            os.execvp(sys.argv[2], sys.argv[2:])
        except OSError as error:
            sys.exit(f"{sys.argv[2]}: {error.strerror}")
