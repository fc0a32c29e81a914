"""A Triton server on this machine, on the CPU or a GPU, as a child process that never outlives its caller.

The server is the one inside the `nvidia-pytriton` wheel. It is started without models, and each is
then loaded by a request of its own: they load in parallel, each failure arrives as the model's own
message, and voice activity answers while the language model is still loading. Restarting a server
that died is the caller's business (`alive()`).

    with LocalTriton(log_path=folder / "triton.log") as triton:
        client = ModelClient(triton.url)
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from infra.clock import monotonic_s, sleep_s
from infra.triton.parts import (
    MODELS,
    REPOSITORY,
    MissingPart,
    missing_parts,
    package_folder,
    server_folder,
    shared_python,
    stub,
)

__all__ = ["LocalTriton", "MissingPart", "Progress", "TritonStartError", "missing_parts"]

LOCALHOST = "127.0.0.1"
POLL_S = 0.05
STOP_S = 8.0


class TritonStartError(Exception):
    """The server or one of its models did not start; the message is one line and names the reason."""


class PortTaken(TritonStartError):
    """Another process listens there."""


@dataclass(frozen=True)
class Progress:
    """How far a start has come: seconds since it began; per model "waiting", "loading", "ready" or "failed"."""

    seconds: float
    models: Mapping[str, str]

    @property
    def ready(self) -> bool:
        return all(status == "ready" for status in self.models.values())


class LocalTriton:
    """One local server. `start()` returns when every model answers; `stop()` leaves nothing behind."""

    def __init__(
        self,
        models: Sequence[str] = MODELS,
        *,
        log_path: Path,
        device: str = "cpu",
        repository: Path = REPOSITORY,
        grpc_port: int = 0,
        metrics_port: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 180.0,
    ) -> None:
        """`grpc_port` 0 takes a free one. `env` adds to this process's environment (settings of the models)."""
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device cpu or cuda required, {device!r} came")
        self.models = tuple(models)
        self.log_path = log_path
        self._device = device
        self._repository = repository
        self._wanted_port = grpc_port
        self._metrics_port = metrics_port
        self._env = {**os.environ, **(env or {}), "VENUS_DEVICE": device}
        self._timeout_s = timeout_s
        self._keeper: subprocess.Popen[str] | None = None
        self._backends: Path | None = None
        self._log_start = 0
        self.port = grpc_port
        self.pid = 0

    @property
    def url(self) -> str:
        return f"grpc://{LOCALHOST}:{self.port}"

    def alive(self) -> bool:
        return self._keeper is not None and self._keeper.poll() is None

    def start(self, progress: Callable[[Progress], None] | None = None) -> Self:
        """Start and wait until every model is ready.

        Raises:
            TritonStartError: a part is missing, the port is taken, a model cannot be loaded, or time is up.
        """
        if self.alive():
            return self
        self.stop()
        missing = missing_parts(self.models, self._env)
        if missing:
            raise TritonStartError("; ".join(str(part) for part in missing))
        began = monotonic_s()
        try:
            try:
                self._launch()
                self._wait_live(began)
            except PortTaken:
                if self._wanted_port:
                    raise
                self.stop()  # somebody took the free port in between: once more, with another
                self._launch()
                self._wait_live(began)
            self._load_all(began, progress or (lambda _: None))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the server and its model processes; safe to call twice."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.terminate()
            try:
                keeper.wait(STOP_S)
            except subprocess.TimeoutExpired:
                keeper.kill()  # the server has the kernel's order to die with its keeper
                keeper.wait()
            if keeper.stdout is not None:
                keeper.stdout.close()
        if self._backends is not None:
            shutil.rmtree(self._backends, ignore_errors=True)
            self._backends = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self) -> None:
        folder = server_folder()
        assert folder is not None, "missing_parts found the server a moment ago"
        self.port = self._wanted_port or free_port()
        if self._wanted_port and not port_is_free(self._wanted_port):
            raise PortTaken(f"port {self._wanted_port} is in use by another process")
        self._backends = backend_folder(folder)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"venus_{os.getpid()}_{self.port}_"
        command = [str(folder / "bin" / "tritonserver"), *self._arguments(prefix)]
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).parent / "keeper.py")]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._keeper = subprocess.Popen(
                [*keeper, str(os.getpid()), prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                text=True,
                start_new_session=True,  # Ctrl-C in the terminal is the caller's to answer
            )
        assert self._keeper.stdout is not None
        self.pid = int(self._keeper.stdout.readline() or 0)

    def _arguments(self, prefix: str) -> list[str]:
        arguments = {
            "model-repository": self._repository,
            "backend-directory": self._backends,
            "model-control-mode": "explicit",
            "allow-http": "false",
            "grpc-address": LOCALHOST,
            "grpc-port": self.port,
            "allow-metrics": "false" if self._metrics_port is None else "true",
            "log-info": "true",
            "model-load-thread-count": max(4, len(self.models)),
            "exit-timeout-secs": 2,
            "backend-config": f"python,shm-region-prefix-name={prefix}",
        }
        if self._metrics_port is not None:
            arguments |= {"metrics-address": LOCALHOST, "metrics-port": self._metrics_port}
        return [f"--{name}={value}" for name, value in arguments.items()]

    def _environment(self) -> dict[str, str]:
        """The server's libraries, and an interpreter for its models that sees the same packages as this one."""
        env = dict(self._env)
        folder = package_folder("pytriton")
        assert folder is not None
        libraries = [str(folder.parent / "nvidia_pytriton.libs"), env.get("LD_LIBRARY_PATH", "")]
        python = shared_python() or ""
        if "/" in python:
            libraries.insert(1, str(Path(python).parent))
        env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, libraries))
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
        # Model files are read by path; nothing here may go and look for them elsewhere.
        env.setdefault("HF_HUB_OFFLINE", "1")
        return env

    def _wait_live(self, began: float) -> None:
        with grpc.insecure_channel(f"{LOCALHOST}:{self.port}") as channel:
            live = service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive
            while True:
                if not self.alive():
                    if not port_is_free(self.port):
                        raise PortTaken(f"port {self.port} is in use by another process")
                    raise TritonStartError(f"the Triton server ended at once: {self._log_reason()}")
                try:
                    live(service_pb2.ServerLiveRequest(), timeout=1.0)
                    return
                except grpc.RpcError:
                    if monotonic_s() - began > self._timeout_s:
                        raise TritonStartError(self._late()) from None
                    sleep_s(POLL_S)

    def _load_all(self, began: float, progress: Callable[[Progress], None]) -> None:
        status = dict.fromkeys(self.models, "waiting")
        reasons: dict[str, str] = {}
        with grpc.insecure_channel(f"{LOCALHOST}:{self.port}") as channel:
            load = service_pb2_grpc.GRPCInferenceServiceStub(channel).RepositoryModelLoad

            def load_one(model: str) -> None:
                status[model] = "loading"
                try:
                    request = service_pb2.RepositoryModelLoadRequest(model_name=model)
                    load(request, timeout=self._timeout_s)
                    status[model] = "ready"
                except grpc.RpcError as error:
                    reasons[model] = load_reason(model, str(error.details()))
                    status[model] = "failed"

            threads = [
                threading.Thread(target=load_one, args=(m,), daemon=True) for m in self.models
            ]
            for thread in threads:
                thread.start()
            seen: dict[str, str] = {}
            while any(thread.is_alive() for thread in threads) or seen != status:
                if seen != status:
                    seen = dict(status)
                    progress(Progress(monotonic_s() - began, dict(seen)))
                if not self.alive():
                    raise TritonStartError(f"the Triton server died: {self._log_reason()}")
                if reasons:
                    raise TritonStartError("; ".join(reasons.values()))
                if monotonic_s() - began > self._timeout_s:
                    raise TritonStartError(self._late())
                sleep_s(POLL_S)
        if reasons:
            raise TritonStartError("; ".join(reasons.values()))

    def _late(self) -> str:
        return f"not ready after {self._timeout_s:.0f} s, see {self.log_path}"

    def _log_reason(self) -> str:
        """The last line of the server's log that tells of an error."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
        for line in reversed(lines):
            if line.startswith("E") or "error" in line.lower():
                return f"{line.split('] ', 1)[-1].strip()} (see {self.log_path})"
        return f"see {self.log_path}"


def load_reason(model: str, details: str) -> str:
    """The line that matters of Triton's answer to a load: the model's own exception, else the whole on one line."""
    lines = [line.strip() for line in details.splitlines() if line.strip()]
    for line in lines:
        name, _, rest = line.partition("Error: ")
        if rest and "At:" not in rest:
            return (
                rest
                if rest.startswith(f"{model}:")
                else f"{model}: {name.split()[-1]}Error: {rest}"
            )
    return f"{model}: {' '.join(lines) or 'the server gave no reason'}"


def backend_folder(server: Path) -> Path:
    """Triton wants backend and stub of this Python in one folder; the wheel keeps them apart."""
    folder = Path(tempfile.mkdtemp(prefix="venus-triton-"))
    shutil.copytree(server / "backends" / "python", folder / "python")
    shutil.copy2(stub(server), folder / "python")
    return folder


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])
