"""`venus run`, and the hidden `venus flow` that is one flow's process."""

import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.status import Status

from flows.cli.options import HarnessOption, SkillsOption, TimelineOption, TritonOption
from flows.settings import Settings, environment, opener
from infra.triton.server import Progress
from schemas.errors import BadInput, VenusError

if TYPE_CHECKING:
    from infra.harness.config import HarnessConfig


def stop_on_signals(now: Callable[[], bool] = lambda: False) -> threading.Event:
    """An event that SIGINT and SIGTERM set; while `now()` they also interrupt what is going on."""
    stop = threading.Event()

    def told(*_: object) -> None:
        stop.set()
        if now():
            raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, told)
    return stop


class Loading:
    """Shows Triton's models while they load: a status line on a terminal, a line per change elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._told: set[str] = set()

    def __call__(self, progress: Progress) -> None:
        ready = [m for m, s in progress.models.items() if s == "ready"]
        waiting = [m for m, s in progress.models.items() if s != "ready"]
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            names = ", ".join(waiting)
            self._status.update(
                f"loading models ({len(ready)} of {len(progress.models)}; waiting for {names})"
            )
        else:
            for model in ready:
                if model not in self._told:
                    self._told.add(model)
                    self._console.print(f"loaded {model} ({progress.seconds:.0f} s)")
        if not waiting:
            self.close()

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def run(
    timeline: TimelineOption,
    triton: TritonOption,
    skills: SkillsOption,
    harness: HarnessOption,
    frontend: Annotated[
        str, typer.Option(help="cascade: VAD, turn model, recognition, language model, synthesis")
    ] = "cascade",
    flows: Annotated[
        str, typer.Option(help="which flows to run here, comma-separated")
    ] = "perception,conversation,inference,harness",
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="end when all sessions have ended")
    ] = False,
    log_dir: Annotated[Path, typer.Option(help="where the processes' logs go")] = Path("out/log"),
) -> None:
    """Run the live flows."""
    from flows.supervisor import KeepsDying, Supervisor

    if frontend != "cascade":
        raise BadInput(f"no frontend {frontend!r} yet; there is: cascade")
    loaded = threading.Event()
    stop = stop_on_signals(now=lambda: not loaded.is_set())
    console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    loading = Loading(console)
    supervisor = Supervisor(
        timeline,
        triton,
        flows=[name.strip() for name in flows.split(",") if name.strip()],
        device=Settings.read().device,
        models=Settings.read().models,
        log_dir=log_dir,
        say=console.print,
        progress=loading,
        more=harness_arguments(skills, harness),
    )
    try:
        with supervisor:
            loaded.set()
            where = f", Triton at {supervisor.triton_url}" if supervisor.uses_triton else ""
            console.print(f"running {', '.join(supervisor.flows)} on {supervisor.shown}{where}")
            supervisor.run(stop, until_idle, on_ready=lambda: console.print("ready"))
            console.print("stopping" if stop.is_set() else "idle: every session has ended")
    except KeepsDying as error:
        print(f"venus: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print("stopped before it ran")
    finally:
        loading.close()


def harness_arguments(skills: str, harness: str) -> dict[str, list[str]]:
    """What the flows' processes are told of the Harness; checked here, so that a mistake is one line at once."""
    from infra.harness.skills import SkillSet

    SkillSet(harness_config(skills, harness).skills)
    given = ["--skills", skills, "--harness", harness]
    return {"harness": given, "perception": given}


def harness_config(skills: str, harness: str) -> "HarnessConfig":
    from infra.harness.config import read_config

    names = tuple(name.strip() for name in skills.split(",") if name.strip())
    return read_config(Path(harness) if harness else None, environment(), names)


def flow(
    name: Annotated[str, typer.Argument()],
    timeline: TimelineOption,
    triton: TritonOption,
    skills: SkillsOption,
    harness: HarnessOption,
) -> None:
    """One flow, in this process, until it is told to stop."""
    from flows.bytewax_io import log as io_log

    if name not in ("perception", "conversation", "inference", "harness"):
        raise BadInput(f"no flow named {name}")
    stop = stop_on_signals()
    io_log.setLevel(logging.INFO)
    # Events are tuples and frozen models without cycles: looking for those often costs more than it finds.
    gc.set_threshold(50_000, 20, 20)
    try:
        if name == "perception":
            from flows.perception import run_perception
            from infra.harness.skills import SkillSet

            config = harness_config(skills, harness)
            own = [rule.model_dump(mode="json") for rule in config.intents]
            rules = [*SkillSet(config.skills).intents(), *own]
            wishes: dict[str, Any] = {"work.intents": rules} if rules else {}
            if Settings.read().backchannel:
                wishes["overlap.backchannel_model"] = True
            run_perception(timeline, triton, model_names(), stop=stop, wishes=wishes)
        elif name == "conversation":
            from flows.conversation import run_conversation

            run_conversation(timeline, stop=stop)
        elif name == "harness":
            from flows.harness import HarnessSettings, run_harness

            config, files = harness_config(skills, harness), HarnessSettings(Settings.read().blobs)
            run_harness(timeline, config, settings=files, stop=stop, opener=opener(timeline))
        else:
            from flows.inference import run_inference

            run_inference(timeline, triton, stop=stop)
    except VenusError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def model_names() -> dict[str, str]:
    """Request kind → model, as recorded in each session."""
    return {
        "vad": "silero_vad",
        "endpoint": "smart_turn",
        "transcript": "whisper",
        "generate": "chat",
        "speak": "speech",
        "backchannel": "backchannel",
    }
