"""Operators that fail, put into the place of ours. To be used with the fixture `failing_operators`."""

from typing import Any

import pytest

from operators import fold as folding
from operators.capture import Capture
from operators.fold import SessionFold
from operators.reducer import Decisions
from schemas.envelope import Event

POISON = "what is the poison"


class Poisoned(Capture):
    """It cannot bear one sentence."""

    def step(self, state: Any, event: Event, now: int) -> Decisions:
        if event.type == "turn.ended" and event.data.text == POISON:
            raise ZeroDivisionError(f"object at {id(event):#x}")
        return super().step(state, event, now)


def with_operator(monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
    """Let `kind` take the place of the operator that it is derived from."""
    operators = tuple(kind() if issubclass(kind, type(o)) else o for o in folding.OPERATORS)
    monkeypatch.setattr(SessionFold.__init__, "__defaults__", (operators, None, None))
