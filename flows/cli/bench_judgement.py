"""`venus bench judgement`: turns and overlaps on made conversations, against plain voice activity detection."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from flows.cli.options import JsonOption, TritonOption
from schemas.errors import BadInput, VenusError


def judgement(
    triton: TritonOption,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write judgement.json and judgement.png here")
    ] = None,
    babble: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="a recording of people talking, as one more condition"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="a part of the conversations and settings")
    ] = False,
    half: Annotated[
        str, typer.Option(help="half of the script: a, b or all; thresholds were chosen on a")
    ] = "b",
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="conversations of your own")
    ] = None,
    json: JsonOption = False,
) -> None:
    """False cut-offs against latency, interruptions and backchannels, on made conversations with known truth."""
    from flows.bench.judgement.report import show
    from flows.bench.judgement.run import CLASSIFIER, MODELS, Plan, judge, write
    from flows.bench.judgement.script import SCRIPT
    from flows.bench.judgement.sound import read_babble
    from infra.triton.server import TritonStartError
    from infra.triton.wire import ModelError

    if half not in ("a", "b", "all"):
        raise BadInput(f"--half {half}: there are a, b, all")
    noise = None if babble is None else read_babble(babble)
    plan = Plan(half, quick, script or SCRIPT, noise)
    console = Console(stderr=True, markup=False)
    with ExitStack() as stack:
        progress = stack.enter_context(_progress(console))
        try:
            url, classifier = stack.enter_context(_models(triton, MODELS, CLASSIFIER, progress))
            judged = judge(plan, url, classifier, progress)
        except BadInput:
            raise
        except (VenusError, ModelError, TritonStartError) as error:
            console.print(f"venus: {error}", style="red")
            raise typer.Exit(1) from None
    if out is not None:
        for path in write(judged, out):
            console.print(f"wrote {path}")
    if json:
        import orjson

        print(orjson.dumps(judged.tree()).decode())
        return
    here = Console()
    show(judged, Console(width=max(170, here.width)))


@contextmanager
def _models(
    url: str,
    models: tuple[str, ...],
    optional: str,
    progress: Callable[[str, float], None],
) -> Iterator[tuple[str, bool]]:
    """A server's address, and whether the optional model is on it."""
    import asyncio

    from infra.triton.client import ModelClient
    from infra.triton.parts import missing_parts
    from infra.triton.server import LocalTriton
    from infra.triton.wire import ModelError

    async def has() -> bool:
        async with ModelClient(url) as client:
            await client.ready(models)
            try:
                await client.ready((optional,))
            except ModelError:
                return False
            return True

    if url != "local":
        yield url, asyncio.run(has())
        return
    progress("starting Triton", 0.0)
    wanted = models if missing_parts((optional,)) else (*models, optional)
    with (
        tempfile.TemporaryDirectory(prefix="venus-bench-") as place,
        LocalTriton(models=wanted, log_path=Path(place) / "triton.log") as server,
    ):
        yield server.url, optional in wanted


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, float], None]]:
    columns = (
        TextColumn("{task.description:<36}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
