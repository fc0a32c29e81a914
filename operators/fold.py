"""The shared fold: the one way to put a session's records into causal order and derive its decisions (laws 3, 4, 6, 7, 11).

Feed it the session's records in offset order, one by one; it returns what was applied: each input followed by the decisions that it
caused. Every reader uses it: the conversation flow, the device, replay, reports. It is a function of the records alone.

Theory of operation:
- Before `session.configured`, inputs wait in order (bounded); then they are applied as if they had just come.
- Repeats are dropped: observations by source watermark, windows by their place, outcomes by their place within their request.
- Decisions that are read back are not inputs; they go to `on_recorded`, for whoever wants to check them.
- `live` sessions apply inputs at once. `asap` sessions apply them by (media time, rank, request, index, id): an input waits until
  media has reached its time, and while an outcome or an acknowledgement that is due before it has not come.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from operators.admission import Watermarks
from operators.agenda import Agenda
from operators.pipeline import OPERATORS, operator_versions
from operators.playout import Ack, Playouts
from operators.reducer import Operator, OperatorFault
from schemas.base import HOP_US, LARGEST, WINDOW_US, Kind
from schemas.envelope import Event
from schemas.media import PlaybackAck
from schemas.perception import PerceptionWindow
from schemas.policy import Policy
from schemas.registry import ENDED_BY_DECISION, KINDS, PARTIALS, REQUESTS, TERMINALS, forged
from schemas.session import SessionConfigured

__all__ = ["Applied", "SessionFold", "operator_versions"]

WAITING_LIMIT = 4096
"""Inputs that may wait for `session.configured`; beyond, the oldest are dropped (and returned as such)."""

Fate = Literal["applied", "repeat", "late", "waiting", "forged"]

# Ranks at equal media time in an asap session: what the device said, what the models said, what was played of it, what was heard of
# the user, then bare time.
_SAID, _OUTCOME, _ACK, _WINDOW, _TIME = 0, 1, 2, 3, 4
_Key = tuple[int, int, str, int, str]


class Applied(NamedTuple):
    """An input with its effective media time, what became of it, and the decisions it caused in agenda order."""

    input: Event
    decisions: tuple[Event, ...]
    fate: Fate = "applied"


class _Request:
    """An effect that is under way."""

    __slots__ = ("due", "event", "kind", "next_index")

    def __init__(self, event: Event, kind: str, due: int) -> None:
        self.event = event
        self.kind = kind
        self.due = due
        self.next_index: dict[str, int] = {}

    @property
    def key(self) -> _Key:
        return (self.due, _OUTCOME, self.event.id, 0, "")


class SessionFold:
    """The state of one session. `override` replaces the recorded policy by another (what-if)."""

    def __init__(
        self,
        session: str,
        operators: Sequence[Operator] = OPERATORS,
        override: Callable[[Policy], Policy] | None = None,
        on_recorded: Callable[[Event], None] | None = None,
    ) -> None:
        self.session = session
        self.config: SessionConfigured | None = None
        self.opened: Event | None = None
        self.ended = False
        self.requests: dict[str, _Request] = {}
        """Requests without their terminal outcome, by id."""
        self.fault: OperatorFault | None = None
        """What an operator failed with; the session has ended with it."""
        self._live = False
        """Configured, and paced live: inputs apply at once."""
        self._override = override
        self._on_recorded = on_recorded
        self._agenda = Agenda(session, operators, self._observe)
        self._waiting: list[Event] = []
        self._sources = Watermarks()
        self._windows: dict[tuple[str, int], int] = {}
        self._perception = ""
        """The source of the windows."""
        self._seen: set[str] = set()
        self._heap: list[tuple[_Key, Event]] = []
        self._horizon = 0
        """The highest media time of any window or tick that has come: all that happened before it has been said."""
        self._time_only = 0
        """Ticks and closes in the heap: with one there, the device will say no more."""
        self._playouts = Playouts()

    @property
    def now(self) -> int:
        """The session's media time in µs."""
        return self._agenda.now

    @property
    def held(self) -> int:
        """Inputs that have come but wait: for the configuration, or for what is due before them."""
        return len(self._waiting) + len(self._heap)

    @property
    def states(self) -> dict[str, Any]:
        """Operator name → its state."""
        return {operator.name: state for operator, state in self._agenda.states}

    def next_due(self) -> int | None:
        """asap: the media time of the earliest outcome or acknowledgement that inputs wait for."""
        key = self._awaited()
        return None if key is None else key[0]

    # --- in

    def feed(self, event: Event) -> list[Applied]:
        """Take the next record of the session; returns what could be applied now."""
        if forged(event.type, event.source):
            return [Applied(event, (), "forged")]
        if KINDS[event.type] is Kind.DECISION:
            if self._on_recorded is not None:
                self._on_recorded(event)
            return []
        if self.ended:
            return [Applied(event, (), "late")]
        if event.type == "session.configured":
            return self._configure(event)
        fate = self._admit(event)
        if fate != "applied":
            return [Applied(event, (), fate)]
        if event.type == "session.opened":
            if self.opened is not None:
                return [Applied(event, (), "repeat")]
            self.opened = event
        if self._live:
            return [self._apply(event, event.mediatime)]
        if self.config is None:
            self._waiting.append(event)
            if len(self._waiting) > WAITING_LIMIT:
                return [Applied(self._waiting.pop(0), (), "late")]
            return []
        return self._enter(event)

    def skim(self, events: Sequence[Event], at: int) -> int:
        """Of the events from place `at` on, take the windows in which nothing is decided; returns how many.

        To the same effect as `feed` called for each, which is for all others. Takes none of a session that is not paced live.
        """
        if not self._live or self.ended:
            return 0
        first = at
        # A run that is longer than thought is taken in ever larger pieces, one that is not has cost little.
        size = 4
        while windows := self._run(events, at, size):
            count = self._agenda.skim(windows)
            if count:
                at += count
                place = (windows[0].channel, windows[0].epoch)
                self._windows[place] = windows[count - 1].first_sample
            if count < size:
                break
            size *= 2
        return at - first

    def _run(self, events: Sequence[Event], at: int, most: int) -> list[PerceptionWindow]:
        """The windows of the user's channel from place `at` on that `feed` would admit, in the order of time."""
        assert self.config is not None
        found: list[PerceptionWindow] = []
        channel, last, start = self.config.channel, -1, -LARGEST
        epoch: int | None = None
        for event in events[at : at + most]:
            if event.type != "perception.window" or event.session != self.session:
                break
            window: PerceptionWindow = event.data
            if window.channel != channel:
                break
            if event.source != self._perception:
                if forged(event.type, event.source):
                    break
                self._perception = event.source
            if window.epoch != epoch:
                if found:
                    break
                epoch = window.epoch
                last = self._windows.get((channel, epoch), -1)
            if window.first_sample <= last or window.start_us < start or not window.probabilities:
                break
            last, start = window.first_sample, window.start_us + len(window.probabilities) * HOP_US
            found.append(window)
        return found

    def _configure(self, event: Event) -> list[Applied]:
        if self.config is not None:
            return [Applied(event, (), "repeat")]
        config: SessionConfigured = event.data
        if self._override is not None:
            config = config.model_copy(update={"policy": self._override(config.policy)})
            event = event._replace(data=config)
        self.config = config
        self._live = config.pacing == "live"
        waiting, self._waiting = self._waiting, []
        applied: list[Applied] = []
        opened = self.opened
        if opened is not None:
            applied.append(self._apply(opened, 0))
        if not self.ended:
            applied.append(self._apply(event, self.now))
        for early in waiting:
            if early is opened:
                continue
            applied += [Applied(early, (), "late")] if self.ended else self._enter(early)
        return applied

    def _admit(self, event: Event) -> Fate:
        """Whether an input is new, by law 4."""
        if event.type == "perception.window":
            place = (event.data.channel, event.data.epoch)
            last = self._windows.get(place, -1)
            if event.data.first_sample <= last:
                return "repeat"
            self._windows[place] = event.data.first_sample
            return "applied"
        if event.type in PARTIALS or event.type in TERMINALS:
            return self._admit_outcome(event)
        if KINDS[event.type] is Kind.OUTCOME:
            if event.id in self._seen:
                return "repeat"
            self._seen.add(event.id)
            return "applied"
        admission = self._sources.admit(event.source, event.id, event.sequence)
        return "applied" if admission == "new" else admission

    def _admit_outcome(self, event: Event) -> Fate:
        request = self.requests.get(event.cause or "")
        if request is None:
            return "late"
        index = event.sequence or 0
        if index < request.next_index.get(event.type, 0):
            return "repeat"
        request.next_index[event.type] = index + 1
        if event.type in TERMINALS and self._live:
            del self.requests[request.event.id]
        elif event.type in TERMINALS:
            if "terminal" in request.next_index:
                return "late"
            request.next_index["terminal"] = 1
        return "applied"

    def _enter(self, event: Event) -> list[Applied]:
        assert self.config is not None
        if self._live:
            return [self._apply(event, event.mediatime)]
        heapq.heappush(self._heap, (self._key(event), event))
        if event.type in ("clock.tick", "session.closed"):
            self._time_only += 1
        return self._release()

    # --- asap order

    def _key(self, event: Event) -> _Key:
        request = (
            self.requests.get(event.cause or "")
            if event.type in PARTIALS or event.type in TERMINALS
            else None
        )
        if request is not None:
            last = 1 if event.type in TERMINALS else 0
            return (
                request.due,
                _OUTCOME,
                request.event.id,
                (last << 32) + (event.sequence or 0),
                event.id,
            )
        time = self.now if event.mediatime is None else event.mediatime
        if event.type == "perception.window":
            self._horizon = max(self._horizon, time)
            return (time, _WINDOW, event.data.channel, event.data.epoch, event.id)
        if event.type == "clock.tick":
            self._horizon = max(self._horizon, time)
            return (time, _TIME, "", 0, event.id)
        if event.type == "session.closed":
            # The last window is padded beyond the end of the media; it belongs before the close. The close itself says nothing
            # about how far perception has come: the ticks do that follow the last window.
            return (time + WINDOW_US, _TIME, "", 1, event.id)
        rank = _ACK if event.type == "playback.ack" else _SAID
        return (time, rank, event.source, event.sequence or 0, event.id)

    def _awaited(self) -> _Key | None:
        """The place in the order of the next input that has to come before anything later is applied."""
        first: _Key | None = None
        for request in self.requests.values():
            if "terminal" not in request.next_index and (first is None or request.key < first):
                first = request.key
        due = None if self._time_only else self._playouts.next_ack()
        if due is not None:
            key: _Key = (due[1].at_us, _ACK, "", 0, "")
            if first is None or key < first:
                first = key
        return first

    def _release(self) -> list[Applied]:
        applied: list[Applied] = []
        while self._heap and not self.ended:
            key, event = self._heap[0]
            if key[0] > max(self._horizon, self.now):
                break
            awaited = self._awaited()
            # An acknowledgement that came is what was awaited at its time, whatever its source is called.
            if (
                awaited is not None
                and key > awaited
                and not (key[:2] == awaited[:2] and key[1] == _ACK)
            ):
                break
            heapq.heappop(self._heap)
            if event.type in ("clock.tick", "session.closed"):
                self._time_only -= 1
            if event.type in TERMINALS:
                self.requests.pop(event.cause or "", None)
            applied.append(self._apply(event, key[0]))
        return applied

    # --- applying

    def _apply(self, event: Event, time: int | None) -> Applied:
        try:
            return self._work_off(event, time)
        except Exception as error:
            return self._failed(error, event)

    def _failed(self, error: Exception, event: Event) -> Applied:
        """The same records fail the same way in every reader and after every restart, so the end is derived like anything else."""
        fault = error
        if not isinstance(fault, OperatorFault):
            fault = OperatorFault("fold", event)
            fault.__cause__ = error
        self.fault = fault
        return Applied(event, self._agenda.fail(fault, event))

    def _work_off(self, event: Event, time: int | None) -> Applied:
        agenda = self._agenda
        if event.type == "perception.window":
            assert self.config is not None
            return Applied(
                event, agenda.run_window(event, event.data.channel == self.config.channel)
            )
        if time is None:
            time = agenda.now
        if event.mediatime != time:
            event = event._replace(mediatime=time)
        if event.type in ("clock.tick", "session.closed"):
            return Applied(event, agenda.run_time(event, time))
        if event.type == "session.updated" and self.config is not None:
            policy = self.config.policy.with_accepted(event.data.policy)
            self.config = self.config.model_copy(update={"policy": policy})
        return Applied(event, agenda.run(event, None if self._live else time))

    def _observe(self, event: Event, now: int) -> None:
        """See every event in causal order: keep the books on requests and, in asap sessions, on playback."""
        kind = REQUESTS.get(event.type)
        assert self.config is not None or kind is None
        if kind is not None and self.config is not None:
            self.requests[event.id] = _Request(
                event, kind, now + getattr(self.config.policy.latency, kind)
            )
        elif event.type in ENDED_BY_DECISION:
            self.requests.pop(event.data.request, None)
        elif event.type == "session.ended":
            self.ended = True
        if (
            self.config is None
            or self.config.pacing != "asap"
            or self.config.playback != "acknowledged"
        ):
            return
        if event.type in Playouts.EVENTS:
            self._playouts.follow(event, now)
        elif event.type == "playback.ack":
            data: PlaybackAck = event.data
            ack = Ack(
                now if event.mediatime is None else event.mediatime, data.played_us, data.state
            )
            self._playouts.acknowledge(data.response, ack)
