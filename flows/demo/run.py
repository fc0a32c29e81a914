"""The demo: one real conversation, from starting the models to its replay.

It makes a folder with everything in it: `timeline.db` (the log), `conversation.wav` (user left, assistant right), `timeline.png`,
`summary.txt`, and the processes' logs.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console

from flows.capture import Device, DeviceOptions
from flows.live_view import LiveView, clock
from flows.mix import render_mix
from flows.replay import SessionProof, prove_both
from flows.settings import Settings, timeline_at
from flows.story import Story
from flows.supervisor import Supervisor
from infra.capture.audiofile import AudioFile
from infra.clock import monotonic_s, wall_us
from infra.triton.server import Progress
from schemas.errors import VenusError

TRACK = Path(__file__).parent / "conversation.flac"
SESSION = "demo"


SKILLS = "flows.demo.skills"


def run_demo(
    out: Path, track: Path, console: Console, loading: Callable[[Progress], None], triton: str
) -> bool:
    """Hold the conversation and replay it; returns whether the replay gave the same decisions.

    Raises:
        BadInput: something that is needed is missing.
        VenusError: the conversation could not be finished.
    """
    out.mkdir(parents=True, exist_ok=True)
    database = _fresh_database(out)
    url = f"sqlite:///{database}"
    with AudioFile(track) as audio:
        settings = Settings.read()
        console.print(
            f"starting Triton and its {len(settings.models)} models on the {settings.device.upper()} …"
        )
        supervisor = Supervisor(
            url,
            triton,
            device=settings.device,
            models=settings.models,
            log_dir=out / "log",
            say=console.print,
            progress=loading,
            more=dict.fromkeys(("perception", "harness"), ("--skills", SKILLS)),
        )
        with supervisor:
            _wait_ready(supervisor)
            console.print(
                f"ready; a conversation of {clock(audio.length_us)}, in real time, on {url}\n"
            )
            story = _converse(supervisor, url, audio, console)
    console.print("\nreplaying from the log alone …")
    with timeline_at(url, create=False) as log:
        begun = monotonic_s()
        proof = prove_both(log, SESSION)[SESSION]
        took = monotonic_s() - begun
        mix = render_mix(log, SESSION, out / "conversation.wav")
    from flows.picture import draw

    picture = draw(story, out / "timeline.png")
    summary = out / "summary.txt"
    summary.write_text(summarise(story, proof, took) + "\n")
    console.print(summary.read_text())
    for what, path in (
        ("log", database),
        ("sound", mix),
        ("picture", picture),
        ("summary", summary),
    ):
        console.print(f"  {what:<8} {path}")
    console.print(
        f"\nlook closer (after `. .venv/bin/activate`): venus tail --timeline {url}   venus replay --timeline {url}"
    )
    return proof.same


def _fresh_database(out: Path) -> Path:
    """`timeline.db`, or, where an earlier demo left one, a name beside it: a log is never overwritten."""
    path = out / "timeline.db"
    return path if not path.exists() else out / f"timeline-{wall_us() // 1_000_000}.db"


def _wait_ready(supervisor: Supervisor, within_s: float = 60.0) -> None:
    until = monotonic_s() + within_s
    pause = threading.Event()
    while not supervisor.ready:
        supervisor.watch()
        if monotonic_s() > until:
            raise VenusError(
                f"the flows did not start within {within_s:.0f} s; see {supervisor.log_dir}"
            )
        pause.wait(0.1)


def _converse(supervisor: Supervisor, url: str, audio: AudioFile, console: Console) -> Story:
    """Run the device beside the supervision; an error of either ends both."""
    stop = threading.Event()
    failed: list[BaseException] = []
    with LiveView(SESSION, audio.length_us, console) as view:

        def play() -> None:
            try:
                with timeline_at(url) as timeline:
                    Device(timeline, SESSION, audio, DeviceOptions(), view.show).run(stop.is_set)
            except BaseException as error:
                failed.append(error)
            finally:
                stop.set()

        device = threading.Thread(target=play, name="device")
        device.start()
        try:
            supervisor.run(stop)
        finally:
            stop.set()
            device.join()
    if failed:
        raise failed[0]
    return view.story


def summarise(story: Story, proof: SessionProof, took: float) -> str:
    """The session in a few lines."""
    turns = [t for t in story.turns.values() if t.end_us is not None]
    latencies = sorted(
        us for r in story.responses.values() if (us := story.latency_us(r)) is not None
    )
    verdicts: dict[str, int] = {}
    for overlap in story.overlaps.values():
        verdicts[overlap.verdict] = verdicts.get(overlap.verdict, 0) + 1
    lines = [
        f"conversation   {clock(story.media_us)}, {len(turns)} turns of the user, {len(story.responses)} responses",
        f"overlaps       {len(story.overlaps)}"
        + "".join(f", {n} {v}" for v, n in sorted(verdicts.items())),
    ]
    if latencies:
        middle = median(latencies)
        lines.append(
            f"latency        median {middle / 1e6:.2f} s, longest {latencies[-1] / 1e6:.2f} s "
            "(from the user's last sound to the answer's first)"
        )
    if story.failures:
        lines.append(f"failures       {len(story.failures)}: {story.failures[0]}")
    verdict = "every decision the same" if proof.same else "DIFFERENT"
    lines.append(
        f"replay         {proof.decisions} decisions from {proof.inputs} inputs, {verdict}, by the bare fold and through "
        f"Bytewax, in {took:.2f} s"
    )
    lines.append("")
    said = [(t.start_us, f"user       {t.text or '(no words)'}") for t in story.turns.values()]
    for response in story.responses.values():
        if response.heard_text:
            cut = " —" if response.how == "cancelled" else ""
            said.append((response.first_heard_us or 0, f"assistant  {response.heard_text}{cut}"))
    lines += [f"{clock(at):>7}  {line}" for at, line in sorted(said)]
    return "\n".join(lines)
