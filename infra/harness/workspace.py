"""A work's own folder, and the files that may leave it as artifacts.

A work of a session gets a folder that no other work has; it goes when the work ends. A file becomes an artifact only if its real path,
links followed, lies in that folder, and it is a plain file of at most `ARTIFACT_BYTES`.
"""

import shutil
import stat
from hashlib import blake2b
from pathlib import Path

from infra.harness.port import ToolRejected

ARTIFACT_BYTES = 50 * 1024 * 1024


def workspace_of(root: Path, session: str, work: str, attempt: int) -> Path:
    """The folder of an attempt at a work; not made yet. Session ids are foreign text, so the name is a hash."""
    name = blake2b(f"{session}\x1f{work}\x1f{attempt}".encode(), digest_size=12).hexdigest()
    return root.absolute() / name


def confined(workspace: Path, path: Path) -> Path:
    """The real path of an artifact.

    Raises:
        ToolRejected: it lies elsewhere, is no plain file, or is too large.
    """
    root = workspace.resolve()
    real = (workspace / path).resolve()
    if not real.is_relative_to(root) or real == root:
        raise ToolRejected(f"{path.name!r} lies outside the workspace")
    try:
        facts = real.lstat()
    except OSError as error:
        raise ToolRejected(f"{path.name!r} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        raise ToolRejected(f"{path.name!r} is no plain file of its own")
    if facts.st_size > ARTIFACT_BYTES:
        raise ToolRejected(
            f"{path.name!r} has {facts.st_size} bytes; at most {ARTIFACT_BYTES} are kept"
        )
    return real


def remove(workspace: Path) -> None:
    shutil.rmtree(workspace, ignore_errors=True)
