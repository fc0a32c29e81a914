"""Redaction for export: what was said is taken out of a session, and the session still replays.

- `media`: audio becomes silence of the same length, input and speech alike. Decisions do not look at samples, so nothing else changes.
- `text`: every word of the inputs (transcripts, typed text, generated text, what works were asked and returned) becomes another
  word of the same length. The key of the mapping is drawn for each export and thrown away; within an export a word always
  becomes the same one. Words that rules look for (stop words, acknowledgements, intent patterns) stay, as do punctuation and
  `<tags>`. Decisions quote the inputs, so they are derived anew from the redacted ones: the file proves like any other.

Where a decision comes out differently (a pattern no longer matches), the file holds what follows from the redacted inputs, and its
notes say how many. What models can no longer be asked about is noted as well.
"""

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import orjson

from operators.fold import SessionFold, operator_versions
from operators.words import lists_for
from schemas.base import Kind
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput, BadRecord
from schemas.record import Record, StoredRecord
from schemas.registry import KINDS, MODELS
from schemas.session import SessionConfigured

CHOICES = ("media", "text", "all")
CANNOT = {
    "media": ("vad", "endpoint", "transcript"),
    "text": ("transcript", "backchannel", "generate", "speak", "work"),
}
"""What a redacted session can no longer be run again with."""

TEXT_FIELDS = frozenset({"text", "query", "result", "message", "detail", "content", "name"})
TREE_FIELDS = frozenset({"arguments"})
"""Of inputs: fields with free text, and fields whose every text is free."""

