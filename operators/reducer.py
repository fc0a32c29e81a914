"""What an operator is: a named, versioned, pure reducer of a session's events.

Rules (laws 2 and 3):
- A step sees the state and one event, and returns decisions. The state is its own and may be changed in place; nothing else may
  be read: no clock, no random source, no file, no global. The policy comes with `session.configured` like any other event.
- Time is the argument `now`: the session's media time in µs. `advance` is called whenever it moves on (every hop of 32 ms, every
  tick) and the state's `alarm` has been reached; an operator that wants every hop leaves its alarm at 0.
- An operator that wants every hop may be a `Skimmer` too: most windows change nothing, and it takes whole runs of those in one step.
- Operators know each other only by the events they decide. Their fixed order is `operators.pipeline.OPERATORS`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from schemas.base import Data
from schemas.envelope import Event
from schemas.perception import PerceptionWindow

NEVER = 1 << 62
"""An alarm that does not ring."""

EVERY_HOP = 0
"""An alarm that rings at every step of time."""


class Hop(NamedTuple):
    """512 samples of the session's user channel; `probability` of speech is None where the model did not answer."""

    start_us: int
    end_us: int
    probability: float | None
    level_db: float
    echo: float | None
    epoch: int
    end_sample: int
    """Samples at 16 kHz from the epoch's start to this hop's end."""


class Decision(NamedTuple):
    """What an operator decides: the data of a decision type, and what it belongs to (a turn, a response)."""

    data: Data
    correlation: str | None = None


Decisions = Sequence[Decision]
NOTHING: Decisions = ()

Out = list[Decision]
"""The decisions of a step while they are being taken."""


class OperatorFault(Exception):
    """An operator has raised an error (the cause of this one) while it took `event`."""

    def __init__(self, operator: str, event: Event) -> None:
        super().__init__(operator, event)
        self.operator = operator
        self.event = event


class OperatorState(Protocol):
    """Any state; `alarm` is the media time from which `advance` is wanted."""

    alarm: int


class Operator(Protocol):
    """A pure reducer. `name` goes into the ids of its decisions and never changes; `version` rises when its decisions do."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def handles(self) -> frozenset[str]:
        """The event types that `step` is given."""
        ...

    def initial(self, session: str) -> Any:
        """The state before the first event."""
        ...

    def step(self, state: Any, event: Event, now: int) -> Decisions:
        """Work off one event of a type in `handles`."""
        ...

    def advance(self, state: Any, now: int, hop: Hop | None) -> Decisions:
        """Media time has reached `now`; `hop` is what was heard in between, None where there was no media."""
        ...


@runtime_checkable
class Skimmer(Protocol):
    """An operator that can take whole windows at once where nothing in them could be decided.

    It must come to the very state that `advance`, called for each hop, comes to; where it cannot be sure, it says no.
    """

    def skims(self, state: Any, windows: Sequence[PerceptionWindow], now: int) -> int:
        """In how many of the windows, from the first on, `advance` would decide nothing at any hop; `now`: the media time before them."""
        ...

    def skim(self, state: Any, windows: Sequence[PerceptionWindow]) -> None:
        """Take the windows, of which there is one at least; only where every operator that is awake skims them."""
        ...
