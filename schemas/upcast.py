"""Old versions of event types, brought up to the present one before they are validated (design: rules for change).

A structural change of a type raises its model's `VERSION` and adds one step here: from the version before to the next, on the plain JSON
data. A record of version n goes through all steps from n on, so each step is written once and never touched again. `check` runs when
this module is imported: a version without a way up is an error at the start, not in the middle of a replay.
"""

from collections.abc import Callable, Mapping
from typing import Any

from schemas.registry import MODELS

Json = dict[str, Any]
Step = Callable[[Json], Json]

STEPS: dict[tuple[str, int], Step] = {}
"""(short type name, version) → the step to the next version. `("turn.ended", 1): _turn_ended_1` once turn.ended is at 2."""

FIRST = 1


def check(steps: Mapping[tuple[str, int], Step], versions: Mapping[str, int]) -> None:
    """Whether every version from the first on has its way to the present one, and no step leads nowhere.

    Raises:
        ValueError: a gap, a step of an unknown type, or one beyond the present version.
    """
    for name, version in steps:
        if name not in versions:
            raise ValueError(f"upcaster {name} v{version}: there is no such event type")
        if version >= versions[name]:
            raise ValueError(f"upcaster {name} v{version}: {name} is at version {versions[name]}")
    for name, present in versions.items():
        oldest = min([v for n, v in steps if n == name] + [FIRST])
        for version in range(oldest, present):
            if (name, version) not in steps:
                raise ValueError(
                    f"{name} v{version} has no upcaster, and {name} is at version {present}"
                )


def is_newer(wire: str) -> bool:
    """Whether a wire type (`venus.turn.ended.v2`) is a version of one of ours that only a later release can read."""
    name, _, version = wire.removeprefix("venus.").rpartition(".v")
    return name in MODELS and version.isdecimal() and int(version) > MODELS[name].VERSION


def upcaster(name: str, version: int, present: int) -> Step | None:
    """What brings data of an older version up; None where there is no way."""
    chain = [STEPS.get((name, v)) for v in range(version, present)]
    steps = [step for step in chain if step is not None]
    if not steps or len(steps) != len(chain):
        return None

    def upcast(data: Json) -> Json:
        for step in steps:
            data = step(data)
        return data

    return upcast


check(STEPS, {name: model.VERSION for name, model in MODELS.items()})
