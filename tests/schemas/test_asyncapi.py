"""The published contract: up to date, complete, and true of what we write."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from jsonschema import Draft7Validator, Draft202012Validator

from flows.contract import DOCS, contract
from schemas import reference
from schemas.asyncapi import document, json_schemas
from schemas.base import parse_duration
from schemas.cloudevents import encode, wire_type
from schemas.envelope import Event
from schemas.registry import MEDIA_TYPES, MODELS, PCM_TYPES
from tests.support.events import events

pytestmark = pytest.mark.pure

DOCUMENT = document("0")
SCHEMAS = json_schemas()
# What the specification asks of each object, and allows beside `x-…`.
REQUIRED = {
    "": {"asyncapi", "info"},
    "info": {"title", "version"},
    "servers": {"host", "protocol"},
    "operations": {"action", "channel"},
}
ALLOWED = {
    "": {"asyncapi", "id", "info", "servers", "defaultContentType", "channels", "operations", "components"},
    "channels": {"address", "messages", "title", "summary", "description", "servers", "parameters", "tags", "bindings"},
    "messages": {
        *("headers", "payload", "correlationId", "contentType", "name", "title", "summary"),
        *("description", "tags", "externalDocs", "bindings", "examples", "traits"),
    },
    "operations": {"action", "channel", "title", "summary", "description", "tags", "messages", "reply", "traits"},
}  # fmt: skip


def test_the_files_are_up_to_date() -> None:
    made = contract()
    mend = "run `python -m flows.contract` and commit docs/"
    stale = [path for path, content in made.items() if _read(path) != content]
    assert not stale, f"{', '.join(stale)} no longer say what the code does; {mend}"
    there = {f"schemas/{path.name}" for path in (DOCS / "schemas").glob("*.json")}
    assert there == {path for path in made if path.startswith("schemas/")}, (
        f"docs/schemas has other files; {mend}"
    )


def _read(path: str) -> bytes:
    file = DOCS / path
    return file.read_bytes() if file.is_file() else b""


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _refs(value)


def _resolve(ref: str) -> Any:
    found: Any = DOCUMENT
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return found


def test_every_reference_leads_somewhere() -> None:
    refs = set(_refs(DOCUMENT))
    assert all(ref.startswith("#/") for ref in refs)
    assert all(_resolve(ref) is not None for ref in refs)


def test_objects_have_the_fields_that_the_specification_names() -> None:
    assert DOCUMENT["asyncapi"] == "3.0.0"
    objects = [("", DOCUMENT), ("info", DOCUMENT["info"])]
    objects += [
        (kind, o) for kind in ("servers", "channels", "operations") for o in DOCUMENT[kind].values()
    ]
    objects += [("messages", o) for o in DOCUMENT["components"]["messages"].values()]
    for kind, one in objects:
        assert REQUIRED.get(kind, set()) <= set(one), kind
        assert set(one) <= ALLOWED.get(kind, set(one)), kind
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in ("send", "receive")
        # Messages of an operation lead to its own channel's, not to components.
        prefix = operation["channel"]["$ref"] + "/messages/"
        assert all(m["$ref"].startswith(prefix) for m in operation["messages"])


def test_every_type_is_on_one_channel_and_in_one_operation() -> None:
    channels = DOCUMENT["channels"]
    assert set(channels["media"]["messages"]) == MEDIA_TYPES
    assert set(channels["timeline"]["messages"]) == set(MODELS) - MEDIA_TYPES
    named = [m["$ref"] for o in DOCUMENT["operations"].values() for m in o["messages"]]
    assert sorted(ref.rpartition("/")[2] for ref in named) == sorted(MODELS)


def test_the_runtime_receives_what_devices_write() -> None:
    for name, operation in DOCUMENT["operations"].items():
        assert operation["action"] == ("receive" if name.startswith("device-") else "send")


def test_schemas_are_schemas() -> None:
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft7Validator.check_schema(schema)  # what AsyncAPI's own schema objects are made of


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_we_write_fits_the_contract(name: str) -> None:
    headers = Draft7Validator(
        {
            **DOCUMENT["components"]["messages"][name]["headers"],
            "components": DOCUMENT["components"],
        }
    )
    data = Draft202012Validator(SCHEMAS[name]) if name not in PCM_TYPES else None

    @settings(max_examples=10)
    @given(events(name))
    def fits(event: Event) -> None:
        record = encode(event)
        headers.validate({n: value.decode() for n, value in record.headers})
        if data is not None:
            data.validate(orjson.loads(record.value))

    fits()


def test_what_does_not_fit_is_refused() -> None:
    ack = Draft202012Validator(SCHEMAS["playback.ack"])
    assert ack.is_valid({"response": "r", "played_us": 1, "state": "cut"})
    assert not ack.is_valid({"response": "r", "played_us": 1, "state": "gone"})
    assert not ack.is_valid({"response": "r"})
    assert SCHEMAS["playback.ack"]["$id"] == "urn:" + wire_type("playback.ack").replace(".", ":")


@pytest.mark.parametrize(("path", "text"), list(reference.files()))
def test_the_tables_leave_nothing_unsaid(path: str, text: str) -> None:
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    empty = [row for row in rows if any(not cell.strip() for cell in row.split(" | "))]
    assert not empty, f"docs/{path}: {empty[0]}: write a docstring"


@pytest.mark.parametrize(
    ("micros", "text"),
    [(320_000, "320ms"), (2_000_000, "2s"), (90_000_000, "90s"), (0, "0"), (7, "7us")],
)
def test_durations_are_written_as_they_are_read(micros: int, text: str) -> None:
    assert reference.duration(micros) == text
    if micros:
        assert parse_duration(text) == micros
