"""`venus capture`."""

import secrets
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.cli.options import TimelineOption
from flows.signals import parse_policy
from schemas.errors import BadInput, VenusError


def parse_speed(text: str) -> float | None:
    """A positive number, or `max` (None).

    Raises:
        BadInput: neither.
    """
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1000:
        raise BadInput(f"--speed {text}: a number above 0 (1 is real time), or max")
    return speed


def stop_on_signals() -> threading.Event:
    """An event that the first Ctrl-C (or SIGTERM) sets, so that the session is closed; the second ends the program."""
    stop = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            raise typer.Exit(130)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def capture(
    path: Annotated[
        Path, typer.Argument(help="wav, flac, mp3 or ogg, any rate, one or two channels")
    ],
    timeline: TimelineOption,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="default: from the file's name")
    ] = None,
    speed: Annotated[
        str, typer.Option(help="1 is real time; max: as fast as possible, with the same answers")
    ] = "1",
    chunk_ms: Annotated[
        float, typer.Option("--chunk-ms", help="length of a record; 0: the whole file in one")
    ] = 100.0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="write the conversation as a stereo wav: user left, assistant right"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="KEY=VALUE", help="wish for another policy"),
    ] = None,
    tail: Annotated[float, typer.Option(help="seconds of silence after the last thing said")] = 2.0,
    max_wait: Annotated[
        float, typer.Option("--max-wait", help="seconds to wait for answers after the file's end")
    ] = 30.0,
    playback: Annotated[
        bool,
        typer.Option(
            "--playback/--no-playback", help="acknowledge what the loudspeaker has played"
        ),
    ] = True,
    echo: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL,DELAY",
            help="the microphone hears the loudspeaker, as in -12dB,150ms (not with --speed max)",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not show the conversation")] = False,
) -> None:
    """Play a file to the assistant."""
    from flows.capture import Device, DeviceOptions
    from flows.live_view import LiveView
    from flows.mix import check_mix_path, render_mix
    from flows.settings import timeline_at
    from infra.capture.audiofile import AudioFile
    from infra.capture.room import Echo

    if not 0 <= chunk_ms <= 60_000:
        raise BadInput(f"--chunk-ms {chunk_ms:g}: between 0 (the whole file) and 60000")
    for name, seconds in (("--tail", tail), ("--max-wait", max_wait)):
        if not 0 <= seconds <= 3600:
            raise BadInput(f"{name} {seconds:g}: seconds from 0 to 3600")
    if out is not None:
        check_mix_path(out)
    options = DeviceOptions(
        speed=parse_speed(speed),
        chunk_ms=chunk_ms,
        playback="acknowledged" if playback else "assumed",
        policy=dict(parse_policy(policy or [])),
        tail=tail,
        max_wait=max_wait,
        echo=None if echo is None else Echo.parse(echo),
    )
    session = session or f"{path.stem}-{secrets.token_hex(3)}"
    stop = stop_on_signals()
    console = Console(stderr=True, quiet=quiet, markup=False)
    with (
        AudioFile(path) as audio,
        timeline_at(timeline) as log,
        LiveView(session, audio.length_us, console) as view,
    ):
        device = Device(log, session, audio, options, view.show)
        failed: VenusError | None = None
        try:
            device.run(stop.is_set)
        except VenusError as error:
            failed = error
        if device.fold.config is not None:
            print(session)
            if out is not None and (failed is None or device.fold.ended):
                render_mix(log, session, out)
    if isinstance(failed, BadInput):
        raise failed
    if failed is not None:
        typer.echo(f"venus: {failed}", err=True)
        raise typer.Exit(1)
