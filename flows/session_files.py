"""Session files: export of sessions from a timeline, import into one, and opening a file as if it were a timeline.

By extension: `.mcap` (the archive), `.jsonl`, `.parquet` hold every record exactly; `.wav` is the conversation as sound. A file appears
whole or not at all. An import reads its whole file before it appends the first record, and refuses sessions that are there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from flows.looking import wire_types
from flows.redact import Pseudonyms, notes_on, redact_text, silenced
from flows.settings import timeline_at
from infra.atomic import file_stem, new_file
from infra.timeline.port import Timeline
from schemas.errors import BadInput
from schemas.record import Lane, Record, StoredRecord
from schemas.upcast import is_newer

FORMATS = ("mcap", "jsonl", "parquet", "wav")
READABLE = ("mcap", "jsonl", "parquet", "db")
BATCH = 1000
AT_ONCE = 100
"""Files that one pass over the timeline writes."""

Progress = Callable[[int], None]
"""Told about every record that has been worked off."""


class Sink(Protocol):
    def add(self, record: StoredRecord) -> None: ...
    def note(self, name: str, value: str) -> None: ...
    def finish(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to export and what to leave out."""

    sessions: tuple[str, ...] = ()
    """These; all where none is named."""
    media: bool = True
    redact_media: bool = False
    redact_text: bool = False


@dataclass(slots=True)
class Exported:
    """A file that was written."""

    path: Path
    sessions: int
    records: int
    changed: int = 0
    """Decisions that redaction made come out differently."""
    replaced: bool = False
    """There was a file of that name."""


def format_of(path: Path) -> str:
    """The format that a file's name says.

    Raises:
        BadInput: none that we write.
    """
    name = path.suffix.lower().lstrip(".")
    if name not in FORMATS:
        raise BadInput(
            f"{path}: {name or 'no extension'}: there are {', '.join('.' + f for f in FORMATS)}"
        )
    return name


def sessions_on(timeline: Timeline) -> list[str]:
    """The names of all sessions, in the order of their first record."""
    found: dict[str, None] = {}
    for p in range(timeline.partitions):
        for record in timeline.scan(Lane.TIMELINE, p):
            if record.key:
                found[record.key] = None
    return list(found)


def export(
    timeline: Timeline,
    to: Path,
    wishes: Wishes,
    folder_format: str | None = None,
    progress: Progress | None = None,
) -> list[Exported]:
    """Write `to`: one file (by extension), or a folder with a file for each session (`folder_format`, default mcap).

    Raises:
        BadInput: a session that is not there, a place that cannot be written to, nothing to export.
    """
    there = sessions_on(timeline)
    for name in wishes.sessions:
        if name not in there:
            raise BadInput(
                f"no session {name!r} on {timeline.url}; `venus sessions` lists what is there"
            )
    chosen = list(wishes.sessions) or there
    if not chosen:
        raise BadInput(f"there are no sessions on {timeline.url}")
    if to.suffix and folder_format is None and not to.is_dir():
        format_of(
            to
        )  # A folder's name may hold a dot; one that is not there yet is rather a misspelt file.
    one_file = (
        to.suffix.lower().lstrip(".") in FORMATS and folder_format is None and not to.is_dir()
    )
    if one_file:
        if format_of(to) == "wav":
            if wishes.redact_media or wishes.redact_text or not wishes.media:
                raise BadInput(f"{to}: a wav is nothing but what was said; redact into .mcap")
            return [_export_wav(timeline, to, chosen)]
        return [_export_one(timeline, to, chosen if wishes.sessions else None, wishes, progress)]
    format_ = folder_format or "mcap"
    if format_ not in FORMATS[:3]:
        raise BadInput(f"--format {format_}: there are {', '.join(FORMATS[:3])}")
    paths = {name: _path_in(to, name, format_) for name in chosen}
    written: list[Exported] = []
    for start in range(0, len(chosen), AT_ONCE):
        group = chosen[start : start + AT_ONCE]
        written += _export_each(timeline, {n: paths[n] for n in group}, wishes, progress)
    return written


