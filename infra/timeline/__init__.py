"""`open_timeline(url)`: the one way to a log. Implementations are imported only when a URL asks for them.

| URL | what it opens |
| --- | --- |
| `memory://[name][?partitions=N]` | this process only; the same name is the same log |
| `sqlite:///path.db[?synchronous=full]` | a file; `sqlite:////absolute/path.db` (four slashes) for an absolute path |
| `kafka://host:port[,host:port]/topic[?partitions=8&…]` | the topics `topic` and `topic.media` |
| `mcap:///path.mcap` | a session file, to read |

With `create=False` (commands that only look) nothing is created: what does not exist is an error.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

from infra.timeline.port import Place, Position, Reader, Timeline
from infra.timeline.url import TimelineUrl, parse_url
from schemas.errors import BadInput

__all__ = ["Place", "Position", "Reader", "Timeline", "open_timeline"]

# Scheme → module and opener `(url, create, environ) -> Timeline`. One more kind of log is one more line.
_OPENERS = {
    "memory": ("infra.timeline.memory", "open_memory"),
    "sqlite": ("infra.timeline.sqlite", "open_sqlite"),
    "kafka": ("infra.timeline.kafka", "open_kafka"),
    "mcap": ("infra.timeline.mcap", "open_mcap"),
}

Opener = Callable[[TimelineUrl, bool, Mapping[str, str]], Timeline]


def open_timeline(
    url: str, create: bool = True, environ: Mapping[str, str] | None = None
) -> Timeline:
    """Open the log that `url` names.

    `environ` holds the `VENUS_KAFKA_*` settings (secrets belong there rather than in a URL); the caller that reads the
    environment hands it over.

    Raises:
        BadInput: the URL cannot be understood, or names something that is not a timeline.
        TimelineUnavailable: the log cannot be reached now.
        TimelineError: the log does not exist (`create=False`) or is set up differently.
    """
    parsed = parse_url(url, known=tuple(_OPENERS))
    module, name = _OPENERS[parsed.scheme]
    try:
        opener = cast(Opener, getattr(import_module(module), name))
    except ModuleNotFoundError as error:
        raise BadInput(
            f"timeline {parsed.shown}: the package for {parsed.scheme}:// is not installed ({error})"
        ) from error
    return opener(parsed, create, environ or {})
