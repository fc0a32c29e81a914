"""Arbitrary events of every registered type, made from the models' own annotations."""

import types
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.base import LARGEST, LONGEST_US
from schemas.envelope import Event, Pcm
from schemas.policy import Policy
from schemas.registry import MODELS, PCM_TYPES

# A lone surrogate is no text that UTF-8 can carry.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
POLICIES = st.sampled_from(
    [
        Policy(),
        Policy().with_changes({"turn.hold_max": "2s", "vad.activation": 0.7}),
        Policy().with_changes(
            {
                "work.intents": [
                    {"name": "n", "skill": "weather", "patterns": ["weather in {city}"], "say": "…"}
                ]
            }
        ),
    ]
)
NAME = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
PLAIN = st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | TEXT


@lru_cache
def events(name: str) -> st.SearchStrategy[Event]:
    """Events of the type `name`."""
    return st.builds(
        Event,
        st.just(name),
        NAME,
        NAME,
        NAME,
        pcm(name) if name in PCM_TYPES else data(MODELS[name]),
        st.none() | st.integers(0, LONGEST_US if MODELS[name].WRITER == "device" else LARGEST),
        st.none() | NAME,
        st.none() | NAME,
        st.none() | st.integers(0, LARGEST),
        st.none() | NAME,
        st.none() | NAME,
    )


def pcm(name: str) -> st.SearchStrategy[Pcm]:
    if name == "response.speech":
        samples = st.binary(max_size=16).map(lambda quarter: 4 * quarter)
        return st.builds(Pcm, st.integers(4_000, 192_000), st.integers(1, 2), samples)
    return st.builds(Pcm, st.integers(1, 192_000), st.integers(1, 8), st.binary(max_size=64))


def data(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Data of a model, each field by its annotation and bounds; a policy checks more than bounds, so it is one of some."""
    if model is Policy:
        return POLICIES
    fields = {
        name: value(field.annotation, tuple(field.metadata))
        for name, field in model.model_fields.items()
    }
    return st.builds(model, **fields)


def value(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """What an annotation allows; covers the annotations that events use."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        within = [m.metadata if isinstance(m, FieldInfo) else [m] for m in arguments[1:]]
        return value(arguments[0], (*metadata, *(one for many in within for one in many)))
    if origin in (Union, types.UnionType):
        return st.one_of([value(argument, metadata) for argument in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        least = next((m.min_length for m in metadata if isinstance(m, MinLen)), 0)
        return st.lists(value(arguments[0]), min_size=least, max_size=least + 3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, value(arguments[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return data(annotation)
    low = next((m.ge for m in metadata if isinstance(m, Ge)), -LARGEST)
    high = next((m.le for m in metadata if isinstance(m, Le)), LARGEST)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(int(low), int(high)),  # type: ignore[arg-type,call-overload]
        float: st.floats(float(low), float(high), allow_nan=False),  # type: ignore[arg-type]
        str: TEXT,
        bool: st.booleans(),
        type(None): st.none(),
        Any: PLAIN,
    }
    return plain[annotation]
