"""Recordings that never went through us: speaker turns (RTTM), time-aligned words (CSV), two-channel sound (WAV).

Each becomes a `Talk`: who was active when, and what was said. From there on they are analysed like our own sessions, as far as
that goes: there are no decisions in them.
"""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flows.analysis.duplex_bench import Spoken
from flows.analysis.floor import Span
from schemas.errors import BadInput

SUFFIXES = (".rttm", ".csv", ".wav")

SpeechFinder = Callable[[Path], dict[str, list[Span]]]
"""Finds the speech on each channel of a sound file (perception's VAD)."""


@dataclass(slots=True)
class Talk:
    """A conversation: activity and, where they are known, words of each speaker."""

    name: str
    activity: dict[str, list[Span]] = field(default_factory=dict)
    words: dict[str, list[Spoken]] = field(default_factory=dict)
    duration_us: int = 0


def read_foreign(path: Path, find_speech: SpeechFinder | None = None) -> list[Talk]:
    """The conversations of a file, by its extension.

    Raises:
        BadInput: not there, or not of its form; the message names the line.
    """
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    match path.suffix.lower():
        case ".rttm":
            return read_rttm(path)
        case ".csv":
            return [read_words(path)]
        case ".wav" if find_speech is not None:
            activity = find_speech(path)
            end = max((b for spans in activity.values() for _, b in spans), default=0)
            return [Talk(path.stem, activity, duration_us=end)]
        case ".wav":
            raise BadInput(f"{path}: whose speech is where only the voice activity model says")
        case other:
            raise BadInput(f"{path}: {other or 'no extension'}: there are {', '.join(SUFFIXES)}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from enumerate(file, 1)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not text in UTF-8 ({error.reason})") from None


def _us(path: Path, line: int, text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        raise BadInput(f"{path}:{line}: {text!r} is not a time in seconds") from None
    if not 0 <= seconds < 1e7:
        raise BadInput(f"{path}:{line}: {text} s is no time of a recording")
    return round(seconds * 1e6)


def read_rttm(path: Path) -> list[Talk]:
    """NIST Rich Transcription Time Marked: `SPEAKER file channel start duration <NA> <NA> name …`; one talk for each file named."""
    talks: dict[str, Talk] = {}
    for number, line in _lines(path):
        parts = line.split()
        if not parts or parts[0].startswith(";") or parts[0] != "SPEAKER":
            continue
        if len(parts) < 8:
            raise BadInput(
                f"{path}:{number}: a SPEAKER line has at least 8 fields, this one {len(parts)}"
            )
        start, duration = _us(path, number, parts[3]), _us(path, number, parts[4])
        talk = talks.setdefault(parts[1], Talk(parts[1]))
        talk.activity.setdefault(parts[7], []).append((start, start + duration))
        talk.duration_us = max(talk.duration_us, start + duration)
    if not talks:
        raise BadInput(f"{path}: there is no SPEAKER line in it")
    return list(talks.values())


def read_words(path: Path) -> Talk:
    """Comma-separated words with a header line: speaker, start, end, text (seconds)."""
    talk = Talk(path.stem)
    reader = csv.DictReader((line for _, line in _lines(path)), skipinitialspace=True)
    names = [name.strip().lower() for name in reader.fieldnames or []]
    if missing := {"speaker", "start", "end", "text"} - set(names):
        raise BadInput(
            f"{path}:1: no column {', '.join(sorted(missing))}; the first line names speaker, start, end, text"
        )
    reader.fieldnames = names
    for row in reader:
        number = reader.line_num
        if row["text"] is None:
            raise BadInput(f"{path}:{number}: a line has 4 fields, this one fewer")
        start, end = _us(path, number, row["start"]), _us(path, number, row["end"])
        if end < start:
            raise BadInput(f"{path}:{number}: the word ends before it starts")
        speaker = row["speaker"].strip()
        talk.words.setdefault(speaker, []).append(Spoken(row["text"].strip(), start, end))
        talk.activity.setdefault(speaker, []).append((start, end))
        talk.duration_us = max(talk.duration_us, end)
    if not talk.words:
        raise BadInput(f"{path}: there is no word in it")
    return talk
