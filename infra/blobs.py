"""A content-addressed store for what is too big for the log: artifacts, uploads. Any fsspec URL; default a local folder.

A blob is known by `sha256:…` of its bytes (the log's `dataref`). Putting the same bytes twice stores them once; a name can only be
made of the hash, so no caller chooses a path. Reading checks the hash.
"""

import hashlib
from typing import Any

import fsspec  # type: ignore[import-untyped]

from schemas.errors import BadInput, VenusError

PREFIX = "sha256:"


class BlobError(VenusError):
    """A blob is missing, or is not what its name says."""


class BlobStore:
    """Blobs under a URL (`file:///…`, a plain path, `memory://…`, `s3://…`)."""

    def __init__(self, url: str) -> None:
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInput(f"blob store {url}: {error}") from error
        self._fs: Any = fs
        self._root = str(root).rstrip("/")

    def put(self, data: bytes) -> str:
        """Store bytes; returns their reference."""
        digest = hashlib.sha256(data).hexdigest()
        place = self._place(digest)
        if not self._fs.exists(place):
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            # Under a name of its own first: a reader never sees half a blob under its hash.
            part = f"{place}.part"
            with self._fs.open(part, "wb") as file:
                file.write(data)
            self._fs.mv(part, place)
        return PREFIX + digest

    def get(self, reference: str) -> bytes:
        """The bytes of a reference.

        Raises:
            BlobError: there are none, or others than it says.
        """
        digest = reference.removeprefix(PREFIX)
        if (
            not reference.startswith(PREFIX)
            or len(digest) != 64
            or not set(digest) <= set("0123456789abcdef")
        ):
            raise BlobError(f"{reference[:80]!r} is no reference; they look like sha256:…")
        try:
            with self._fs.open(self._place(digest), "rb") as file:
                data: bytes = file.read()
        except FileNotFoundError as error:
            raise BlobError(f"there is no blob {reference}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobError(f"the blob {reference} is damaged")
        return data

    def _place(self, digest: str) -> str:
        return f"{self._root}/{digest[:2]}/{digest}"
