"""`venus run`: starts Triton and the flows as processes, restarts what dies, stops everything with nothing lost.

- A flow that dies is started again, a little later each time; one that dies five times within half a minute ends the run. State is
  in the log, so a restart needs nothing else.
- SIGTERM to a flow lets it finish what it has read and written; Triton stops last.
- Children die with this process, however it ends.
- A SQLite timeline has one run at a time (one ticker, law 6): the lock file beside it says so, and goes with the process.
"""

import ctypes
import fcntl
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

from flows.bytewax_io import READY
from flows.settings import timeline_at
from infra.clock import monotonic_s
from infra.timeline.port import Place, Reader, Timeline
from infra.triton.server import LocalTriton, Progress, TritonStartError
from schemas.cloudevents import decode
from schemas.errors import BadInput, BadRecord, VenusError
from schemas.record import Lane
from schemas.registry import REQUESTS, TERMINALS

FLOWS = ("perception", "conversation", "inference")
DEATHS, WITHIN_S = 5, 30.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 5.0
STOP_S = 15.0
LOOK_S = 0.2
_PR_SET_PDEATHSIG = 1

Say = Callable[[str], None]


def _die_with_parent() -> None:
    """Between fork and exec: the kernel ends this child when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Child:
    """One flow's process: started, watched, started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path, say: Say) -> None:
        self.name, self.command, self.log, self.say = name, list(command), log, say
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = threading.Event()
        self.restarts = 0
        self.last_words: deque[str] = deque(maxlen=3)
        self._deaths: deque[float] = deque(maxlen=DEATHS)
        self._again_at = 0.0

    def start(self) -> None:
        self.ready.clear()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
            start_new_session=True,  # Ctrl-C is the supervisor's to pass on, in order
        )
        assert self.process.stdout is not None
        threading.Thread(target=self._copy, args=(self.process.stdout,), daemon=True).start()

    def _copy(self, output: IO[bytes]) -> None:
        """Its output goes to its log file; the line that says that it reads the timeline is noticed."""
        with self.log.open("ab") as log:
            for line in output:
                log.write(line)
                log.flush()
                text = line.decode(errors="replace").strip()
                if READY in text:
                    self.ready.set()
                elif text:
                    self.last_words.append(text)

    def watch(self) -> None:
        """Start it again if it has died.

        Raises:
            VenusError: it dies again and again.
        """
        if self.process is None or self.process.poll() is None:
            return
        now = monotonic_s()
        if self._again_at == 0.0:
            self._deaths.append(now)
            code = self.process.returncode
            if len(self._deaths) == DEATHS and now - self._deaths[0] < WITHIN_S:
                words = self.last_words[-1] if self.last_words else f"exit code {code}"
                raise VenusError(f"the {self.name} flow keeps dying: {words} (see {self.log})")
            self._again_at = now + min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (len(self._deaths) - 1))
            self.say(f"the {self.name} flow died (exit code {code}); starting it again")
        elif now >= self._again_at:
            self._again_at = 0.0
            self.restarts += 1
            self.start()

    def terminate(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait(self, until: float) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(max(0.1, until - monotonic_s()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class IdleWatch:
    """Whether every session that was opened has ended, and every request has its terminal outcome."""

    def __init__(self, timeline: Timeline) -> None:
        self._reader: Reader = timeline.reader({Place(Lane.TIMELINE, p): 0 for p in range(timeline.partitions)})
        self._open: set[str] = set()
        self._requests: set[str] = set()
        self._ended: set[str] = set()

    def idle(self) -> bool:
        """Read what is new, and say."""
        while records := self._reader.poll(0.02):
            for record in records:
                try:
                    event = decode(record)
                except BadRecord:
                    continue
                if event.type == "session.opened" and event.session not in self._ended:
                    self._open.add(event.session)
                elif event.type == "session.ended":
                    self._open.discard(event.session)
                    self._ended.add(event.session)
                elif event.type in REQUESTS:
                    self._requests.add(event.id)
                elif event.type in TERMINALS:
                    self._requests.discard(event.cause or "")
        return not self._open and not self._requests

    def close(self) -> None:
        self._reader.close()


class OneRun:
    """The lock that keeps a second run away from a SQLite timeline; other timelines need none."""

    def __init__(self, url: str) -> None:
        self._file: IO[str] | None = None
        if not url.startswith("sqlite:///"):
            return
        path = Path(url.removeprefix("sqlite:///").partition("?")[0] + ".run")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadInput(f"another `venus run` works on {url}; stop it, or name another --timeline") from None

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


class Supervisor:
    """A run; a context manager that has everything started inside."""

    def __init__(
        self,
        timeline: str,
        triton: str,
        *,
        flows: Sequence[str] = FLOWS,
        device: str = "cpu",
        log_dir: Path = Path("out/log"),
        say: Say = lambda _: None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        unknown = set(flows) - set(FLOWS)
        if unknown:
            raise BadInput(f"no flow named {', '.join(sorted(unknown))}; there are {', '.join(FLOWS)}")
        self.timeline, self.triton_url, self.flows = timeline, triton, tuple(flows)
        self.log_dir, self.say, self._progress = log_dir, say, progress
        self._device = device
        self.children: list[Child] = []
        self.triton: LocalTriton | None = None
        self._lock: OneRun | None = None

    def __enter__(self) -> Self:
        self._lock = OneRun(self.timeline)
        try:
            timeline_at(self.timeline).close()
            self.log_dir.mkdir(parents=True, exist_ok=True)
            self._start_triton()
            for name in self.flows:
                command = [sys.executable, "-m", "flows", "flow", name]
                command += ["--timeline", self.timeline, "--triton", self.triton_url]
                child = Child(name, command, self.log_dir / f"{name}.log", self.say)
                child.start()
                self.children.append(child)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_triton(self) -> None:
        if self.triton_url != "local":
            return
        try:
            self.triton = LocalTriton(log_path=self.log_dir / "triton.log", device=self._device)
            self.triton.start(self._progress)
        except TritonStartError as error:
            raise BadInput(f"Triton does not start: {error}") from None
        self.triton_url = self.triton.url

    def watch(self) -> None:
        """Look after everything once; call it again and again.

        Raises:
            VenusError: something cannot be kept alive.
        """
        for child in self.children:
            child.watch()
        if self.triton is not None and not self.triton.alive():
            self.say("Triton died; starting it again")
            port = self.triton.port
            try:
                self.triton = LocalTriton(
                    log_path=self.log_dir / "triton.log", device=self._device, grpc_port=port
                ).start()
            except TritonStartError as error:
                raise VenusError(f"Triton does not come back: {error}") from None

    @property
    def ready(self) -> bool:
        """Every flow reads the timeline."""
        return all(child.ready.is_set() for child in self.children)

    def run(self, stop: threading.Event, until_idle: bool = False, on_ready: Callable[[], None] = lambda: None) -> None:
        """Watch until `stop` is set, or nothing is left to do."""
        timeline = timeline_at(self.timeline)
        idle = IdleWatch(timeline) if until_idle else None
        told = False
        calm = 0
        while not stop.wait(LOOK_S):
            self.watch()
            if self.ready and not told:
                told = True
                on_ready()
            if idle is not None and told:
                calm = calm + 1 if idle.idle() else 0
                if calm * LOOK_S >= 1.0:
                    break
        if idle is not None:
            idle.close()
        timeline.close()

    def stop(self) -> None:
        """Let the flows finish, then end them; Triton last."""
        until = monotonic_s() + STOP_S
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait(until)
        if self.triton is not None:
            self.triton.stop()
        if self._lock is not None:
            self._lock.release()
