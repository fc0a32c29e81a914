"""One Triton server for the flows' tests that need real models."""

from tests.support.triton import recording, triton

__all__ = ["recording", "triton"]
