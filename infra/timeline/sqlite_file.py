"""The file behind `sqlite://`: opened, checked, laid out, and its errors put into words.

WAL mode: readers never wait for the writer, many processes work at once. `synchronous=NORMAL`: a commit is handed to the
operating system before `append` returns, so kill -9 of any process loses nothing; a power cut may lose the last few
commits (never the file's integrity), because the disk is only forced at checkpoints. `?synchronous=full` forces it at
every commit, which costs a disk flush per append.
"""

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from infra.clock import monotonic_s, sleep_s
from infra.timeline.url import TimelineUrl
from schemas.errors import BadInput, TimelineError, TimelineUnavailable, VenusError
from schemas.record import Lane

T = TypeVar("T")

_APPLICATION_ID = 0x56454E53  # "VENS"; `file` and we recognise the file by it
_LAYOUT_VERSION = 1
LOCK_WAIT_S = 30.0
_READ_WAIT_S = 5.0


class TimelineFile:
    """Where the file is, and connections to it."""

    def __init__(self, url: TimelineUrl, create: bool) -> None:
        self.url = url.shown
        self.synchronous = url.take_choice("synchronous", ("normal", "full"), "normal")
        url.finish()
        self.path = _path(url)
        exists = os.path.exists(self.path)
        if not exists and not create:
            raise TimelineError(
                f"timeline {self.url}: there is no file {self.path}; `venus run` makes it, --timeline names another"
            )
        try:
            if not exists:
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self.writable = not exists or os.access(self.path, os.W_OK)
            self._prepare(create)
            stat = os.stat(self.path)
        except sqlite3.Error as error:
            raise self.explain(error, "open") from error
        except OSError as error:
            raise TimelineError(
                f"timeline {self.url}: cannot make {self.path}: {error.strerror}"
            ) from error
        self._identity = (stat.st_dev, stat.st_ino)

    def connect(self, mode: str | None = None) -> sqlite3.Connection:
        mode = mode or ("rw" if self.writable else "ro")
        db = sqlite3.connect(
            f"file:{quote(self.path)}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_READ_WAIT_S,
        )
        db.execute(f"PRAGMA synchronous={self.synchronous}")
        return db

    def check_still_there(self) -> None:
        """A deleted file can still be written through an open handle, and all of it would be lost."""
        try:
            stat = os.stat(self.path)
        except OSError:
            raise TimelineError(
                f"timeline {self.url}: {self.path} was deleted or moved while it was open"
            ) from None
        if (stat.st_dev, stat.st_ino) != self._identity:
            raise TimelineError(f"timeline {self.url}: {self.path} was replaced while it was open")

    def explain(self, error: sqlite3.Error, doing: str) -> VenusError:
        """One line for a person, and whether trying again makes sense."""
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        where = f"timeline {self.url}: cannot {doing}"
        for prefix, kind, words in _WORDS:
            if name.startswith(prefix):
                return kind(f"{where}: {words.format(path=self.path)}")
        return TimelineError(f"{where}: {error} ({name})")

    def _prepare(self, create: bool) -> None:
        """Lay out a new file; recognise one of ours. Many processes may do this at once."""
        db = self.connect("rwc" if create else None)
        try:
            if self._recognise(db, create):
                return
            # A lock here (another process does the same just now) is reported at once, hence the retry.
            patiently(lambda: db.execute("PRAGMA journal_mode=WAL"))
            begin_write(db)
            for lane in Lane:
                db.execute(
                    f"CREATE TABLE IF NOT EXISTS {lane} (offset INTEGER PRIMARY KEY, session TEXT, "
                    "headers BLOB NOT NULL, value BLOB NOT NULL, appended_us INTEGER NOT NULL)"
                )
                db.execute(f"CREATE INDEX IF NOT EXISTS {lane}_session ON {lane} (session)")
            db.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={_LAYOUT_VERSION}")
            db.execute("COMMIT")
        finally:
            db.close()

    def _recognise(self, db: sqlite3.Connection, create: bool) -> bool:
        def look() -> tuple[int, int, int]:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            (version,) = db.execute("PRAGMA user_version").fetchone()
            (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return application, version, tables

        application, version, tables = patiently(look)
        if application == _APPLICATION_ID:
            if version != _LAYOUT_VERSION:
                raise BadInput(
                    f"timeline {self.url}: {self.path} has layout version {version}, this program knows "
                    f"{_LAYOUT_VERSION}; use the version of venus that wrote it, or `venus export` there"
                )
            return True
        if tables or application:
            raise BadInput(
                f"timeline {self.url}: {self.path} is an SQLite database but not a timeline; name another file"
            )
        if not create:
            raise TimelineError(f"timeline {self.url}: {self.path} is empty and holds no timeline")
        return False


def patiently(action: Callable[[], T]) -> T:
    """Do it, again after a short random pause while another process holds the lock.

    SQLite's own busy handler sleeps in fixed steps up to 100 ms, so that many writers starve one another; a short random
    pause lets twenty of them through evenly.
    """
    deadline = monotonic_s() + LOCK_WAIT_S
    longest = 0.001
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or monotonic_s() > deadline:
                raise
        sleep_s(random.uniform(0.0001, longest))
        longest = min(longest * 1.5, 0.01)


def begin_write(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA busy_timeout=0")
    patiently(lambda: db.execute("BEGIN IMMEDIATE"))


def _path(url: TimelineUrl) -> str:
    if url.authority:
        raise url.bad(
            f"write sqlite:///{url.authority}{url.path} (three slashes) for a relative path"
        )
    path = url.path[1:]
    if not path or path.endswith("/"):
        raise url.bad("names no file; write sqlite:///path.db")
    if "\0" in path:
        raise url.bad("a path cannot hold a NUL")
    path = os.path.abspath(path)
    if os.path.isdir(path):
        raise url.bad(f"{path} is a folder; name a file in it")
    return path


_WORDS: tuple[tuple[str, type[VenusError], str], ...] = (
    (
        "SQLITE_BUSY",
        TimelineUnavailable,
        "another process keeps {path} locked; end it or try again",
    ),
    ("SQLITE_LOCKED", TimelineUnavailable, "{path} is locked; try again"),
    (
        "SQLITE_FULL",
        TimelineError,
        "the disk (or the file's size limit) is full at {path}; nothing of this batch was stored",
    ),
    ("SQLITE_NOTADB", BadInput, "{path} is not an SQLite file; name another file"),
    (
        "SQLITE_CORRUPT",
        TimelineError,
        "{path} is damaged; save what can be read with `sqlite3 FILE .recover`",
    ),
    ("SQLITE_READONLY", TimelineError, "{path} cannot be written; check its permissions"),
    ("SQLITE_CANTOPEN", TimelineError, "{path} or its folder cannot be opened; check permissions"),
    ("SQLITE_TOOBIG", TimelineError, "a record is too large for SQLite (1 GB)"),
    (
        "SQLITE_IOERR",
        TimelineError,
        "the disk reported an error (or is full) at {path}; nothing of this batch was stored",
    ),
)