def _path_in(folder: Path, session: str, format_: str) -> Path:
    name = file_stem(session)
    if format_ == "parquet":
        return folder / f"session={name}" / "part-0.parquet"
    return folder / f"{name}.{format_}"


def _sink(path: Path, file: IO[bytes], partitions: int, notes: Mapping[str, str]) -> Sink:
    match format_of(path):
        case "mcap":
            from infra.timeline.mcap_write import McapSink

            return McapSink(file, partitions, notes)
        case "jsonl":
            from infra.timeline.jsonl import JsonlSink

            return JsonlSink(file, partitions, notes)
        case _:
            from infra.timeline.parquet import ParquetSink

            return ParquetSink(file, partitions, notes)


def _lanes(wishes: Wishes) -> tuple[Lane, ...]:
    return (Lane.TIMELINE, Lane.MEDIA) if wishes.media else (Lane.TIMELINE,)


def _notes(wishes: Wishes) -> dict[str, str]:
    return notes_on(not wishes.media, wishes.redact_media, wishes.redact_text)


def _places(timeline: Timeline, lane: Lane, names: Sequence[str] | None) -> Iterator[StoredRecord]:
    """The records of a lane, place by place; of one session only its own place is read."""
    if names is not None and len(names) == 1:
        yield from timeline.scan(lane, timeline.partition_of(names[0]), 0, names[0])
        return
    wanted = None if names is None else frozenset(names)
    for p in range(timeline.partitions):
        for record in timeline.scan(lane, p):
            if wanted is None or record.key in wanted:
                yield record


def _export_one(
    timeline: Timeline,
    to: Path,
    names: Sequence[str] | None,
    wishes: Wishes,
    progress: Progress | None,
) -> Exported:
    with new_file(to) as file:
        sink = _sink(to, file, timeline.partitions, _notes(wishes))
        result = Exported(to, 0, 0, replaced=to.exists())
        found: set[str | None] = set()
        if wishes.redact_text:
            _add_redacted(timeline, names, wishes, sink, result, found)
        for lane in _lanes(wishes):
            if wishes.redact_text and lane is Lane.TIMELINE:
                continue
            for record in _places(timeline, lane, names):
                if (kept := silenced(record) if wishes.redact_media else record) is None:
                    continue
                sink.add(kept)
                found.add(record.key)
                result.records += 1
                if progress is not None:
                    progress(1)
        sink.finish()
    result.sessions = len(found - {None})
    return result


def _add_redacted(
    timeline: Timeline,
    names: Sequence[str] | None,
    wishes: Wishes,
    sink: Sink,
    result: Exported,
    found: set[str | None],
) -> None:
    """The timeline lane, session by session merged back into the order of their places."""
    pseudonyms = Pseudonyms()
    by_place: dict[int, list[StoredRecord]] = {}
    renumber = False
    for name in names if names is not None else sessions_on(timeline):
        records, changed = redact_text(_places(timeline, Lane.TIMELINE, [name]), pseudonyms)
        result.changed += changed
        renumber = renumber or changed > 0
        found.add(name)
        for record in records:
            kept = silenced(record) if wishes.redact_media else record
            if kept is not None:
                by_place.setdefault(record.partition, []).append(kept)
    for records in by_place.values():
        if not renumber:
            records.sort(key=lambda r: r.offset)
        for index, record in enumerate(records):
            sink.add(record._replace(offset=index) if renumber else record)
            result.records += 1
    if result.changed:
        sink.note("redaction_changed", str(result.changed))


def _export_each(
    timeline: Timeline, paths: dict[str, Path], wishes: Wishes, progress: Progress | None
) -> list[Exported]:
    """Several files in one pass over the timeline."""
    results = {name: Exported(path, 1, 0, replaced=path.exists()) for name, path in paths.items()}
    with ExitStack() as stack:
        sinks = {
            name: _sink(
                path, stack.enter_context(new_file(path)), timeline.partitions, _notes(wishes)
            )
            for name, path in paths.items()
        }
        if wishes.redact_text:
            for name, sink in sinks.items():
                _add_redacted(timeline, [name], wishes, sink, results[name], set())
        for lane in _lanes(wishes):
            if wishes.redact_text and lane is Lane.TIMELINE:
                continue
            for record in _places(timeline, lane, list(paths)):
                kept = silenced(record) if wishes.redact_media else record
                if kept is not None and record.key is not None:
                    sinks[record.key].add(kept)
                    results[record.key].records += 1
                    if progress is not None:
                        progress(1)
        for sink in sinks.values():
            sink.finish()
    return list(results.values())


