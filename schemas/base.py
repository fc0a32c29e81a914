"""What every event's data is built from: the frozen model, its class and writer, media time, and the registration.

A type is registered once, by the decorator `event` on its model; `schemas.registry` collects them all. Adding a field with a
default is free; anything else is a new version with an upcaster (design: rules for change).
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
)
from pydantic_core import CoreSchema

HOP_SAMPLES = 512
WINDOW_HOPS = 3
WINDOW_SAMPLES = HOP_SAMPLES * WINDOW_HOPS
SAMPLE_RATE = 16_000
HOP_US = HOP_SAMPLES * 1_000_000 // SAMPLE_RATE
WINDOW_US = HOP_US * WINDOW_HOPS

LONGEST_US = 7 * 24 * 3_600_000_000
"""A week: longer durations are mistakes, a later media time of a device is another clock."""
LARGEST = 2**53
"""Greater whole numbers are mistakes; sums of a few of these still fit the 64 bits of the log."""
DEEPEST = 32
"""Levels of JSON within a field that holds any; what repeats it has to write a few more."""

_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
}
MICROS_UNITS = tuple((unit, _UNITS[unit]) for unit in ("h", "min", "s", "ms", "us"))
"""(unit, µs), the greatest first."""
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(us|ms|s|min|m|h)\s*")


def parse_duration(value: object) -> object:
    """Microseconds from `"2s"`, `"320ms"`, `"1.5 min"`, and `"0"`; anything but text passes through."""
    if not isinstance(value, str):
        return value
    if value.strip() == "0":
        return 0  # needs no unit
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(
            f"{value!r} is not a duration; write a number and a unit (us, ms, s, min, h), as in 320ms"
        )
    micros = float(match[1]) * _UNITS[match[2]]
    if micros > LONGEST_US:
        raise ValueError(f"{value.strip()[:40]!r} is too long; the longest duration is a week")
    return round(micros)


Micros = Annotated[int, BeforeValidator(parse_duration), Field(ge=0, le=LONGEST_US)]
"""A duration or a media time in whole microseconds; durations may be written with a unit."""


def too_deep(value: dict[str, Any]) -> bool:
    """Whether JSON has more levels than what repeats it could write."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [v for values in inner for v in values if isinstance(v, (dict, list, tuple))]
        if not level:
            return False
    return True


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if too_deep(value):
        raise ValueError(f"more than {DEEPEST} levels of lists and objects")
    return value


AnyJson = Annotated[dict[str, Any], AfterValidator(_shallow)]
"""An object of whatever JSON its writer likes, not nested without end."""


class Kind(StrEnum):
    """The three classes of events (design, section 2)."""

    OBSERVATION = "observation"
    OUTCOME = "outcome"
    DECISION = "decision"


class Writer(StrEnum):
    """Who may write a type; each type has exactly one."""

    DEVICE = "device"
    PERCEPTION = "perception"
    CONVERSATION = "conversation"
    INFERENCE = "inference"
    HARNESS = "harness"


def _bound(schema: Any) -> None:
    """Give every whole number in a schema the bounds that it does not name itself."""
    if isinstance(schema, list):
        for part in schema:
            _bound(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "int":
            schema.setdefault("ge", -LARGEST)
            schema.setdefault("le", LARGEST)
        for key, part in schema.items():
            if key != "metadata":
                _bound(part)


class Data(BaseModel):
    """Base of every event's data. Unknown fields of a newer writer are kept out, not refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        ser_json_bytes="utf8",
        use_attribute_docstrings=True,
        # JSON cannot hold them, but "nan" in quotes would be read as one, and then be neither above nor below anything.
        allow_inf_nan=False,
    )

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self  # frozen all the way down: a copy of a session's state may share it

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        schema = handler(source)
        # Not what is decided: that may be a sum of what has been read, and must not fail.
        if getattr(cls, "KIND", Kind.DECISION) is not Kind.DECISION:
            _bound(schema)
        return schema

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    KIND: ClassVar[Kind]
    WRITER: ClassVar[Writer]


REGISTERED: dict[str, type[Any]] = {}
"""Short type name (`turn.ended`) → model; filled by `event`, read through `schemas.registry`."""

D = TypeVar("D", bound=type[Any])


def event(name: str, kind: Kind, writer: Writer) -> Callable[[D], D]:
    """Register a model as the data of the event type `name`."""

    def register(model: D) -> D:
        if name in REGISTERED:
            raise ValueError(f"the event type {name} is registered twice")
        model.TYPE, model.KIND, model.WRITER = name, kind, writer
        REGISTERED[name] = model
        if kind is not Kind.DECISION and issubclass(model, Data):
            model.model_rebuild(force=True)
        return model

    return register
