"""Fixtures of the model tests; the code is shared with other folders."""

from tests.support.triton import recording, triton

__all__ = ["recording", "triton"]
