"""Every event type there is: short name → model, class, writer. Importing this module registers them all."""

from typing import Any

from schemas import (
    delegation,
    floor,
    idle,
    media,
    perception,
    responses,
    session,
    transcription,
    turns,
    work,
)
from schemas.base import REGISTERED, Kind, Writer

GROUPS = (
    session,
    media,
    perception,
    transcription,
    turns,
    responses,
    floor,
    idle,
    delegation,
    work,
)
"""The modules that define event types, in the order in which the documents list them."""

MODELS: dict[str, type[Any]] = REGISTERED
KINDS: dict[str, Kind] = {name: model.KIND for name, model in MODELS.items()}

MEDIA_TYPES = frozenset({"media.audio"})
"""Types that go to the media lane; all others go to the timeline lane."""

PCM_TYPES = frozenset({"media.audio", "response.speech"})
"""Types whose value is raw PCM instead of JSON."""

REQUESTS: dict[str, str] = {
    "endpoint.requested": "endpoint",
    "transcript.requested": "transcript",
    "backchannel.requested": "backchannel",
    "response.requested": "generate",
    "speech.requested": "speak",
    "work.queued": "work",
}
"""Decision types that ask for an effect → its kind, the name of its latency in `policy.latency`."""

TERMINALS: dict[str, str] = {
    "endpoint.predicted": "endpoint",
    "endpoint.failed": "endpoint",
    "transcript.final": "transcript",
    "transcript.failed": "transcript",
    "backchannel.predicted": "backchannel",
    "backchannel.failed": "backchannel",
    "generation.completed": "generate",
    "generation.failed": "generate",
    "speech.completed": "speak",
    "speech.failed": "speak",
    "work.completed": "work",
    "work.failed": "work",
    "work.cancelled": "work",
}
"""Outcome types that end a request (the outcome's cause) → its kind."""

ENDED_BY_DECISION = frozenset({"work.expired"})
"""Decision types that are a request's end themselves (`data.request`): no outcome is wanted any more."""

PARTIALS: dict[str, str] = {
    "transcript.interim": "transcript",
    "response.text": "generate",
    "response.speech": "speak",
    "work.running": "work",
    "work.called": "work",
    "work.progress": "work",
    "work.artifact": "work",
}
"""Outcome types that a request may return before its terminal one."""


_WRITERS: dict[str, str] = {
    name: model.WRITER.value for name, model in MODELS.items() if model.WRITER is not Writer.DEVICE
}


def forged(name: str, source: str) -> bool:
    """Whether a type that only a flow writes comes from somebody else: the first part of a flow's source is its name.

    Perception rejects such a record, and it has no effect anywhere.
    """
    writer = _WRITERS.get(name)
    return writer is not None and source != writer and not source.startswith(writer + "/")


def kind_of(type_name: str) -> Kind:
    """The class of a type; unknown types raise KeyError."""
    return KINDS[type_name]
