"""What would have happened under another policy: the fold with the recorded world answering the decisions that it takes now.

As long as what is decided is what was decided on the recorded world, that world goes on as it came, record by record. With nothing
changed, exactly the recorded decisions come out, ids and all. From the first other decision on, ids and times are others, so
recorded answers cannot simply be fed again, and the rest of the recorded world is put together anew:
- The user goes on as recorded: windows, ticks, typed text and the like come at their media times.
- A model's answer goes to the request that corresponds to the recorded one (same kind; of speech, the same sentence of the same
  response; else the nearest in time), as long after it as it was recorded. A request without a counterpart stays unanswered, and
  is counted: the policy's time limits end it.
- The loudspeaker says what it said, as much later or earlier as the response began; once the assistant is paused or stopped
  differently, the loudspeaker's own model (`operators.playout`) goes on.
- "As long after" counts in the session's time at which a thing came, not in the time it carries: a device's clock runs ahead of the
  windows. What has not moved comes in its recorded place.
"""

import heapq
from bisect import bisect_right
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
    answers: list[tuple[int, int]] = field(default_factory=list)
    """(place in the recording, delay) of each outcome."""
    answered: bool = False
    """Whether the last of them has come."""

    @property
    def at(self) -> int:
        return self.event.mediatime or 0


@dataclass(slots=True)
class _Played:
    """A recorded response: when it began, what the loudspeaker said of it, what became of its floor."""

    started: int | None = None
    acks: list[tuple[int, int]] = field(default_factory=list)
    """(place in the recording, session time at which it came) of each acknowledgement."""
    floor: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Recording:
    """One session, taken apart."""

    session: str
    world: list[Event] = field(default_factory=list)
    """All that came and was not decided, by place. Who puts something else in a place changes the recorded world."""
    decided: list[tuple[Event, ...]] = field(default_factory=list)
    """What was decided on each, under the recorded policy."""
    user: list[int] = field(default_factory=list)
    """The places of what comes whatever is decided."""
    times: dict[int, int] = field(default_factory=dict)
    """When those of them came that carry no time, in an asap session."""
    requests: dict[str, list[_Request]] = field(default_factory=dict)
    prepared: list[Event] = field(default_factory=list)
    played: dict[str, _Played] = field(default_factory=dict)
    decisions: list[Event] = field(default_factory=list)
    """As recorded."""
    configured: bool = False
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
    for event in events:
        before = fold.now
        steps = fold.feed(event)
        if KINDS[event.type] is Kind.DECISION:
            continue
        place = len(rec.world)
        rec.world.append(event)
        decided = tuple(decision for step in steps for decision in step.decisions)
        rec.decided.append(decided)
        # An answer that the session's end overtook has come: without it an asap session would wait for it.
        answer = event.type in TERMINALS or event.type in PARTIALS
        if (answer and fold.ended) or not any(
            s.input is event and s.fate != "applied" for s in steps
        ):
            _note(rec, by_id, place, fold.now, event)
        rec.asap = fold.config is not None and fold.config.pacing == "asap"
        if rec.asap and event.mediatime is None and place in rec.user[-1:]:
            rec.times[place] = before
        for decision in decided:
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
    # What a log that was cut off has not come to say follows from what came.
    all_decided = [decision for decided in rec.decided for decision in decided]
    if [d.id for d in rec.decisions] == [d.id for d in all_decided[: len(rec.decisions)]]:
        rec.decisions += all_decided[len(rec.decisions) :]
    rec.ended, rec.configured = fold.ended, fold.config is not None
    return rec


def _note(rec: Recording, by_id: dict[str, _Request], place: int, now: int, event: Event) -> None:
    if event.type in TERMINALS or event.type in PARTIALS:
        request = by_id.get(event.cause or "")
        if request is not None:
            request.answers.append((place, now - request.at))
            request.answered |= event.type in TERMINALS
    elif event.type == "playback.ack":
        rec.played.setdefault(event.data.response, _Played()).acks.append((place, now))
    else:
        rec.user.append(place)


