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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from flows.bytewax_io import READY
from flows.settings import timeline_at
from infra.clock import monotonic_s
from infra.timeline.port import Place, Reader, Timeline
from infra.triton.parts import MODELS
from infra.triton.server import LocalTriton, Progress, TritonStartError, free_port
from schemas.cloudevents import decode
from schemas.errors import BadInput, BadRecord, VenusError
from schemas.record import Lane
from schemas.registry import ENDED_BY_DECISION, REQUESTS, TERMINALS

FLOWS = ("perception", "conversation", "inference", "harness")
NEED_TRITON = {"perception", "inference"}
DEATHS, WITHIN_S = 5, 30.0
FIRST_DELAY_S, LONGEST_DELAY_S = 0.2, 5.0
STOP_S = 15.0
LOOK_S = 0.2
_PR_SET_PDEATHSIG = 1

Say = Callable[[str], None]


def _die_with_parent() -> None:
    """Between fork and exec: the kernel ends this child when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class KeepsDying(VenusError):
    """Something that was started again and again does not stay alive."""


class Deaths:
    """Counts how often one thing has died lately, and how long to wait before it is started again."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=DEATHS)

    def another(self) -> float | None:
        """Seconds to wait; None where it has died too often."""
        now = monotonic_s()
        self._at.append(now)
        if len(self._at) == DEATHS and now - self._at[0] < WITHIN_S:
            return None
        recent = sum(now - at < WITHIN_S for at in self._at)
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (recent - 1))


class Child:
    """One flow's process: started, watched, started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path, say: Say) -> None:
        self.name, self.command, self.log, self.say = name, list(command), log, say
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = threading.Event()
        self.restarts = 0
        self.last_words: deque[str] = deque(maxlen=3)
        self._deaths = Deaths()
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
        with output, self.log.open("ab") as log:
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
            KeepsDying: it dies again and again.
        """
        if self.process is None or self.process.poll() is None:
            return
        now = monotonic_s()
        if self._again_at == 0.0:
            code = self.process.returncode
            delay = self._deaths.another()
            if delay is None:
                words = self.last_words[-1] if self.last_words else f"exit code {code}"
                raise KeepsDying(f"the {self.name} flow keeps dying: {words} (see {self.log})")
            self._again_at = now + delay
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
        self._reader: Reader = timeline.reader(
            {Place(Lane.TIMELINE, p): 0 for p in range(timeline.partitions)}
        )
        self._open: set[str] = set()
        self._requests: set[str] = set()
        self._answered: set[str] = set()
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
                    # A crash may have written it twice, also after its answer.
                    if event.id not in self._answered:
                        self._requests.add(event.id)
                elif event.type in TERMINALS or event.type in ENDED_BY_DECISION:
                    over = event.cause if event.type in TERMINALS else event.data.request
                    self._answered.add(over or "")
                    self._requests.discard(over or "")
        return not self._open and not self._requests

    def close(self) -> None:
        self._reader.close()


class OneRun:
    """The lock that keeps a second run (or import) away from a SQLite timeline; other timelines have none."""

    def __init__(self, url: str, command: str = "run") -> None:
        self._file: IO[str] | None = None
        if not url.startswith("sqlite:///"):
            return
        path = Path(url.removeprefix("sqlite:///").partition("?")[0] + f".{command}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadInput(
                f"another `venus {command}` works on {url}; stop it, or name another --timeline"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()


class Model:
    """The local Triton: started once before the flows, and again, in the background, when it has died."""

    def __init__(self, triton: LocalTriton, say: Say) -> None:
        self._triton, self._say = triton, say
        self._deaths = Deaths()
        self._again_at: float | None = None
        self._reviving: threading.Thread | None = None
        self._why = "the server died"

    @property
    def pid(self) -> int:
        return self._triton.pid

    def start(self, progress: Callable[[Progress], None] | None) -> str:
        """Return its URL once every model answers; the port stays the same whenever it is started again."""
        self._triton.start(progress)
        return self._triton.url

    def watch(self) -> None:
        """Start it again if it has died.

        Raises:
            KeepsDying: it dies again and again, or cannot be started any more.
        """
        if (self._reviving is not None and self._reviving.is_alive()) or self._triton.alive():
            return
        if self._again_at is None:
            delay = self._deaths.another()
            if delay is None:
                raise KeepsDying(f"Triton keeps dying: {self._why} (see {self._triton.log_path})")
            self._again_at = monotonic_s() + delay
            self._say("Triton died; starting it again")
        elif monotonic_s() >= self._again_at:
            self._again_at = None
            self._reviving = threading.Thread(target=self._revive, daemon=True)
            self._reviving.start()

    def _revive(self) -> None:
        try:
            self._triton.start()
            self._say("Triton is back")
        except TritonStartError as error:
            self._why = str(error)

    def stop(self) -> None:
        self._triton.stop()
        if self._reviving is not None:
            self._reviving.join(STOP_S)
            self._triton.stop()


class Supervisor:
    """A run; a context manager that has everything started inside."""

    def __init__(
        self,
        timeline: str,
        triton: str,
        *,
        flows: Sequence[str] = FLOWS,
        device: str = "cpu",
        models: Sequence[str] = MODELS,
        log_dir: Path = Path("out/log"),
        say: Say = lambda _: None,
        progress: Callable[[Progress], None] | None = None,
        more: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`more`: flow → further arguments of its process."""
        unknown = set(flows) - set(FLOWS)
        if unknown:
            raise BadInput(
                f"no flow named {', '.join(sorted(unknown))}; there are {', '.join(FLOWS)}"
            )
        if timeline.startswith("memory:"):
            raise BadInput(
                f"timeline {timeline}: a memory log lives in one process, and each flow is a process; "
                "use sqlite:// or kafka://"
            )
        self.timeline, self.triton_url, self.flows = timeline, triton, tuple(flows)
        self.log_dir, self.say, self._progress = log_dir, say, progress
        self.shown = timeline
        """The timeline's URL without secrets, once it has been opened."""
        self.uses_triton = bool(NEED_TRITON & set(flows))
        self._device, self._models, self._more = device, tuple(models), dict(more or {})
        self.children: list[Child] = []
        self.triton: Model | None = None
        self._lock: OneRun | None = None

    def __enter__(self) -> Self:
        self._lock = OneRun(self.timeline)
        try:
            with timeline_at(self.timeline) as timeline:
                self.shown = timeline.url
            self.log_dir.mkdir(parents=True, exist_ok=True)
            self._start_triton()
            for name in self.flows:
                command = [sys.executable, "-P", "-m", "flows", "flow", name]
                command += ["--timeline", self.timeline, "--triton", self.triton_url]
                command += self._more.get(name, ())
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
        if self.triton_url != "local" or not self.uses_triton:
            return
        log_path = self.log_dir / "triton.log"
        # A port of its own from the beginning, so that it comes back where the flows look for it.
        local = LocalTriton(
            self._models, log_path=log_path, device=self._device, grpc_port=free_port()
        )
        self.triton = Model(local, self.say)
        try:
            self.triton_url = self.triton.start(self._progress)
        except TritonStartError as error:
            raise BadInput(f"Triton does not start: {error}") from None

    def watch(self) -> None:
        """Look after everything once; call it again and again.

        Raises:
            KeepsDying: something cannot be kept alive.
        """
        for child in self.children:
            child.watch()
        if self.triton is not None:
            self.triton.watch()

    @property
    def ready(self) -> bool:
        """Every flow reads the timeline."""
        return all(child.ready.is_set() for child in self.children)

    def run(
        self,
        stop: threading.Event,
        until_idle: bool = False,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
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
