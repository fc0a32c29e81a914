"""The catalogue: every type has one class and one writer, and the tables about requests agree with it."""

import re

import pytest

from schemas import registry
from schemas.base import Data, Kind, Writer, event
from schemas.cloudevents import wire_type
from schemas.policy import Policy
from schemas.registry import (
    GROUPS,
    MEDIA_TYPES,
    MODELS,
    PARTIALS,
    PCM_TYPES,
    REQUESTS,
    TERMINALS,
    kind_of,
)

pytestmark = pytest.mark.pure

WIRE = re.compile(r"venus\.[a-z]+\.[a-z_]+\.v[1-9][0-9]*")
WRITES = {
    Kind.OBSERVATION: {Writer.DEVICE, Writer.PERCEPTION},
    Kind.OUTCOME: {Writer.PERCEPTION, Writer.INFERENCE, Writer.HARNESS},
    Kind.DECISION: {Writer.CONVERSATION},
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_type_has_one_class_and_one_writer(name: str) -> None:
    model = MODELS[name]
    assert name == model.TYPE
    assert WIRE.fullmatch(wire_type(name))
    assert isinstance(model.KIND, Kind)
    assert model.WRITER in WRITES[model.KIND]
    assert kind_of(name) is model.KIND


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_type_is_defined_in_one_of_the_groups(name: str) -> None:
    assert MODELS[name].__module__ in {group.__name__ for group in GROUPS}


@pytest.mark.parametrize("name", sorted(set(MODELS) - PCM_TYPES))
def test_data_is_frozen_and_takes_additions(name: str) -> None:
    assert issubclass(MODELS[name], Data)
    assert MODELS[name].model_config["frozen"] is True
    assert MODELS[name].model_config["extra"] == "ignore"


def test_models_are_not_shared_between_types() -> None:
    assert len({id(model) for model in MODELS.values()}) == len(MODELS)


def test_a_type_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match=r"turn\.ended is registered twice"):
        event("turn.ended", Kind.DECISION, Writer.CONVERSATION)(type("Again", (Data,), {}))


def test_only_perception_rejects() -> None:
    assert MODELS["event.rejected"].WRITER is Writer.PERCEPTION


def test_media_is_pcm_of_devices() -> None:
    assert MEDIA_TYPES <= PCM_TYPES <= set(MODELS)
    assert {MODELS[name].WRITER for name in MEDIA_TYPES} == {Writer.DEVICE}


def test_requests_are_decisions_and_answers_are_outcomes() -> None:
    assert {kind_of(name) for name in REQUESTS} == {Kind.DECISION}
    assert {kind_of(name) for name in (*TERMINALS, *PARTIALS)} == {Kind.OUTCOME}
    assert not set(TERMINALS) & set(PARTIALS)


@pytest.mark.parametrize("kind", sorted(set(REQUESTS.values())))
def test_every_kind_of_request_can_end_well_and_badly(kind: str) -> None:
    ends = {name for name, of in TERMINALS.items() if of == kind}
    assert any(name.endswith(".failed") for name in ends)
    assert any(not name.endswith(".failed") for name in ends)
    assert len({MODELS[name].WRITER for name in ends}) == 1


def test_every_kind_of_request_has_a_latency() -> None:
    assert set(REQUESTS.values()) == set(type(Policy().latency).model_fields)
    assert set(TERMINALS.values()) == set(REQUESTS.values())
    assert set(PARTIALS.values()) <= set(REQUESTS.values())


def test_an_unknown_type_has_no_class() -> None:
    with pytest.raises(KeyError):
        registry.kind_of("turn.sung")
