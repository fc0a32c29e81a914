"""Files that are there whole or not at all: written without a name, then put in their place in one step.

On Linux the file has no name until it is complete (O_TMPFILE), so that even `kill -9` leaves nothing behind; elsewhere, a hidden
temporary file is removed when the writing fails. `file_stem` makes a session's name fit to be a file's.
"""

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO
from urllib.parse import quote

from schemas.errors import BadInput

LONGEST_NAME = 200
"""Characters of a file's name made from a session's; file systems take 255 with what stands around it."""


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write, which appears at `path` when the block ends without an error.

    Raises:
        BadInput: the folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file, named = _open(path.parent)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if named is None:
                named = _name(file.fileno(), path)
        os.replace(named, path)
    except BaseException:
        if named is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(named)
        raise


def file_stem(session: str) -> str:
    """A session's name as that of a file, without extension: a long one is cut, and its hash keeps it apart from others."""
    name = quote(session, safe=" ")
    dots = len(session) - len(session.lstrip("."))
    name = "%2E" * dots + name[dots:]  # Hidden files are left out where a folder is read.
    if len(name) > LONGEST_NAME:
        mark = sha256(session.encode()).hexdigest()[:16]
        cut = name[: LONGEST_NAME - len(mark) - 1]
        name = f"{cut[: cut.rfind('%')] if '%' in cut[-2:] else cut}-{mark}"
    return name


def _open(folder: Path) -> tuple[IO[bytes], str | None]:
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return os.fdopen(os.open(folder, unnamed | os.O_RDWR, 0o644), "w+b"), None
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    return os.fdopen(descriptor, "w+b"), name


def _name(descriptor: int, path: Path) -> str:
    """Give the unnamed file a hidden name beside `path`, to be moved over it."""
    name = str(path.parent / f".{secrets.token_hex(8)}.part")
    # Only with a directory's descriptor does Python call linkat, which follows the link; the path is absolute, so which one
    # it is does not matter.
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor, follow_symlinks=True)
    return name