def _export_wav(timeline: Timeline, to: Path, chosen: Sequence[str]) -> Exported:
    from flows.mix import render_mix

    if len(chosen) != 1:
        raise BadInput(
            f"{to}: a wav holds one session, and there are {len(chosen)}; name one with --session"
        )
    result = Exported(to, 1, 0, replaced=to.exists())
    part = to.with_name(f".{to.stem}.part.wav")
    try:
        render_mix(timeline, chosen[0], part)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
    return result


# --- reading


def open_file(path: Path) -> Timeline:
    """A session file as a timeline to read.

    Raises:
        BadInput: not there, not ours, damaged, or of a newer version.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    suffix = path.suffix.lower().lstrip(".")
    if suffix == "mcap":
        from infra.timeline.mcap import McapTimeline

        return McapTimeline(path)
    if suffix == "db":
        return timeline_at(f"sqlite:///{path}", create=False)
    if suffix not in READABLE:
        raise BadInput(
            f"{path}: {suffix or 'no extension'}: there are {', '.join('.' + f for f in READABLE)}"
        )
    timeline = timeline_at("memory://")
    copy(_records_of(path), timeline)
    return timeline


def open_any(where: str, understood: bool = True) -> Timeline:
    """A timeline by URL, or a session file by its path; to be `understood`, or only moved.

    Raises:
        BadInput: as `open_file`; or events of a newer version are in the file, without which its decisions make no sense.
    """
    if "://" in where:
        return timeline_at(where, create=False)
    log = open_file(Path(where))
    newer = sorted(filter(is_newer, wire_types(log))) if understood else []
    if newer:
        log.close()
        more = f" and {len(newer) - 3} more" if len(newer) > 3 else ""
        raise BadInput(
            f"{where}: written by a newer venus, whose {', '.join(newer[:3])}{more} this one cannot read"
        )
    return log


def _records_of(path: Path) -> Iterable[StoredRecord]:
    if path.suffix.lower() == ".parquet":
        from infra.timeline.parquet import read_parquet

        return read_parquet(path)
    from infra.timeline.jsonl import read_jsonl

    return read_jsonl(path)


def _batches(records: Iterable[StoredRecord]) -> Iterator[tuple[Lane, list[StoredRecord]]]:
    batch: list[StoredRecord] = []
    lane = Lane.TIMELINE
    for r in records:
        if not r.key:
            continue  # Logs are keyed by session; what has none was rejected where it came from.
        if r.lane is not lane or len(batch) >= BATCH:
            if batch:
                yield lane, batch
            batch, lane = [], r.lane
        batch.append(r)
    if batch:
        yield lane, batch


def copy(records: Iterable[StoredRecord], into: Timeline, progress: Progress | None = None) -> int:
    """Append records of another log, with the times at which they were appended there; returns their number."""
    count = 0
    for lane, batch in _batches(records):
        times = [r.appended_us for r in batch]
        into.append([Record(r.key or "", r.headers, r.value) for r in batch], lane, times)
        count += len(batch)
        if progress is not None:
            progress(len(batch))
    return count


def sessions_in(path: Path) -> list[str]:
    """The sessions of a file, read to its end. Raises BadInput where that cannot be, or no session is in it."""
    names: dict[str, None] = {}
    with open_file(path) as source:
        for lane in Lane:
            for p in range(source.partitions):
                for record in source.scan(lane, p):
                    if record.key:
                        names[record.key] = None
    if not names:
        raise BadInput(f"{path}: there is no session in it")
    return list(names)


def files_in(folder: Path) -> list[Path]:
    """The session files in a folder and the folders below it, in the order of their names."""
    found = [
        p
        for p in folder.rglob("*")
        if p.is_file() and p.suffix.lower().lstrip(".") in READABLE and not p.name.startswith(".")
    ]
    return sorted(found)
