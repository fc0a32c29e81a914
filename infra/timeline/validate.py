"""What every timeline refuses, in the same words: places that do not exist, starts beyond the end, keys that are no text."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from infra.timeline.port import Place
from schemas.errors import BadInput, TimelineError
from schemas.record import Lane, Record


class _Log(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    def end(self, lane: Lane = ...) -> dict[int, int]: ...


def check_records(url: str, records: Sequence[Record]) -> None:
    """Refuse a batch before any of it is stored."""
    for index, record in enumerate(records):
        try:
            record.key.encode()
            for name, _value in record.headers:
                name.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"timeline {url}: record {index} of the batch has a key or header name that is not "
                f"valid text ({error.reason})"
            ) from error


def check_start(log: _Log, start: Mapping[Place, int]) -> None:
    """A start beyond the end means that the log is not the one the position was taken from."""
    if not start:
        raise BadInput(f"timeline {log.url}: a reader needs at least one place to read")
    ends = {lane: log.end(lane) for lane in {place.lane for place in start}}
    for place, offset in start.items():
        if not 0 <= place.partition < log.partitions:
            raise BadInput(
                f"timeline {log.url}: there is no partition {place.partition}; it has {log.partitions}"
            )
        end = ends[place.lane][place.partition]
        if not 0 <= offset <= end:
            raise TimelineError(
                f"timeline {log.url}: asked to read partition {place.partition} of the {place.lane} lane "
                f"from offset {offset}, but it ends at {end}; was it deleted and made again since?"
            )
