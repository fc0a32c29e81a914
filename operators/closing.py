"""When all that was said before a close has been heard: in a live session the last windows come after it."""

from schemas.base import WINDOW_US

CLOSED_WAIT = 500_000
"""Time after the close by which its last windows have come, or will not."""


def media_over(closed_at: int | None, heard_until: int, now: int) -> bool:
    """Whether the sound up to the close has been heard, or nothing more is waited for. Times are media µs."""
    return closed_at is not None and (
        heard_until + 2 * WINDOW_US >= closed_at or now >= closed_at + CLOSED_WAIT
    )
