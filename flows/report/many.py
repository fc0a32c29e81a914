"""Pages for many recordings: one for each session, in parallel, and a front page over all of them."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from flows.analysis.foreign import SUFFIXES, SpeechFinder
from flows.analysis.many import read_one
from flows.analysis.session import Figures
from flows.report.session_page import write_session
from flows.report.set_page import write_set
from flows.session_files import open_any, sessions_on
from infra.atomic import file_stem
from schemas.errors import BadInput, VenusError

FRONT = "index.html"


@dataclass(slots=True)
class Pages:
    """What was written."""

    front: Path
    sessions: list[Figures] = field(default_factory=list)
    files: list[str | None] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def _write_of(
    where: str,
    out: Path,
    session: str | None,
    sound: bool,
    recording: str = "",
    find_speech: SpeechFinder | None = None,
) -> Pages:
    """The pages of one recording; those of a file by another name than the session's begin with `recording`, its name."""
    found = Pages(out)
    try:
        if "://" not in where and Path(where).suffix.lower() in SUFFIXES:
            read = read_one(where, find_speech=find_speech)
            found.errors += [read.error] if read.error else []
            found.sessions += read.figures
            found.files += [None] * len(read.figures)
            return found
        with open_any(where) as log:
            names = sessions_on(log)
            if session is not None and session not in names:
                raise BadInput(f"{where}: there is no session {session!r} in it")
            for name in names if session is None else [session]:
                stem = file_stem(name)
                file = f"{stem if recording in ('', stem) else f'{recording}-{stem}'}.html"
                if file == FRONT:
                    file = f"session-{FRONT}"
                found.sessions.append(write_session(log, name, out / file, sound))
                found.files.append(file)
    except VenusError as error:
        found.errors.append(str(error))
    return found


def write_pages(
    wheres: Sequence[str],
    out: Path,
    session: str | None,
    sound: bool,
    workers: int,
    progress: Callable[[], None],
    find_speech: SpeechFinder | None = None,
) -> Pages:
    """Write all pages into a folder; `front` is the one to open."""
    results: dict[int, Pages] = {}
    here = len(wheres) == 1 or workers == 1
    # Several recordings may each have a session of the same name, and several folders a file of the same name.
    stems = [Path(where).stem for where in wheres] if len(wheres) > 1 else [""]
    stems = [s if stems.count(s) == 1 else f"{i}-{s}" for i, s in enumerate(stems, 1)]
    for index, where in enumerate(wheres):
        # Sound needs the model's server, which stays with this process.
        if here or where.lower().endswith(".wav"):
            results[index] = _write_of(where, out, session, sound, stems[index], find_speech)
            progress()
    if len(results) < len(wheres):
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(min(workers, len(wheres)), mp_context=context) as pool:
            waiting = {
                pool.submit(_write_of, w, out, session, sound, stems[i]): i
                for i, w in enumerate(wheres)
                if i not in results
            }
            for future in as_completed(waiting):
                results[waiting[future]] = future.result()
                progress()
    everything = Pages(out / FRONT)
    for index in range(len(wheres)):
        everything.sessions += results[index].sessions
        everything.files += results[index].files
        everything.errors += results[index].errors
    if len(everything.sessions) == 1 and everything.files[0] is not None:
        everything.front = out / everything.files[0]
    elif everything.sessions:
        write_set(everything.sessions, everything.files, everything.errors, everything.front)
    return everything
