"""What the tests of effects share: short events, a scripted runner, a desk on a memory log."""

from dataclasses import dataclass, field
from typing import Any

from flows.effects import (
    Effect,
    EffectDesk,
    Produced,
    Result,
    Results,
    wire_type_of,
)
from infra.timeline import Timeline, open_timeline
from schemas.cloudevents import decode, encode, wire_type
from schemas.envelope import Event
from schemas.record import Lane, Record
from schemas.responses import (
    GenerationCompleted,
    GenerationFailed,
    Message,
    ResponseCancelled,
    ResponseRequested,
    ResponseText,
)
from schemas.session import SessionEnded
from schemas.transcription import RequestSuperseded

OUTCOMES = {"response.text": False, "generation.completed": True, "generation.failed": True}


def failed(request: Event, reason: Any, message: str) -> Result:
    return GenerationFailed(response=request.data.response, reason=reason, message=message)


async def nothing(request: Event, prepared: Any) -> Results:
    return
    yield


EFFECT = Effect(nothing, failed, OUTCOMES)


def request(id_: str = "q", session: str = "s", response: str = "r", attempt: int = 1) -> Event:
    data = ResponseRequested(
        response=response,
        epoch=0,
        turn=None,
        messages=(Message(role="user", content="hello"),),
        max_tokens=8,
        temperature=0.0,
        seed=0,
        attempt=attempt,
    )
    return Event("response.requested", session, id_, "conversation", data, 0, "c", response)


def superseded(id_: str = "q", session: str = "s") -> Event:
    data = RequestSuperseded(request=id_, reason="test")
    return Event("request.superseded", session, f"superseded-{id_}", "conversation", data, 0)


def cancelled(response: str = "r", session: str = "s") -> Event:
    data = ResponseCancelled(response=response, epoch=1, reason="test", heard_text="", heard_us=0)
    return Event("response.cancelled", session, f"cancelled-{response}", "conversation", data, 0)


def ended(session: str = "s") -> Event:
    data = SessionEnded(reason="closed", turns=0, responses=0)
    return Event("session.ended", session, f"ended-{session}", "conversation", data, 0)


def text(words: str, response: str = "r") -> ResponseText:
    return ResponseText(response=response, text=words)


def completed(words: str = "hi", response: str = "r") -> GenerationCompleted:
    return GenerationCompleted(response=response, text=words, tokens=1, finish_reason="stop")


@dataclass
class FakeRunner:
    """Notes what it is told; the test says what is produced."""

    running: dict[str, Event] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)

    def submit(self, request: Event, effect: Effect) -> None:
        self.running[request.id] = request
        self.submitted.append(request.id)

    def cancel(self, request: str) -> None:
        self.running.pop(request, None)


class Bench:
    """A desk on a memory timeline."""

    def __init__(self, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or open_timeline("memory://")
        self.runner = FakeRunner()
        self.desk = EffectDesk({"response.requested": EFFECT}, self.runner, "inference")
        held = list(self.timeline.scan(Lane.TIMELINE, 0))
        self.desk.restore(held)
        self.read_to = len(held)
        self.write(self.desk.resume())

    def write(self, records: list[Record]) -> None:
        self.timeline.append(records)

    def log(self, *events: Event) -> None:
        self.write([encode(e) for e in events])

    def read(self, most: int = 10_000) -> None:
        for record in list(self.timeline.scan(Lane.TIMELINE, 0, self.read_to))[:most]:
            self.read_to = record.offset + 1
            self.write(self.desk.read(record))

    def take(self, result: Result, id_: str = "q") -> None:
        self.write(self.desk.take(Produced(id_, result)))

    def outcomes(self) -> list[Event]:
        outcomes = {wire_type(name).encode() for name in OUTCOMES}
        held = self.timeline.scan(Lane.TIMELINE, 0)
        return [decode(r) for r in held if wire_type_of(r.headers) in outcomes]

    def types(self) -> list[str]:
        return [
            f"{e.type} {e.data.reason}" if e.type == "generation.failed" else e.type
            for e in self.outcomes()
        ]
