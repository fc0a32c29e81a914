"""The operators of a conversation, in the one order in which every event is offered to them (law 3)."""

from operators.capture import Capture
from operators.deliver import Deliver
from operators.dispatch import Dispatch
from operators.idle import Idle
from operators.interrupt import Interrupt
from operators.lifecycle import Lifecycle
from operators.reducer import Operator
from operators.respond import Respond
from operators.say import Say
from operators.turn import Turn

OPERATORS: tuple[Operator, ...] = (
    Turn(),
    Interrupt(),
    Respond(),
    Capture(),
    Dispatch(),
    Deliver(),
    Say(),
    Idle(),
    Lifecycle(),
)


def operator_versions() -> dict[str, int]:
    """Name → version, as recorded in `session.configured`."""
    return {operator.name: operator.version for operator in OPERATORS}
