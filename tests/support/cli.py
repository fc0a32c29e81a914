"""The command line, called in this process."""

import pytest

from flows.cli import main


def call(*arguments: str) -> int:
    """Run `venus` with these arguments; returns its exit code."""
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    assert isinstance(done.value.code, int)
    return done.value.code
