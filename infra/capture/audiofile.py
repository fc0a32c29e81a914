"""Audio files as a microphone: any format that libsndfile reads (wav, flac, mp3, ogg), in chunks of an exact length.

Chunk boundaries are computed from the beginning of the file, so that chunks of 21.3 ms do not drift. Some truncated files look whole to
libsndfile (it trusts the file's size more than a wav's header); those are recognised here, so that nobody takes half a file for all of it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import soundfile
from numpy.typing import NDArray

from schemas.cloudevents import MAX_PCM_RATE, MIN_PCM_RATE
from schemas.envelope import Pcm
from schemas.errors import BadInput

OPEN_END = 0x7FFF_0000
"""A wav's length from here on means that its writer could not know it (a pipe)."""
_SHORTER = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
PIECE = 1024
"""Samples that are read at once."""
_LARGEST_PAGE = 27 + 255 + 255 * 255


class AudioFile:
    """An open file. `rate` in Hz, `channels` 1 or 2, `samples` per channel as the file says.

    Raises:
        BadInput: it is not there, no audio, empty, has more than two channels, or a rate that nobody can use.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise BadInput(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        if not os.access(path, os.R_OK):
            raise BadInput(f"{path}: this user may not read it")
        if path.suffix.lower() == ".mp3" and not _may_be_mp3(path):
            raise BadInput(
                _no_audio(path, "there is no MPEG audio in it")
            )  # mpg123 is loud about it
        try:
            self._file = soundfile.SoundFile(path)
        except soundfile.LibsndfileError as error:
            why = error.error_string.strip().rstrip(".")
            # What libsndfile says of a file that it takes for mp3 by its name, whatever is wrong with it.
            why = "no audio was found in it" if "does not exist" in why else why
            raise BadInput(_no_audio(path, why)) from None
        self.rate: int = self._file.samplerate
        self.channels: int = self._file.channels
        self.samples: int = self._file.frames
        if self.channels > 2:
            self._file.close()
            raise BadInput(f"{path}: {self.channels} channels; mix it down to one or two first")
        if not MIN_PCM_RATE <= self.rate <= MAX_PCM_RATE:
            self._file.close()
            raise BadInput(
                f"{path}: {self.rate} samples a second; from {MIN_PCM_RATE} to {MAX_PCM_RATE} can be used"
            )
        if self.samples == 0:
            self._file.close()
            raise BadInput(f"{path}: there is no audio in it")

    @property
    def length_us(self) -> int:
        return self.samples * 1_000_000 // self.rate

    def chunks(self, chunk_ms: float) -> Iterator[Pcm]:
        """The audio from the beginning, `chunk_ms` at a time (0: all in one piece); the last chunk may be shorter.

        Raises:
            BadInput: the file ends before the length that it promises, or is damaged; what could be read has been yielded.
        """
        done = index = 0
        while True:
            index += 1
            until = round(index * chunk_ms * self.rate / 1000) if chunk_ms else self.samples
            if until <= done:
                continue  # less than a sample
            block, damage = self._read(until - done)
            if len(block):
                done += len(block)
                yield Pcm(self.rate, self.channels, block.tobytes())
            if damage is not None:
                raise self._cut(done, damage)
            if len(block) == 0 or done >= self.samples:
                break
        if done < self.samples:
            raise self._cut(done, "the file ends there")
        missing = self._missing()
        if missing is not None:
            raise self._cut(done, missing)

    def _read(self, wanted: int) -> tuple[NDArray[np.int16], str | None]:
        """That many samples, fewer at the end or before damage; and the damage. In pieces: libsndfile gives nothing of a damaged one."""
        pieces, had, damage = [np.empty((0, self.channels), np.int16)], 0, None
        while had < wanted:
            try:
                piece = self._file.read(min(PIECE, wanted - had), dtype="int16", always_2d=True)
            except soundfile.LibsndfileError as error:
                damage = error.error_string
                break
            if len(piece) == 0:
                break
            pieces.append(piece)
            had += len(piece)
        return np.concatenate(pieces), damage

    def _missing(self) -> str | None:
        """What is not there of a file of which libsndfile has read all."""
        shorter = _SHORTER.search(self._file.extra_info)
        if shorter is not None and int(shorter[2]) < int(shorter[1]) < OPEN_END:
            promised = self.samples * int(shorter[1]) / max(1, int(shorter[2]))
            return f"its header promises {promised / self.rate:.2f} s"
        if self._file.format == "OGG" and not _ends_as_ogg(self.path):
            return "the end of the stream is missing"
        return None

    def _cut(self, done: int, why: str) -> BadInput:
        of = f" of {self.samples / self.rate:.2f}" if done < self.samples else ""
        used = "what came before was used" if done else "nothing of it could be used"
        return BadInput(
            f"{self.path}: damaged or truncated after {done / self.rate:.2f}{of} s "
            f"({why.strip().rstrip('.')}); {used}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def _no_audio(path: Path, why: str) -> str:
    return f"{path}: not a readable audio file ({why}); wav, flac, mp3 and ogg are"


def _may_be_mp3(path: Path) -> bool:
    """Whether a file begins with a tag or holds something like the head of a frame: text does not."""
    with path.open("rb") as file:
        head = file.read(65536)
    frames = (i for i in range(len(head) - 1) if head[i] == 0xFF and head[i + 1] & 0xE0 == 0xE0)
    return head.startswith((b"ID3", b"RIFF")) or next(frames, None) is not None


def _ends_as_ogg(path: Path) -> bool:
    """Whether the last page is complete and says that it is the last."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LARGEST_PAGE))
        tail = file.read()
    at = tail.rfind(b"OggS")
    if at < 0 or len(tail) < at + 27:
        return False
    laces = tail[at + 27 : at + 27 + tail[at + 26]]
    complete = len(tail) >= at + 27 + tail[at + 26] + sum(laces)
    return complete and bool(tail[at + 5] & 4)
