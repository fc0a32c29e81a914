"""Audio files as a microphone: any format that libsndfile reads (wav, flac, mp3, ogg), in chunks of an exact length.

Chunk boundaries are computed from the beginning of the file, so that chunks of 21.3 ms do not drift.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import soundfile

from schemas.envelope import Pcm
from schemas.errors import BadInput


class AudioFile:
    """An open file. `rate` in Hz, `channels` 1 or 2, `samples` per channel as the file says.

    Raises:
        BadInput: it is not there, no audio, empty, or has more than two channels.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise BadInput(f"{path}: no such file")
        try:
            self._file = soundfile.SoundFile(path)
        except soundfile.LibsndfileError as error:
            raise BadInput(
                f"{path}: not a readable audio file ({error.error_string.strip().rstrip('.')}); wav, flac, mp3 and ogg are"
            ) from None
        self.rate: int = self._file.samplerate
        self.channels: int = self._file.channels
        self.samples: int = self._file.frames
        if self.channels > 2:
            self._file.close()
            raise BadInput(f"{path}: {self.channels} channels; mix it down to one or two first")
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
            try:
                block = self._file.read(until - done, dtype="int16", always_2d=True)
            except soundfile.LibsndfileError as error:
                raise self._cut(done, error.error_string) from None
            if len(block):
                done += len(block)
                yield Pcm(self.rate, self.channels, block.tobytes())
            if len(block) == 0 or done >= self.samples:
                break
        if done < self.samples:
            raise self._cut(done, "the file ends there")

    def _cut(self, done: int, why: str) -> BadInput:
        return BadInput(
            f"{self.path}: damaged or truncated after {done / self.rate:.2f} of {self.samples / self.rate:.2f} s "
            f"({why.strip().rstrip('.')}); what came before was used"
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
