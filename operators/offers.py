"""Transcripts that a device offers unasked: when they were said, and whether they still belong to the turn before."""

from schemas.transcription import TranscriptOffered

LAG = 200_000
"""µs by which a device's word times may run beyond the end of a turn that they belong to."""


def said_from(data: TranscriptOffered, now: int, since: int) -> int:
    """Where the words began: never before `since`, never in the future, whatever the device's clock says."""
    start = now if data.start_us is None else data.start_us
    return min(max(start, since), now)


def said_until(data: TranscriptOffered, now: int, since: int) -> int:
    return min(max(now if data.end_us is None else data.end_us, since), now)


def is_late(data: TranscriptOffered, turn_end: int, ended_at: int, now: int, lag: int) -> bool:
    """Whether the words were said in the turn that ended at `turn_end` (decided at `ended_at`; -1: there was none).

    By their own times where the device knows them; else what comes within `lag` of the decision is taken for its transcript.
    """
    if ended_at < 0:
        return False
    if data.end_us is not None:
        return data.end_us <= turn_end + LAG
    return now - ended_at <= lag
