"""The published contract, generated: an AsyncAPI 3 document and one JSON Schema for each event type with JSON data.

Both follow from the registry alone, so they cannot say anything else than the code does. `flows.contract` writes them to
`docs/`, and a test holds them up to date. See https://www.asyncapi.com/docs/reference/specification/v3.0.0
"""

from typing import Any

from pydantic.json_schema import models_json_schema

from schemas.base import Writer
from schemas.cloudevents import wire_type
from schemas.registry import GROUPS, MEDIA_TYPES, MODELS, PCM_TYPES

Json = dict[str, Any]

_COMPONENT = "#/components/schemas/{model}"
_TEXT = {"type": "string", "minLength": 1}
_NUMBER = {"type": "string", "pattern": "^[0-9]+$"}
_HEADERS: Json = {
    "type": "object",
    "description": "CloudEvents 1.0 in Kafka's binary content mode; values are UTF-8.",
    "required": ["ce_specversion", "ce_type", "ce_id", "ce_source"],
    "properties": {
        "ce_specversion": {"const": "1.0"},
        "ce_type": _TEXT,
        "ce_id": {**_TEXT, "description": "Unique within its source; a repeat is dropped."},
        "ce_source": {
            **_TEXT,
            "description": "Who wrote it; a device takes a new one at each start.",
        },
        "ce_mediatime": {
            **_NUMBER,
            "description": "µs since the session opened; of audio, its first sample.",
        },
        "ce_sequence": {
            **_NUMBER,
            "description": "A device's count of its records of this source, or an outcome's index.",
        },
        "ce_causationid": {**_TEXT, "description": "Id of the event that led to this one."},
        "ce_correlationid": {
            **_TEXT,
            "description": "What it belongs to: a turn, a response; of audio, its channel.",
        },
        "ce_traceparent": _TEXT,
        "ce_dataref": {**_TEXT, "description": "sha256:… of data that is stored elsewhere."},
        "content-type": _TEXT,
    },
}

_SENT_BY = {
    Writer.DEVICE: "What a capture device appends: what it hears, and what it has played.",
    Writer.PERCEPTION: "What perception makes of media, the clock, and records that cannot be used.",
    Writer.CONVERSATION: "What the pure operators decide.",
    Writer.INFERENCE: "What models answer.",
    Writer.HARNESS: "What delegated work returns.",
}


def _text_of(model: type[Any]) -> str:
    return " ".join((model.__doc__ or "").split())


def json_schemas() -> dict[str, Json]:
    """Event type → a JSON Schema of its data that stands alone; PCM types have none."""
    found = {}
    for name, model in _in_order():
        if name in PCM_TYPES:
            continue
        head = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"urn:{wire_type(name).replace('.', ':')}",
        }
        found[name] = head | model.model_json_schema()
    return found


def document(version: str) -> Json:
    """The AsyncAPI document. `version` is the application's."""
    typed = [(model, "validation") for name, model in _in_order() if name not in PCM_TYPES]
    refs, definitions = models_json_schema(typed, ref_template=_COMPONENT)  # type: ignore[arg-type]
    payloads = {model.TYPE: refs[model, "validation"] for model, _ in typed}
    names = [name for name, _ in _in_order()]
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Venus timeline",
            "version": version,
            "description": "Everything that happens in a conversation is one event in one log. The record's key is the"
            " session id (UTF-8), its partition Kafka's murmur2 of the key.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "{broker}",
                "protocol": "kafka",
                "variables": {
                    "broker": {"default": "localhost:9092", "description": "host:port of a broker"}
                },
            }
        },
        "channels": {
            "timeline": _channel(
                "{topic}",
                "Events in causal order: the offset order of a partition.",
                [n for n in names if n not in MEDIA_TYPES],
            ),
            "media": _channel(
                "{topic}.media",
                "Input media, with the same keys and partitions.",
                [n for n in names if n in MEDIA_TYPES],
            ),
        },
        "operations": _operations(),
        "components": {
            "messages": {name: _message(name, model, payloads) for name, model in _in_order()},
            "schemas": {"CloudEventHeaders": _HEADERS} | definitions["$defs"],
        },
    }


def _in_order() -> list[tuple[str, type[Any]]]:
    """Every type, group by group, as the registry lists them."""
    groups = [module.__name__ for module in GROUPS]
    return sorted(MODELS.items(), key=lambda item: groups.index(item[1].__module__))


def _channel(address: str, description: str, names: list[str]) -> Json:
    return {
        "address": address,
        "description": description,
        "parameters": {"topic": {"description": "the topic in the timeline's URL"}},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
    }


def _message(name: str, model: type[Any], payloads: dict[str, Any]) -> Json:
    typed: Json = {"properties": {"ce_type": {"const": wire_type(name)}}}
    if name in PCM_TYPES:
        form = "audio/pcm;rate=16000;channels=1"
        typed["required"] = ["content-type"]
        typed["properties"]["content-type"] = {
            "type": "string",
            "pattern": "^audio/pcm; *rate=[0-9]+(; *channels=[0-9]+)?$",
            "examples": [form],
        }
        data = {
            "contentType": "audio/pcm",
            "payload": {"type": "string", "format": "binary", "description": "PCM16 little-endian"},
        }
    else:
        data = {"contentType": "application/json", "payload": payloads[name]}
    return {
        "name": wire_type(name),
        "summary": _text_of(model),
        "tags": [{"name": str(model.KIND)}, {"name": str(model.WRITER)}],
        "headers": {"allOf": [{"$ref": _COMPONENT.format(model="CloudEventHeaders")}, typed]},
        **data,
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": "session id"},
                "bindingVersion": "0.5.0",
            }
        },
    }


def _operations() -> Json:
    """One operation for each writer and lane; seen from the runtime, which receives from devices and sends the rest."""
    found: Json = {}
    for name, model in _in_order():
        lane = "media" if name in MEDIA_TYPES else "timeline"
        writer = model.WRITER
        operation = found.setdefault(
            f"{writer}-{lane}",
            {
                "action": "receive" if writer is Writer.DEVICE else "send",
                "channel": {"$ref": f"#/channels/{lane}"},
                "summary": _SENT_BY[writer],
                "messages": [],
            },
        )
        operation["messages"].append({"$ref": f"#/channels/{lane}/messages/{name}"})
    return found
