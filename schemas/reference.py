"""Two tables for people, generated like the contract: every event type, and every key of the policy."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemas.base import MICROS_UNITS
from schemas.policy import PROFILES, Policy
from schemas.registry import GROUPS, MODELS, REQUESTS

_LONGEST = 60
_HEAD = "<!-- Written by `python -m flows.contract`; the text is that of the code. -->\n"


def events() -> str:
    """Markdown: type, class, writer, meaning."""
    lines = [
        _HEAD,
        "# Events",
        "",
        "Every type there is. *Observation*: what somebody outside saw or did. *Outcome*: what something non-deterministic returned.",
        "*Decision*: what an operator derived. Requests (marked →) get exactly one terminal outcome. Fields: `docs/schemas/`.",
    ]
    for module in GROUPS:
        first = (module.__doc__ or "").strip().partition("\n")[0].rstrip(".:")
        lines += ["", f"## {first}", "", "| type | class | writer | what it says |"]
        lines += ["| --- | --- | --- | --- |"]
        for name, model in MODELS.items():
            if model.__module__ == module.__name__:
                mark = " →" if name in REQUESTS else ""
                cells = (f"`{name}`{mark}", str(model.KIND), str(model.WRITER), _text(model))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def policy() -> str:
    """Markdown: key, default, meaning; and the profiles."""
    lines = [
        _HEAD,
        "# The policy of a session",
        "",
        "Every threshold that a decision depends on. Wished by a device (`venus capture --policy KEY=VALUE`), changed while running",
        "(`venus send set KEY=VALUE`), tried on a recording (`venus replay --set KEY=VALUE`). Durations are media time and take a unit",
        "(`320ms`, `2s`, `1.5min`).",
    ]
    for section, field in Policy.model_fields.items():
        model = field.annotation
        assert isinstance(model, type) and issubclass(model, BaseModel)
        lines += ["", f"## {section}", "", _text(model), "", "| key | default | meaning |"]
        lines += ["| --- | --- | --- |"]
        for name, inner in model.model_fields.items():
            meaning = " ".join((inner.description or "").split())
            lines.append(f"| `{section}.{name}` | {_default(inner)} | {_cell(meaning)} |")
    lines += [
        "",
        "## Profiles",
        "",
        "Named sets of changes: `profile=patient,hard_to_interrupt`.",
        "",
    ]
    lines += ["| profile | changes |", "| --- | --- |"]
    for name, changes in PROFILES.items():
        told = ", ".join(f"`{key}={_plain(value)}`" for key, value in changes.items())
        lines.append(f"| `{name}` | {told} |")
    return "\n".join(lines) + "\n"


def _text(model: type[Any]) -> str:
    return _cell(" ".join((model.__doc__ or "").split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, int) and any("parse_duration" in str(m) for m in field.metadata):
        return f"`{duration(value)}`"
    if isinstance(value, (tuple, list)) and sum(len(str(v)) for v in value) > _LONGEST:
        return f"{len(value)} of them"
    if isinstance(value, (tuple, list)):
        return ", ".join(f"`{_cell(str(v))}`" for v in value) or "none"
    text = _plain(value)
    return f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}`"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def duration(micros: int) -> str:
    """Microseconds in the greatest unit that leaves a whole number."""
    for unit, size in MICROS_UNITS:
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    return f"{micros}"


def files() -> Iterator[tuple[str, str]]:
    """Path below `docs/` → content."""
    yield "events.md", events()
    yield "policy.md", policy()
