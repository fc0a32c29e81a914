"""Writes the published contract, `docs/asyncapi.json` and `docs/schemas/*.json`, and the tables `docs/events.md` and
`docs/policy.md`: `python -m flows.contract [FOLDER]`.

They are made by `schemas.asyncapi` and `schemas.reference`, which read and write nothing.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import orjson

from schemas import reference
from schemas.asyncapi import document, json_schemas
from schemas.cloudevents import wire_type

DOCS = Path(__file__).parent.parent / "docs"
DISTRIBUTION = "venus-realtime"


def contract() -> dict[str, bytes]:
    """Path below the folder → content."""
    # Only a change of major or minor version is a change of the contract's.
    release = ".".join(version(DISTRIBUTION).split(".")[:2])
    files = {"asyncapi.json": document(release)} | {
        f"schemas/{wire_type(name)}.json": schema for name, schema in json_schemas().items()
    }
    made = {
        path: orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n"
        for path, content in files.items()
    }
    return made | {path: text.encode() for path, text in reference.files()}


def write(folder: Path) -> int:
    """Write the contract, take away schemas of types that are gone, and say how many files there are."""
    files = contract()
    for old in (folder / "schemas").glob("venus.*.json"):
        if f"schemas/{old.name}" not in files:
            old.unlink()
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return len(files)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    sys.stdout.write(f"wrote {write(target)} files below {target}\n")