_WORD = re.compile(r"<[^<>]*>|\w+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def silenced(record: StoredRecord) -> StoredRecord | None:
    """A record with its audio as silence; None where it is media that cannot be silenced."""
    content_type = next((v for n, v in record.headers if n.lower() == "content-type"), b"")
    if content_type.startswith(b"audio/pcm"):
        return record._replace(value=bytes(len(record.value)))
    return record if content_type.startswith(b"application/json") or not content_type else None


class Pseudonyms:
    """Word → another word of the same length, the same throughout one export."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: dict[str, str] = {}
        self.keep: frozenset[str] = frozenset()

    def text(self, text: str, keep: bool = True) -> str:
        """`keep` leaves the words that rules look for."""

        def other(match: re.Match[str]) -> str:
            word = match[0]
            if word.startswith("<") or (keep and word.lower() in self.keep):
                return word
            return self._other(word)

        return _WORD.sub(other, text)

    def tree(self, value: Any) -> Any:
        """Every text in a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {k: self.tree(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(v) for v in value]
        return value

    def _other(self, word: str) -> str:
        known = self._known.get(word)
        if known is None:
            known = self._known[word] = self._make(word)
        return known

    def _make(self, word: str) -> str:
        noise = blake2b(word.lower().encode(), key=self._key, digest_size=64).digest()
        out = []
        for index, char in enumerate(word):
            drawn = noise[index % len(noise)] + index // len(noise)
            if char.isdecimal():
                out.append(str(drawn % 10))
            elif not char.isalpha():
                out.append(char)
            elif "\u3400" <= char <= "\u9fff":
                # Words are counted by script: a Chinese character stays one.
                out.append(chr(0x4E00 + drawn * 16 % 0x3000))
            else:
                letter = _LETTERS[drawn % 26]
                out.append(letter.upper() if char.isupper() else letter)
        return "".join(out)


def kept_words(config: SessionConfigured) -> frozenset[str]:
    """The words that rules look for."""
    lists = lists_for(config.language)
    known = (*lists.acknowledgements, *lists.stops, *lists.repairs, *lists.asides)
    # As `_WORD` finds them: "that's" is two, and a phrase in a script without spaces is one.
    found = {part for phrase in known for word in phrase for part in re.findall(r"\w+", word)}
    found.update("".join(phrase) for phrase in known)
    found.update(
        re.findall(
            r"\w+", orjson.dumps(config.policy.work.model_dump(mode="json")).decode().lower()
        )
    )
    return frozenset(found)


def redact_text(
    records: Iterable[StoredRecord], names: Pseudonyms
) -> tuple[list[StoredRecord], int]:
    """The timeline lane of one session without its words, and how many decisions came out differently.

    Raises:
        BadInput: the session was recorded with other operator versions, so that its decisions cannot be derived anew.
    """
    events: list[tuple[StoredRecord, Event]] = []
    for record in records:
        try:
            events.append((record, decode(record)))
        except BadRecord:
            continue  # What cannot be read cannot be redacted either: it stays out.
    configured = next((e.data for _, e in events if e.type == "session.configured"), None)
    if configured is not None:
        if configured.operators != operator_versions():
            session = events[0][1].session
            raise BadInput(
                f"session {session}: recorded with operators {configured.operators}, these are {operator_versions()}; "
                "text can be redacted only with the versions that it was recorded with"
            )
        names.keep = kept_words(configured)
    spoken = _generated(events, names)
    inputs = [
        (record, event if event.kind is Kind.DECISION else _without_words(event, names, spoken))
        for record, event in events
    ]
    return _derive_anew(inputs)


def _generated(events: list[tuple[StoredRecord, Event]], names: Pseudonyms) -> dict[str, str]:
    """Id of each piece of generated text → its redacted text: words may be split between pieces."""
    pieces: dict[str, list[Event]] = {}
    for _, event in events:
        if event.type == "response.text":
            pieces.setdefault(event.cause or "", []).append(event)
    found: dict[str, str] = {}
    for parts in pieces.values():
        parts.sort(key=lambda e: e.sequence or 0)
        whole, at = names.text("".join(e.data.text for e in parts), keep=False), 0
        for event in parts:
            found[event.id] = whole[at : at + len(event.data.text)]
            at += len(event.data.text)
    return found


def _without_words(event: Event, names: Pseudonyms, spoken: dict[str, str]) -> Event:
    if isinstance(event.data, Pcm) or event.type in ("session.configured", "perception.window"):
        return event
    if event.type == "response.text":
        return event._replace(data=event.data.model_copy(update={"text": spoken[event.id]}))
    tree = _walk(event.data.model_dump(mode="json"), names, event.type)
    return event._replace(data=MODELS[event.type].model_validate(tree))


def _walk(value: Any, names: Pseudonyms, type_: str) -> Any:
    if isinstance(value, dict):
        out = {}
        for key, inner in value.items():
            if key in TREE_FIELDS:
                out[key] = names.tree(inner)
            elif key in TEXT_FIELDS and isinstance(inner, str):
                out[key] = names.text(inner, keep=not type_.startswith("generation."))
            else:
                out[key] = _walk(inner, names, type_)
        return out
    if isinstance(value, list):
        return [_walk(inner, names, type_) for inner in value]
    return value


def _derive_anew(inputs: list[tuple[StoredRecord, Event]]) -> tuple[list[StoredRecord], int]:
    """Inputs with the decisions that follow from them: in their old places where they are the same ones, else after their input."""
    session = inputs[0][1].session if inputs else ""
    fold = SessionFold(session)
    derived: dict[str, Event] = {}
    after: list[tuple[StoredRecord, list[Event]]] = []
    for record, event in inputs:
        decisions = [d for applied in fold.feed(event) for d in applied.decisions]
        derived.update((d.id, d) for d in decisions)
        after.append((record, decisions))
    recorded = {e.id: e for _, e in inputs if KINDS[e.type] is Kind.DECISION}
    changed = sum(
        1
        for id_ in recorded.keys() | derived.keys()
        if not _alike(recorded.get(id_), derived.get(id_))
    )
    if recorded.keys() <= derived.keys() and not changed:
        out = [_rewritten(record, derived.get(event.id, event)) for record, event in inputs]
        return out, 0
    out, offset = [], 0
    for (record, event), (_, decisions) in zip(inputs, after, strict=True):
        kept = [] if KINDS[event.type] is Kind.DECISION else [event]
        for one in (*kept, *decisions):
            out.append(_rewritten(record._replace(offset=offset), one))
            offset += 1
    return out, changed


def _alike(recorded: Event | None, derived: Event | None) -> bool:
    """The same decision but for its words."""
    if recorded is None or derived is None:
        return recorded is None  # A decision that follows and was not written yet is no change.
    return recorded.type == derived.type and recorded.mediatime == derived.mediatime


def _rewritten(record: StoredRecord, event: Event) -> StoredRecord:
    made: Record = encode(event)
    return record._replace(headers=made.headers, value=made.value)


def redactor(what: str | None) -> tuple[bool, bool]:
    """(media, text) of `--redact`.

    Raises:
        BadInput: no such redaction.
    """
    if what is None:
        return False, False
    if what not in CHOICES:
        raise BadInput(f"--redact {what}: there are {', '.join(CHOICES)}")
    return what in ("media", "all"), what in ("text", "all")


def notes_on(media_gone: bool, media: bool, text: bool) -> dict[str, str]:
    """What a file says about itself."""
    done = [name for name, is_done in (("media", media), ("text", text)) if is_done]
    cannot = {w for name in done for w in CANNOT[name]} | (
        set(CANNOT["media"]) if media_gone else set()
    )
    notes = {"redacted": ",".join(done), "cannot_rerun": ",".join(sorted(cannot))}
    return {name: value for name, value in notes.items() if value}
