"""What `operators.deliver` knows: results that wait, the one delivery that is under way, and who has the floor."""

from dataclasses import dataclass, field

from operators.floor import Floor
from operators.reducer import NEVER
from operators.works import WorkBook
from schemas.policy import Policy


@dataclass(slots=True)
class Ready:
    """A result that waits to be told."""

    work: str
    text: str
    since_us: int
    asked: bool = False
    """The user has asked for it: it does not grow stale and waits for no long silence."""


@dataclass(slots=True)
class Delivery:
    """What the floor was asked for."""

    delivery: str
    results: list[Ready]
    asked_us: int
    response: str | None = None
    started: bool = False
    over: bool = False
    """The response has failed after it was spoken: only an acknowledgement is awaited."""
    speech_us: int = 0
    played_us: int = 0


@dataclass(slots=True)
class DeliverState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    language: str = "en"
    book: WorkBook = field(default_factory=WorkBook)
    floor: Floor = field(default_factory=Floor)
    ready: list[Ready] = field(default_factory=list)
    current: Delivery | None = None
    tries: dict[str, int] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Request → where it came from, until its work is queued or refused."""
    spans: dict[str, str] = field(default_factory=dict)
    """Response that delegated → what: it may have said nothing itself."""
    floors: int = 0
    deliveries: int = 0
    closed: bool = False
