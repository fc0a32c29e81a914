"""Errors that a person reads: one line that says what is wrong, where, and how to mend it.

Every error of ours derives from `VenusError`; the command line prints its text and exits with 2. A subclass that knows
that trying again makes sense sets `retryable`.
"""


class VenusError(Exception):
    """Base of all errors of ours; `str(error)` is one clear line."""

    retryable = False


class BadInput(VenusError):
    """Something handed to us cannot be used: a file, an argument, a setting."""


class BadRecord(VenusError):
    """A record of the log cannot be understood; it becomes `event.rejected` and the flow goes on."""


class TimelineError(VenusError):
    """The log itself cannot be used: unreachable, full, corrupt, or set up differently."""


class TimelineUnavailable(TimelineError):
    """The log cannot be reached now; trying again makes sense."""

    retryable = True


class Divergence(VenusError):
    """A recorded decision differs from the one that was derived from the same inputs (laws 11 and 12)."""
