"""Holds a Triton server: started as a program of its own, so that the server dies with whoever asked for it.

    python -I -S keeper.py PARENT_PID SHM_PREFIX COMMAND…

The kernel's own "die with the parent" (PR_SET_PDEATHSIG) means the parent's *thread*, and a server
started from a worker thread would die with that. So this process watches the parent's life, and
only its own single-threaded child gets that signal. It prints the server's process id, ends with
the server's exit status, and leaves no stub process and no shared memory behind, however the server
ended. The clock here only paces the watching.
"""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
WATCH_S = 0.25
PATIENCE = 20  # watches between asking the server to end and ending it


def start(command: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execv(command[0], command)
    return pid


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def main(parent: int, prefix: str, command: list[str]) -> int:
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = start(command)
    print(server, flush=True)
    asked = 0
    while True:
        got = signal.sigtimedwait(signals, WATCH_S)
        ended, status = os.waitpid(server, os.WNOHANG)
        if ended:
            break
        told = got is not None and got.si_signo != signal.SIGCHLD
        if not asked and (told or os.getppid() != parent):
            os.kill(server, signal.SIGTERM)
            asked = 1
        elif asked:
            asked += 1
            if asked > PATIENCE:
                signal_group(server, signal.SIGKILL)
    signal_group(server, signal.SIGKILL)  # its stubs, where it could not end them itself
    for path in Path("/dev/shm").glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
