"""Run to completion: one input, and everything it causes (law 3).

Every event, read or derived, is offered to every operator in fixed order; what they decide goes to the agenda's end, until it is
empty. A window is worked off hop by hop: time moves on by 32 ms, the operators whose alarm has rung look at the hop, and what they
decide is worked off before the next hop. So no decision depends on how many hops a record holds. Windows in which every operator
that is awake is sure to decide nothing (`operators.reducer.Skimmer`) are taken in one step, to the same effect.

An operator that raises an error leaves its state half done, so nothing can follow from it: `OperatorFault` comes out of here, and `fail`
ends the session.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from operators.reducer import (
    NEVER,
    Decision,
    Decisions,
    Hop,
    Operator,
    OperatorFault,
    Skimmer,
)
from schemas.base import HOP_SAMPLES, HOP_US
from schemas.envelope import Event
from schemas.ids import decision_id
from schemas.perception import PerceptionWindow
from schemas.responses import AgendaOverflow, OperatorFailed
from schemas.session import SessionEnded

AGENDA_LIMIT = 64
"""Decisions that one input may cause."""

SOURCE = "conversation/"
"""The source of a decision is this and the name of its operator."""


def _end(window: PerceptionWindow) -> int:
    return window.start_us + len(window.probabilities or ()) * HOP_US


class Agenda:
    """The operators' states of one session, and the loop over them."""

    def __init__(
        self, session: str, operators: Sequence[Operator], observe: Callable[[Event, int], None]
    ) -> None:
        self.session = session
        self.now = 0
        """The session's media time in µs."""
        self.states: list[tuple[Operator, Any]] = [(o, o.initial(session)) for o in operators]
        self._last = operators[-1].name if operators else ""
        """Looks at a step of time when everything else of it has been worked off: it ends the session."""
        self._ended = False
        self._skimmers = {o.name: o for o in operators if isinstance(o, Skimmer)}
        self._awake: list[tuple[Operator, Any]] = []
        self._wakes_at = 0
        """The next alarm of all others; 0 where it has to be looked for again."""
        self._routes: dict[str, list[tuple[Operator, Any]]] = {}
        self._observe = observe
        self._queue: deque[Event] = deque()
        self._input = ""
        self._counts: dict[str, int] = {}
        self._decided: list[Event] = []
        self._dropped: list[str] = []

    def run(self, event: Event, now: int | None = None) -> tuple[Event, ...]:
        """Work off an input; returns the decisions in agenda order. `now`: time has moved on to it, and what that brings comes first."""
        self._begin(event)
        if now is not None and now > self.now:
            self.now = now
            self._advance(event, None, self.states)
        self._offer(event)
        self._drain()
        return self._finish(event)

    def run_window(self, event: Event, stepped: bool) -> tuple[Event, ...]:
        """Work off a `perception.window`; `stepped` says whether it is the user's channel, whose hops the operators look at."""
        window: PerceptionWindow = event.data
        start, probabilities = window.start_us, window.probabilities
        if stepped and probabilities and self.skim((window,)):
            return ()
        hops = len(probabilities) if probabilities is not None else 3
        until = max(start + hops * HOP_US, self.now)
        if until >= self._wakes_at:
            self._look_who_wakes(until)
        self._begin(event)
        awake = self._awake
        for i in range(hops):
            end = start + (i + 1) * HOP_US
            if end > self.now:
                self.now = end
            hop = None
            if stepped:
                probability = None if probabilities is None else probabilities[i]
                end_sample = window.first_sample + (i + 1) * HOP_SAMPLES
                hop = Hop(
                    end - HOP_US,
                    end,
                    probability,
                    window.level_db,
                    window.echo,
                    window.epoch,
                    end_sample,
                )
            if self._advance(event, hop, awake):
                if self._ended:
                    break
                self._look_who_wakes(until)
                awake = self._awake
        return self._finish(event)

    def skim(self, windows: Sequence[PerceptionWindow]) -> int:
        """Take windows of the user's channel in one step, from the first on, as long as that makes no difference; returns how many.

        All have probabilities, and each ends later than the one before.
        """
        until = max(_end(windows[0]), self.now)
        if until >= self._wakes_at:
            self._look_who_wakes(until)
        wakes_at, skimmers, count = self._wakes_at, self._skimmers, len(windows)
        while count > 1 and _end(windows[count - 1]) >= wakes_at:
            count -= 1
        for operator, state in self._awake:
            skimmer = skimmers.get(operator.name)
            count = 0 if skimmer is None else skimmer.skims(state, windows[:count], self.now)
            if not count:
                return 0
        taken = windows[:count]
        for operator, state in self._awake:
            skimmers[operator.name].skim(state, taken)
        self.now = max(_end(taken[-1]), self.now)
        return count

    def _look_who_wakes(self, until: int) -> None:
        """Find the operators whose alarm rings by media time `until`, as far as is known now: most sleep through most windows.

        Alarms change only when something is worked off; until then the answer holds for later windows too.
        """
        awake, wakes_at = [], NEVER
        for pair in self.states:
            alarm = pair[1].alarm
            if alarm <= until:
                awake.append(pair)
            elif alarm < wakes_at:
                wakes_at = alarm
        self._awake, self._wakes_at = awake, wakes_at

    def run_time(self, event: Event, now: int) -> tuple[Event, ...]:
        """Work off an input that moves time without media (a tick, the close): what time brings comes first, and what follows last."""
        self._begin(event)
        if now > self.now:
            self.now = now
            self._advance(event, None, self.states)
        self._offer(event)
        self._drain()
        self._advance(event, None, self.states)
        return self._finish(event)

    def fail(self, fault: OperatorFault, event: Event) -> tuple[Event, ...]:
        """End the session over an error of an operator; returns what was decided while `event` was worked off, the end last."""
        self._queue.clear()
        ender = self.states[-1][1]
        for data in (
            OperatorFailed(operator=fault.operator, error=type(fault.__cause__).__name__),
            SessionEnded(
                reason="fault",
                turns=getattr(ender, "turns", 0),
                responses=getattr(ender, "responses", 0),
            ),
        ):
            decision = self._event("agenda", Decision(data), event)
            self._decided.append(decision)
            self._observe(decision, self.now)
        return self._finish(event)

    def _begin(self, event: Event) -> None:
        self._input = event.id
        if self._counts:
            self._counts.clear()
        self._decided = []
        self._dropped = []

    def _finish(self, event: Event) -> tuple[Event, ...]:
        self._wakes_at = 0
        if self._dropped:
            data = AgendaOverflow(limit=AGENDA_LIMIT, dropped=tuple(self._dropped[:AGENDA_LIMIT]))
            self._decided.append(self._event("agenda", Decision(data), event))
        return tuple(self._decided)

    def _advance(
        self, cause: Event, hop: Hop | None, operators: list[tuple[Operator, Any]]
    ) -> bool:
        """Let time move on for those of `operators` whose alarm has rung; returns whether anything was decided."""
        now, decided = self.now, False
        for operator, state in operators:
            if state.alarm <= now:
                if self._queue and operator.name == self._last:
                    decided = True
                    self._drain()
                try:
                    decisions = operator.advance(state, now, hop)
                except Exception as error:
                    raise OperatorFault(operator.name, cause) from error
                if decisions:
                    self._add(operator, decisions, cause)
        decided = decided or bool(self._queue)
        self._drain()
        return decided

    def _drain(self) -> None:
        while self._queue:
            self._offer(self._queue.popleft())

    def _offer(self, event: Event) -> None:
        route = self._routes.get(event.type)
        if route is None:
            route = self._routes[event.type] = [
                (o, s) for o, s in self.states if event.type in o.handles
            ]
        for operator, state in route:
            try:
                decisions = operator.step(state, event, self.now)
            except Exception as error:
                raise OperatorFault(operator.name, event) from error
            if decisions:
                self._add(operator, decisions, event)
        if event.type == "session.ended":
            self._ended = True
        self._observe(event, self.now)

    def _add(self, operator: Operator, decisions: Decisions, cause: Event) -> None:
        for decision in decisions:
            if len(self._decided) >= AGENDA_LIMIT:
                self._dropped.append(decision.data.TYPE)
                continue
            event = self._event(operator.name, decision, cause)
            self._decided.append(event)
            self._queue.append(event)

    def _event(self, operator: str, decision: Decision, cause: Event) -> Event:
        index = self._counts.get(operator, 0)
        self._counts[operator] = index + 1
        return Event(
            decision.data.TYPE,
            self.session,
            decision_id(self.session, self._input, operator, index),
            SOURCE + operator,
            decision.data,
            self.now,
            cause.id,
            decision.correlation,
        )
