"""Arbitrary events of every registered type, made from the models' own annotations."""

import types
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.base import LARGEST, LONGEST_US
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.perception import PerceptionWindow
from schemas.policy import Policy
from schemas.record import Record
from schemas.registry import MODELS, PCM_TYPES
from schemas.turns import TurnStarted

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


def odd_windows(session: str) -> list[Record]:
    """Windows as most records of a log are, and such as only look like them: the fast ways of reading must not mistake one for another."""
    data = PerceptionWindow(
        channel="mic",
        epoch=0,
        first_sample=1536,
        start_us=96_000,
        probabilities=(0.1, 0.2, 0.3),
        level_db=-30.0,
    )
    usual = encode(Event(data.TYPE, session, "id", "perception/one", data, 192_000))
    values = (b"", b"{", b"[]", b"{}", b"null", usual.value + b"x", usual.value[:-1] + b',"new":1}')
    values += (usual.value.replace(b"0.2", b'"nan"'), usual.value.replace(b"0.2", b"NaN"))
    return [
        usual._replace(key="z" * 81),
        *_with_odd_headers(usual),
        *(usual._replace(value=value) for value in values),
    ]


def odd_decisions(session: str) -> list[Record]:
    """The same of a decision that has all attributes."""
    data = TurnStarted(turn="turn-1", start_us=96_000, by="speech")
    source = "conversation/turn"
    usual = encode(Event(data.TYPE, session, "id", source, data, 192_000, "c", "turn-1", 7, "t"))
    return _with_odd_headers(usual)


def _with_odd_headers(usual: Record) -> list[Record]:
    """The record, and with each of its headers odd, missing, twice, in capitals, with others or in another order."""
    number = [b"", b"-5", b"12x", b"9" * 30, b"9" * 5000, "٣".encode(), "\u20037".encode(), b" 7"]
    odd: dict[str, list[bytes]] = {
        "ce_specversion": [b"0.3", b""],
        "ce_type": [b"venus.perception.window.v9", b"venus.turn.ended.v1"],
        "ce_id": [b"", b"x" * 81, b"x" * 3000, "ü".encode(), b"\xff", b"a\0b"],
        "ce_source": [b"", b"y" * 81, b"device", b"\xff"],
        "ce_mediatime": [*number, b"1_0", b"1.0"],
        "ce_sequence": number,
        "content-type": [b"text/plain", b"application/json; charset=utf-8", b""],
    }
    found = [usual, usual._replace(headers=usual.headers[::-1])]
    for name, value in usual.headers:
        others = tuple(h for h in usual.headers if h[0] != name)
        found.append(usual._replace(headers=others))
        found.append(usual._replace(headers=(*others, (name.upper(), value))))
        for other in odd.get(name, []):
            headers = tuple((n, other if n == name else v) for n, v in usual.headers)
            found.append(usual._replace(headers=headers))
            found.append(usual._replace(headers=(*usual.headers, (name.upper(), other))))
    for more in (("ce_causationid", b"c"), ("note", b"x"), ("data", b"x")):
        found.append(usual._replace(headers=(*usual.headers, more)))
    return found
