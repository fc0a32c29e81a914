"""Copies of a scripted session, cheap enough to walk every sequence of events: its state as bytes, and what tells two states apart.

Values that never change (events, their data, the policy) are kept once and stand in the bytes as numbers, by what they say: so a copy
shares them, and equal states have equal keys, whatever way led to them.
"""

import io
import pickle
from hashlib import blake2b
from types import MethodType
from typing import Any

from pydantic import BaseModel

from schemas.envelope import Event, Pcm
from tests.support.script import Session


class Snapshots:
    """Makes and restores copies; all that belong together come from one of these."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._numbers: dict[Any, int] = {}
        """What a value says → its number."""
        self._known: dict[int, int] = {}
        """Address of a value that is kept → its number."""

    def save(self, session: Session) -> tuple[bytes, bytes]:
        """The session as bytes, and a key that sessions in the same state share."""
        _forget_caches(session)
        state, key = io.BytesIO(), io.BytesIO()
        _Copy(state, self).dump(session)
        _Key(key, self).dump(session)
        return state.getvalue(), blake2b(key.getvalue(), digest_size=16).digest()

    def load(self, state: bytes) -> Any:
        return _Load(io.BytesIO(state), self).load()

    def number(self, value: Any) -> int:
        number = self._known.get(id(value))
        if number is None:
            says = _says(value)
            number = self._numbers.get(says)
            if number is None:
                number = self._numbers[says] = len(self._values)
                self._values.append(value)
                self._known[id(value)] = number
        return number

    def value(self, number: int) -> Any:
        return self._values[number]


def _says(value: Any) -> Any:
    if isinstance(value, Event):
        return (*value[:4], _says(value.data), *value[5:])
    if isinstance(value, BaseModel):
        return type(value).__name__, value.model_dump_json()
    return value


def _forget_caches(session: Session) -> None:
    """What an agenda keeps only while it works, or to be faster."""
    agenda = session.fold._agenda
    agenda._routes = {}
    agenda._awake, agenda._wakes_at = [], 0
    agenda._input, agenda._counts = "", {}
    agenda._decided, agenda._dropped = [], []


class _Copy(pickle.Pickler):
    def __init__(self, file: io.BytesIO, snapshots: Snapshots) -> None:
        super().__init__(file, protocol=5)
        self._snapshots = snapshots

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, BaseModel | Event | Pcm):
            return self._snapshots.number(value)
        return None


class _Key(_Copy):
    """Without the memory of what it has written: equal texts are equal bytes, be they one object or two."""

    def __init__(self, file: io.BytesIO, snapshots: Snapshots) -> None:
        super().__init__(file, snapshots)
        self.fast = True

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, MethodType):
            return "method"  # the one way back up: the fold's own, which the agenda calls
        if isinstance(value, set):
            return "set", sorted(value)
        return super().persistent_id(value)


class _Load(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, snapshots: Snapshots) -> None:
        super().__init__(file)
        self._snapshots = snapshots

    def persistent_load(self, number: Any) -> Any:
        return self._snapshots.value(number)
