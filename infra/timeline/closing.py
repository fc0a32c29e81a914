"""What every timeline does about being closed."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from schemas.errors import TimelineError


class Closing(ABC):
    """A timeline that is used as a context manager, and refuses to be used once it is closed."""

    _closed = False

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def close(self) -> None: ...

    def _check_open(self) -> None:
        if self._closed:
            raise TimelineError(f"timeline {self.url} is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