class _World:
    """See the module."""

    def __init__(self, rec: Recording, override: Callable[[Policy], Policy]) -> None:
        self.rec = rec
        self.fold = SessionFold(rec.session, override=override)
        self.decisions: list[Event] = []
        self.unanswered: list[Event] = []
        self._heap: list[tuple[int, int, int, Event]] = []
        self._count = 0
        self._acks = 0
        self._used: set[str] = set()  # recorded requests that have found their counterpart
        self._twin: dict[str, str] = {}
        """Response → the recorded one that it corresponds to."""
        self._prepared = list(rec.prepared)
        """Recorded ones that none corresponds to yet."""
        self._floor: dict[str, list[str]] = {}
        self._playouts = Playouts()
        self._modelled: set[str] = set()
        """Responses whose loudspeaker is the model."""
        self._place = 0  # in the recording
        self._horizon = 0
        """How far the user has been heard: beyond it, the loudspeaker has not played yet."""

    def run(self) -> None:
        if self._as_recorded():
            return
        # What has come by now has come; only the rest is put together anew.
        self._heap = [due for due in self._heap if due[1] > self._place]
        heapq.heapify(self._heap)
        rest = self.rec.user[bisect_right(self.rec.user, self._place) :]
        # Answers come at once in an asap session, and time would run ahead of what comes later and carries none; the fold keeps it.
        for place in (p for p in rest if p in self.rec.times):
            self._come(
                self.rec.world[place]._replace(mediatime=self.rec.times[place], sequence=None)
            )
        for place in (p for p in rest if p not in self.rec.times):
            self._place = place
            self._settle()
            self._come(self.rec.world[place])
        self._place = len(self.rec.world)
        self._settle()
        for _ in range(LATER_TICKS if self.rec.ended else 0):
            if not self.fold.ended:
                # What is open now may need longer than the recorded session did.
                at = max(self._horizon, self.fold.now) + 1_000_000
                name, source = f"{SOURCE}-tick-{at}", f"perception/{SOURCE}"
                self._come(Event("clock.tick", self.rec.session, name, source, ClockTick(), at))
                self._settle()

    def _as_recorded(self) -> bool:
        """Go on as it came until something else is decided; returns whether nothing is."""
        for place, event in enumerate(self.rec.world):
            self._place = place
            if event.type == "playback.ack":
                self._acknowledged(event)
            done = len(self.decisions)
            self._come(event)
            if tuple(self.decisions[done:]) != self.rec.decided[place]:
                return False
        return True

    def _come(self, event: Event) -> None:
        if event.type in _TIME:
            self._horizon = max(self._horizon, event.mediatime or 0)
        for step in self.fold.feed(event):
            if step.fate != "applied":
                continue
            for seen in (step.input, *step.decisions):
                if seen.type in Playouts.EVENTS:
                    self._playouts.follow(seen, seen.mediatime or self.fold.now)
            self.decisions.extend(step.decisions)
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
                due > self.fold.now or (due == self.fold.now and place > self._place)
            ):
                return
            heapq.heappop(self._heap)
            if what.type == "playback.ack":
                self._recorded_ack(what, place)
            else:
                self._come(what)

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
            for place, came in twin.acks:
                ack = self.rec.world[place]
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
        self._used.add(request.event.id)
        if kind == "generate":
            self._twin.setdefault(event.data.response, request.event.data.response)
        names = [n for n in ("turn", "response", "work") if n in type(event.data).model_fields]
        changed = {n: getattr(event.data, n) for n in names}
        for place, delay in request.answers:
            answer = self.rec.world[place]
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
        free = [r for r in self.rec.requests.get(kind, ()) if r.event.id not in self._used]
        if kind == "speak":
            twin = self._twin.get(event.data.response)
            said = (twin, event.data.index, event.data.text)
            same = (
                r
                for r in free
                if (r.event.data.response, r.event.data.index, r.event.data.text) == said
            )
            return min(same, key=lambda r: r.event.id != event.id, default=None)
        reach = REACH_US.get(kind, 10_000_000)
        near = [r for r in free if abs(r.at - at) <= reach]
        return min(
            near, key=lambda r: (r.event.id != event.id, -r.answered, abs(r.at - at)), default=None
        )

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
        self._say(
            Event(data.TYPE, self.rec.session, self._name(data, ack.at_us), SOURCE, data, ack.at_us)
        )
        return True

    def _name(self, ack: PlaybackAck, at: int) -> str:
        """The id of the recorded acknowledgement that says the same: what is decided on it keeps its id as well."""
        twin = self.rec.played.get(self._twin.get(ack.response, ""))
        for event in () if twin is None else (self.rec.world[place] for place, _ in twin.acks):
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
        self._acknowledged(ack)
        self._come(ack._replace(source=SOURCE, sequence=self._acks))

    def _acknowledged(self, ack: Event) -> None:
        data: PlaybackAck = ack.data
        at = self.fold.now if ack.mediatime is None else ack.mediatime
        self._playouts.acknowledge(data.response, Ack(at, data.played_us, data.state))


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
    """The session under another policy; `rec` stays as it is."""
    world = _World(rec, override)
    world.run()
    return Outcome(world.decisions, world.unanswered)
