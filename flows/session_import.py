"""Session files back into a timeline: whole, once, and after an interruption from where it stopped.

A log cannot take back what was appended, and Kafka has no transaction over a whole file. So an import that was killed is mended by
running it again: what is on the timeline already must be the beginning of what the file holds, and only the rest is appended.
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from flows.session_files import Progress, copy, open_file, sessions_in
from infra.timeline.port import Timeline
from schemas.errors import BadInput
from schemas.record import Lane, StoredRecord

Missing = dict[tuple[Lane, str], int]
"""How many of a session's records are there already, for those of which some are missing."""


def import_file(
    path: Path, into: Timeline, progress: Progress | None = None
) -> tuple[list[str], int]:
    """Append what is missing of a session file's records; returns its sessions and the number of records appended.

    Raises:
        BadInput: the file cannot be read, all of it is on the timeline already, or a session of its name that is another.
    """
    # The whole file is read before anything is written, so that damage at its end leaves nothing behind.
    names = sessions_in(path)
    with open_file(path) as source:
        there: Missing = {}
        missing = False
        for name in names:
            for lane in Lane:
                there[lane, name], more = _compare(path, source, into, lane, name)
                missing = missing or more
        if not missing:
            raise BadInput(f"{path}: session {names[0]!r} is on {into.url} already")
        count = 0
        # Media first: a flow that follows the timeline lane finds the audio that its windows name.
        for lane in (Lane.MEDIA, Lane.TIMELINE):
            for p in range(source.partitions):
                count += copy(_rest(source, lane, p, there), into, progress)
    return names, count


def _compare(
    path: Path, source: Timeline, into: Timeline, lane: Lane, name: str
) -> tuple[int, bool]:
    """(how many records are there, whether the file has more). Raises BadInput where they are not the file's first ones."""
    count = 0
    new = source.scan(lane, source.partition_of(name), 0, name)
    old = into.scan(lane, into.partition_of(name), 0, name)
    for a, b in zip_longest(new, old):
        if b is None:
            return count, True
        if a is None or a.headers != b.headers or a.value != b.value:
            raise BadInput(
                f"{path}: session {name!r} is on {into.url} already, and goes another way after {count} records"
            )
        count += 1
    return count, False


def _rest(source: Timeline, lane: Lane, partition: int, there: Missing) -> Iterator[StoredRecord]:
    skip = dict(there)
    for record in source.scan(lane, partition):
        if record.key is None or skip.get((lane, record.key), 0) == 0:
            yield record
        else:
            skip[lane, record.key] -= 1
