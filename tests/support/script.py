"""Scripted sessions live in `flows.testing`, where users of the pytest plugin find them too."""

from flows.testing.script import RATE, Answer, Session

__all__ = ["RATE", "Answer", "Session"]
