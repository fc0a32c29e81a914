"""What would have happened under another policy: the fold with the recorded world answering the decisions that it takes now.

A changed decision has another id and comes at another time, so recorded answers cannot simply be fed again. The recorded world is taken
apart and put together anew:
- The user goes on as recorded: windows, ticks, typed text and the like come at their media times.
- A model's answer goes to the request that corresponds to the recorded one (same kind; of speech, the same sentence of the same
  response; else the nearest in time), as long after it as it was recorded. A request without a counterpart stays unanswered, and
  is counted: the policy's time limits end it.
- The loudspeaker says what it said, as much later or earlier as the response began; once the assistant is paused or stopped
  differently, the loudspeaker's own model (`operators.playout`) goes on.
- "As long after" counts in the session's time at which a thing came, not in the time it carries: a device's clock runs ahead of the
  windows. What has not moved comes in its recorded place.
With nothing changed, exactly the recorded decisions come out, ids and all (a test holds it to that).
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from operators.fold import SessionFold
from operators.playout import Ack, Playouts
from schemas.base import Kind
from schemas.envelope import Event
from schemas.media import PlaybackAck
from schemas.policy import Policy
from schemas.registry import KINDS, PARTIALS, REQUESTS, TERMINALS
from schemas.session import ClockTick

REACH_US = {
    "endpoint": 3_000_000,
    "transcript": 3_000_000,
    "backchannel": 1_000_000,
    "generate": 15_000_000,
    "work": 30_000_000,
}
"""How far apart in media time two requests may be that correspond."""

_TIME = frozenset({"perception.window", "clock.tick", "session.closed"})
_FLOOR = frozenset({"floor.paused", "floor.resumed", "response.cancelled", "response.failed"})
SOURCE = "what-if"
LATER_TICKS = 10
"""Seconds that a session which ended as recorded may take longer to end."""


@dataclass(slots=True)
class _Request:
    event: Event
    answers: list[tuple[int, int, Event]] = field(default_factory=list)
    """(place in the recording, delay, outcome as it came)."""
    used: bool = False

    @property
    def at(self) -> int:
        return self.event.mediatime or 0

    @property
    def answered(self) -> bool:
        return any(e.type in TERMINALS for _, _, e in self.answers)


@dataclass(slots=True)
class _Played:
    """A recorded response: when it began, what the loudspeaker said of it, what became of its floor."""

    started: int | None = None
    acks: list[tuple[int, int, Event]] = field(default_factory=list)
    """(place in the recording, session time at which it came, acknowledgement as it came)."""
    floor: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """One session, taken apart."""

    session: str
    inputs: list[Event] = field(default_factory=list)
    """What is fed again as it was, with its place."""
    places: list[int] = field(default_factory=list)
    requests: dict[str, list[_Request]] = field(default_factory=dict)
    prepared: list[Event] = field(default_factory=list)
    played: dict[str, _Played] = field(default_factory=dict)
    decisions: list[Event] = field(default_factory=list)
    """As recorded."""
    asap: bool = False
    ended: bool = False


def take_apart(session: str, events: Iterable[Event]) -> Recording:
    """Fold the recorded session and note when each thing came."""
    rec = Recording(session)
    seen: set[str] = set()

    def recorded(event: Event) -> None:
        if event.id not in seen:
            seen.add(event.id)
            rec.decisions.append(event)

    fold = SessionFold(session, on_recorded=recorded)
    by_id: dict[str, _Request] = {}
    place = 0
    raw: dict[tuple[str, str], Event] = {}
    """Inputs that wait in the fold, as they came: it moves the close of an asap session, and would do so again."""
    arrived: list[Event] = []
    for event in events:
        if KINDS[event.type] is not Kind.DECISION:
            raw.setdefault((event.source, event.id), event)
        steps = fold.feed(event)
        if _user(event) and all(s.fate == "applied" or s.input is not event for s in steps):
            arrived.append(event)
        for step in steps:
            if step.fate in ("late", "forged"):
                raw.pop((step.input.source, step.input.id), None)
            if step.fate != "applied":
                continue
            place += 1
            came = raw.pop((step.input.source, step.input.id), step.input)
            _note(rec, by_id, place, fold.now, came)
            for decision in step.decisions:
                if decision.type in REQUESTS:
                    request = by_id[decision.id] = _Request(decision)
                    rec.requests.setdefault(REQUESTS[decision.type], []).append(request)
                elif decision.type == "response.prepared":
                    rec.prepared.append(decision)
                elif decision.type == "response.started":
                    rec.played.setdefault(decision.data.response, _Played()).started = (
                        decision.mediatime or 0
                    )
                elif decision.type in _FLOOR:
                    floor = rec.played.setdefault(decision.data.response, _Played()).floor
                    floor.append((place, decision.type))
    rec.ended = fold.ended
    rec.asap = fold.config is not None and fold.config.pacing == "asap"
    if rec.asap:
        # The fold orders them, and time has come as far as what waits in it says.
        rec.inputs, rec.places = arrived, list(range(len(arrived)))
        # An answer that the session's end overtook has come: without it the fold would wait for it.
        for answer in (e for e in raw.values() if e.type in TERMINALS or e.type in PARTIALS):
            _note(rec, by_id, place + 1, fold.now, answer)
    return rec


def _user(event: Event) -> bool:
    """Whether it comes whatever is decided."""
    return (
        KINDS[event.type] is not Kind.DECISION
        and event.type not in TERMINALS
        and event.type not in PARTIALS
        and event.type != "playback.ack"
    )


def _note(rec: Recording, by_id: dict[str, _Request], place: int, now: int, event: Event) -> None:
    if event.type in TERMINALS or event.type in PARTIALS:
        request = by_id.get(event.cause or "")
        if request is not None:
            request.answers.append((place, now - request.at, event))
    elif event.type == "playback.ack":
        rec.played.setdefault(event.data.response, _Played()).acks.append((place, now, event))
    elif _user(event):
        rec.inputs.append(event)
        rec.places.append(place)


class _World:
    """See the module."""

    def __init__(self, rec: Recording, override: Callable[[Policy], Policy]) -> None:
        self.rec = rec
        self.fold = SessionFold(rec.session, override=override)
        self.decisions: list[Event] = []
        self.unanswered: list[Event] = []
        self._heap: list[tuple[int, int, int, Event]] = []
        self._count = 0
        self._acks, self._as_recorded = 0, True
        self._twin: dict[str, str] = {}
        """Response → the recorded one that it corresponds to."""
        self._prepared = list(rec.prepared)
        """Recorded ones that none corresponds to yet."""
        self._floor: dict[str, list[str]] = {}
        self._playouts = Playouts()
        self._modelled: set[str] = set()
        """Responses whose loudspeaker is the model."""
        self._next_place = 0
        self._horizon = 0
        """How far the user has been heard: beyond it, the loudspeaker has not played yet."""

    def run(self) -> None:
        for place, event in zip(self.rec.places, self.rec.inputs, strict=True):
            self._next_place = place
            self._settle()
            self._apply(event)
            if event.type in _TIME:
                self._horizon = max(self._horizon, event.mediatime or 0)
        self._next_place += 1 << 60
        self._settle()
        for _ in range(LATER_TICKS if self.rec.ended else 0):
            if not self.fold.ended:
                # What is open now may need longer than the recorded session did.
                self._horizon = max(self._horizon, self.fold.now) + 1_000_000
                self._apply(
                    Event(
                        "clock.tick",
                        self.rec.session,
                        f"{SOURCE}-tick-{self._horizon}",
                        f"perception/{SOURCE}",
                        ClockTick(),
                        self._horizon,
                    )
                )
                self._settle()

    def _apply(self, event: Event) -> None:
        steps = self.fold.feed(event)
        for step in steps:
            if step.fate != "applied":
                continue
            for seen in (step.input, *step.decisions):
                if seen.type in Playouts.EVENTS:
                    self._playouts.follow(seen, seen.mediatime or self.fold.now)
            done = len(self.decisions)
            self.decisions.extend(step.decisions)
            self._as_recorded &= self.rec.decisions[done : len(self.decisions)] == [*step.decisions]
            for decision in step.decisions:
                self._decided(decision)

    def _settle(self) -> None:
        """Feed what is due before the next recorded input."""
        while not self.fold.ended:
            if self._acknowledge_by_model():
                continue
            if not self._heap:
                return
            due, place, _, what = self._heap[0]
            if not self.rec.asap and (
                due > self.fold.now or (due == self.fold.now and place > self._next_place)
            ):
                return
            heapq.heappop(self._heap)
            if what.type == "playback.ack":
                self._recorded_ack(what, place)
            else:
                self._apply(what)

    def _push(self, due: int, place: int, what: Event) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due, place, self._count, what))

    # --- decisions

    def _decided(self, event: Event) -> None:
        if event.type in REQUESTS:
            self._answer(event)
        elif event.type == "response.prepared":
            self._recognise(event)
        elif event.type == "response.started":
            twin = self.rec.played.get(self._twin.get(event.data.response, ""))
            if self.rec.asap or twin is None or twin.started is None:
                self._modelled.add(event.data.response)
                return
            shift = (event.mediatime or 0) - twin.started
            for place, came, ack in twin.acks:
                data = ack.data.model_copy(update={"response": event.data.response})
                self._push(came + shift, place, _later(ack, shift)._replace(data=data))
        elif event.type in _FLOOR:
            self._floor.setdefault(event.data.response, []).append(event.type)
            if self._floor_differs(event.data.response):
                self._modelled.add(event.data.response)

    def _recognise(self, event: Event) -> None:
        """Find the recorded response that says the same without a model's having been asked."""
        same = [e for e in self._prepared if e.data.text == event.data.text]
        if same:
            at = event.mediatime or 0
            twin = min(same, key=lambda e: (e.id != event.id, abs((e.mediatime or 0) - at)))
            self._prepared.remove(twin)
            self._twin[event.data.response] = twin.data.response

    def _answer(self, event: Event) -> None:
        """Send the recorded answers of the corresponding request."""
        kind = REQUESTS[event.type]
        request = self._counterpart(event, kind)
        if request is None:
            self.unanswered.append(event)
            return
        request.used = True
        if kind == "generate":
            self._twin.setdefault(event.data.response, request.event.data.response)
        changed = {
            n: getattr(event.data, n)
            for n in ("turn", "response", "work")
            if n in type(event.data).model_fields
        }
        for place, delay, answer in request.answers:
            fields = getattr(type(answer.data), "model_fields", {})
            renamed = {n: v for n, v in changed.items() if n in fields and v is not None}
            data = answer.data.model_copy(update=renamed) if renamed else answer.data
            due = (event.mediatime or 0) + (0 if self.rec.asap else delay)
            correlation = event.correlation if answer.correlation is not None else None
            sent = _later(answer, (event.mediatime or 0) - request.at)
            self._push(
                due, place, sent._replace(cause=event.id, data=data, correlation=correlation)
            )

    def _counterpart(self, event: Event, kind: str) -> _Request | None:
        at = event.mediatime or 0
        free = [r for r in self.rec.requests.get(kind, ()) if not r.used]
        if kind == "speak":
            twin = self._twin.get(event.data.response)
            free = [
                r
                for r in free
                if r.event.data.response == twin
                and (r.event.data.index, r.event.data.text) == (event.data.index, event.data.text)
            ]
            return next((r for r in free if r.event.id == event.id), free[0] if free else None)
        reach = REACH_US.get(kind, 10_000_000)
        near = [r for r in free if abs(r.at - at) <= reach]
        if not near:
            return None
        exact = [r for r in near if r.event.id == event.id]
        return exact[0] if exact else min(near, key=lambda r: (not r.answered, abs(r.at - at)))

    # --- the loudspeaker

    def _recorded_ack(self, ack: Event, place: int) -> None:
        """What the recorded loudspeaker said, while the floor's history is the recorded one."""
        response = ack.data.response
        if response in self._modelled:
            return
        twin = self.rec.played[self._twin[response]]
        if [type_ for at, type_ in twin.floor if at < place] != self._floor.get(response, []):
            self._modelled.add(response)
            return
        self._say(ack)

    def _acknowledge_by_model(self) -> bool:
        """The model's next acknowledgement, if it is due; returns whether there was one."""
        found = self._playouts.next_ack(self._modelled)
        if found is None:
            return False
        response, ack = found
        config = self.fold.config
        if config is None or config.playback != "acknowledged":
            return False
        if ack.at_us > (self._horizon if self.rec.asap else self.fold.now):
            return False
        data = PlaybackAck(response=response, played_us=ack.played_us, state=ack.state)
        twin = self.rec.played.get(self._twin.get(response, ""))
        acks = None if twin is None or not self.rec.asap else twin.acks
        quiet = all((e.mediatime or 0) < ack.at_us for _, _, e in acks or ())
        if self._as_recorded and acks is not None and quiet:
            return False  # the recording's device said it when all was over, or never
        self._say(
            Event(data.TYPE, self.rec.session, self._name(data, ack.at_us), SOURCE, data, ack.at_us)
        )
        return True

    def _name(self, ack: PlaybackAck, at: int) -> str:
        """The id of the recorded acknowledgement that says the same: what is decided on it keeps its id as well."""
        twin = self.rec.played.get(self._twin.get(ack.response, ""))
        for _, _, event in () if twin is None else twin.acks:
            said = (event.data.played_us, event.data.state, event.mediatime)
            if said == (ack.played_us, ack.state, at):
                return event.id
        return f"{SOURCE}-{self._acks + 1}"

    def _floor_differs(self, response: str) -> bool:
        """Whether something was done to this response that the recorded one did not meet, in this order."""
        twin = self.rec.played.get(self._twin.get(response, ""))
        recorded = [] if twin is None else [type_ for _, type_ in twin.floor]
        mine = self._floor.get(response, [])
        return recorded[: len(mine)] != mine

    def _say(self, ack: Event) -> None:
        self._acks += 1
        data: PlaybackAck = ack.data
        at = self.fold.now if ack.mediatime is None else ack.mediatime
        self._playouts.acknowledge(data.response, Ack(at, data.played_us, data.state))
        self._apply(ack._replace(source=SOURCE, sequence=self._acks))


def _later(event: Event, shift: int) -> Event:
    """The event with the time that it carries moved; without one it gets the session's when it comes."""
    at = event.mediatime
    return event if at is None else event._replace(mediatime=at + shift)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would have been decided, and which requests the recording has no answer for."""

    decisions: list[Event]
    unanswered: list[Event]


def under(rec: Recording, override: Callable[[Policy], Policy]) -> Outcome:
    """The session under another policy. `rec` is used up: take the session apart anew for the next."""
    world = _World(rec, override)
    world.run()
    return Outcome(world.decisions, world.unanswered)
