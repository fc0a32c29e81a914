"""Effects: work that costs time or money and runs only because its request is in the log (law 5), whatever kind of work it is.

Rules:
- A request is an event of a type that an `Effect` is registered for. It runs once, and gets exactly one terminal outcome.
- **`EffectDesk` is the one place that decides what a request's outcomes are.** It is called by one
  thread only and sees, in one order, what was read from the log and what the running effects
  produced; so a cancel and a completion never both win. Whatever an effect produces after its
  request's end is dropped here.
- The first terminal wins, also one that another process wrote. After a crash (law 4, 11): a request
  of which nothing was logged runs again under the same attempt; one that had logged a part ends
  `lost`, since a second run would repeat the ids of the first with other content. That holds also
  for parts of a dead process that reach the log late.
- An effect with a side effect **claims** its request first (law 5): the claim of an attempt is an
  outcome, and only when it is read back as the first of its attempt, by this process's source, does
  the effect run. A start claims again (attempt n + 1) what may run twice and ends the rest `lost`;
  a process that reads another's later claim lets go.
- A cancel names a key (a request, a response, a whole session), and a request carries its keys:
  whichever comes first, they meet.

Nothing here knows a model, a thread or Bytewax; `flows.effect_runner` runs the effects.
"""

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from schemas.base import Data
from schemas.cloudevents import attributes, decode, encode, wire_type
from schemas.envelope import Event, Pcm
from schemas.errors import BadRecord
from schemas.ids import outcome_id
from schemas.record import Headers, Record, StoredRecord
from schemas.registry import ENDED_BY_DECISION
from schemas.transcription import FailureReason

log = logging.getLogger(__name__)

Result = Data | Pcm
"""What an effect yields: an outcome's data, whose `TYPE` names the outcome."""

Results = AsyncGenerator[Result, None]

SESSION_KEY = "session"
"""The key that every request carries: the end of its session cancels it."""

ENDED_SESSIONS_KEPT = 1_000
"""Ended sessions whose requests are remembered, in case the log repeats one; a repeat comes within seconds."""

MESSAGE_CHARS = 300


def one_line(error: BaseException | str) -> str:
    """An error as one bounded line that any log can hold."""
    text = error if isinstance(error, str) else str(error) or type(error).__name__
    return " ".join(text.split())[:MESSAGE_CHARS].encode("utf-8", "replace").decode()


def plain_reason(error: BaseException) -> FailureReason:
    """Why an effect failed, as far as its error says so (`retryable`: it cannot be reached now)."""
    if isinstance(error, TimeoutError):
        return "timed_out"
    return "unavailable" if getattr(error, "retryable", False) else "error"


@dataclass(frozen=True)
class Effect:
    """How requests of one type are worked on.

    `run` yields any number of partial outcomes and, last, the terminal one. `prepare` waits for
    what the work needs (its result goes to `run`) and takes no slot of `limit`. Both are cancelled
    by cancelling their task.
    """

    run: Callable[[Event, Any], Results]
    failed: Callable[[Event, FailureReason, str], Result]
    """The terminal outcome of a request that failed."""
    outcomes: Mapping[str, bool]
    """The types it yields → whether the type is terminal."""
    limit: int = 2
    """Requests that run at the same time."""
    deadline_s: float = 60.0
    """Wall time from being ready to the terminal outcome, the wait for a slot included."""
    prepare: Callable[[Event], Awaitable[Any]] | None = None
    prepare_s: float = 5.0
    tries: int = 6
    """Tries while it is unavailable and nothing was yielded yet, within `retry_s`."""
    retry_s: float = 10.0
    reason_of: Callable[[BaseException], FailureReason] = plain_reason
    """What an error says; `unavailable` is worth another try."""
    claim: Callable[[Event, int], Data] | None = None
    """The outcome that claims an attempt; None: it has no side effect and needs no claim."""
    resumes: Callable[[Event], bool] = lambda request: False
    """Whether a claimed request may run once more after its process died."""
    line: Callable[[Event], str] | None = None
    """Requests of one line run one after the other, in their order."""


class Produced(NamedTuple):
    """What a running effect hands to the desk."""

    request: str
    result: Result


class Runner(Protocol):
    """Runs effects elsewhere; what they yield reaches the desk as `Produced`. Every submitted
    request that is not cancelled yields a terminal result."""

    def submit(self, request: Event, effect: Effect) -> None: ...

    def cancel(self, request: str) -> None: ...


def keys_of(request: Event) -> tuple[str, ...]:
    """What a request can be cancelled by."""
    names = ((kind, getattr(request.data, kind, None)) for kind in ("response", "work"))
    own = tuple(f"{kind}:{name}" for kind, name in names if name is not None)
    return (SESSION_KEY, f"request:{request.id}", *own)


_CANCELS: dict[str, Callable[[Any], str]] = {
    "request.superseded": lambda data: f"request:{data.request}",
    "response.cancelled": lambda data: f"response:{data.response}",
    "response.failed": lambda data: f"response:{data.response}",
    "work.cancelling": lambda data: f"work:{data.work}",
    "session.ended": lambda data: SESSION_KEY,
}
"""Decisions that end requests → the key they name."""

CLAIMS = 3
"""Attempts at one request; one that outlives so many of its processes kills them, maybe."""


def wire_type_of(headers: Headers) -> bytes | None:
    """The type of a record without decoding it."""
    return dict(headers).get("ce_type") or attributes(headers).get("ce_type")


@dataclass(slots=True)
class _Open:
    """A request without its terminal outcome."""

    request: Event
    effect: Effect
    counts: dict[str, int] = field(default_factory=dict)
    """Partial outcomes that were emitted, by type."""
    attempt: int = 0
    """The highest attempt whose claim is in the log."""
    owned: bool = False
    """Whether that claim is ours."""

    @property
    def elsewhere(self) -> bool:
        """Another process has claimed it: what becomes of it is that one's business."""
        return self.attempt > 0 and not self.owned


@dataclass(slots=True)
class _Session:
    open: dict[str, _Open] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    """Keys of which nothing is wanted any more."""


class EffectDesk:
    """The books of all requests of this process. Not thread-safe, on purpose: one thread reads,
    decides and emits.
    """

    def __init__(self, effects: Mapping[str, Effect], runner: Runner, source: str) -> None:
        self._effects, self._runner, self._source = effects, runner, source
        self._sessions: dict[str, _Session] = {}
        self._ended: OrderedDict[str, _Session] = OrderedDict()
        self._session_of: dict[str, str] = {}
        """Open request → its session."""
        self._terminal: dict[str, bool] = {
            t: end for e in effects.values() for t, end in e.outcomes.items()
        }
        known: Collection[str] = {*effects, *self._terminal, *_CANCELS, *ENDED_BY_DECISION}
        self._wanted = frozenset(wire_type(name).encode() for name in known)
        self._restoring = False

    @property
    def open(self) -> int:
        """Requests that have no terminal outcome yet."""
        return len(self._session_of)

    def restore(self, records: Iterable[StoredRecord]) -> None:
        """Take in what the log holds so far; nothing runs or is decided before `resume`."""
        self._restoring = True
        for record in records:
            self.read(record)
        self._restoring = False

    def resume(self) -> list[Record]:
        """After `restore`: end what cannot go on, and run what never began. Returns the outcomes
        that say so.
        """
        out: list[Record] = []
        for id_ in list(self._session_of):
            entry = self._entry(id_)
            if entry is None:
                continue
            if self._cancelled(entry.request):
                out += self._fail(entry, "cancelled", "cancelled before it was done")
            elif entry.effect.claim is not None:
                out += self._claim_again(entry)
            elif entry.counts:
                out += self._fail(
                    entry, "lost", "the process that worked on it ended; part of it is logged"
                )
            else:
                self._runner.submit(entry.request, entry.effect)
        return out

    def read(self, record: StoredRecord) -> list[Record]:
        """The next record of the timeline lane; returns the outcomes that it decides at once."""
        if wire_type_of(record.headers) not in self._wanted:
            return []
        try:
            return self._read(decode(record))
        except BadRecord:
            # Perception rejects it for all; to us it is no request (law 11).
            return []
        except Exception:
            # It would fail again after every restart, for all sessions; the conversation gives up on a request without an answer.
            log.exception("%s cannot take offset %d", self._source, record.offset)
            return []

    def _read(self, event: Event) -> list[Record]:
        if event.type in self._effects:
            return self._requested(event)
        if event.type in self._terminal:
            return self._logged(event)
        if event.type in ENDED_BY_DECISION:
            closed = self._entry(event.data.request)
            if closed is not None:
                self._runner.cancel(closed.request.id)
                self._close(closed)
            return []
        return self._cancel(event.session, _CANCELS[event.type](event.data))

    def take(self, produced: Produced) -> list[Record]:
        """What an effect yielded; returns it as an outcome, unless its request has ended."""
        entry = self._entry(produced.request)
        if entry is None or entry.elsewhere:
            return []
        try:
            return self._emit(entry, produced.result)
        except Exception as error:  # a result that no record can hold must not stop the flow
            self._runner.cancel(entry.request.id)
            return self._fail(entry, "error", f"its result cannot be written: {one_line(error)}")

    # --- what was read

    def _requested(self, event: Event) -> list[Record]:
        books = self._ended.get(event.session) or self._sessions.setdefault(
            event.session, _Session()
        )
        if event.id in books.open or event.id in books.closed:
            return []
        entry = books.open[event.id] = _Open(event, self._effects[event.type])
        self._session_of[event.id] = event.session
        if self._restoring:
            return []
        if self._cancelled(event):
            return self._fail(entry, "cancelled", "cancelled before it began")
        if entry.effect.claim is not None:
            return self._emit(entry, entry.effect.claim(event, 1))
        self._runner.submit(event, entry.effect)
        return []

    def _claim_again(self, entry: _Open) -> list[Record]:
        """After a start: a request that runs nowhere any more."""
        claim, request = entry.effect.claim, entry.request
        assert claim is not None
        if entry.attempt and (entry.attempt >= CLAIMS or not entry.effect.resumes(request)):
            entry.owned = True
            return self._fail(entry, "lost", "the process that worked on it ended")
        entry.counts[claim(request, 1).TYPE] = entry.attempt
        return self._emit(entry, claim(request, entry.attempt + 1))

    def _claimed(self, entry: _Open, event: Event) -> list[Record]:
        """A claim in the log, the first of its attempt: its source owns the request from here on."""
        attempt = event.data.attempt
        if attempt <= entry.attempt:
            return []
        was, entry.attempt = entry.owned, attempt
        entry.owned = event.source == self._source
        entry.counts[event.type] = max(attempt, entry.counts.get(event.type, 0))
        if self._restoring:
            return []
        if entry.owned:
            self._runner.submit(entry.request, entry.effect)
        elif was:
            self._runner.cancel(entry.request.id)
        return []

    def _logged(self, event: Event) -> list[Record]:
        """An outcome in the log: ours read back, or of a process before us (or beside us)."""
        entry = self._entry(event.cause or "")
        if entry is None or event.type not in entry.effect.outcomes:
            return []
        if self._terminal[event.type]:
            self._runner.cancel(entry.request.id)
            self._close(entry)
            return []
        claim = entry.effect.claim
        if claim is not None and event.type == claim(entry.request, 1).TYPE:
            return self._claimed(entry, event)
        count, index = entry.counts.get(event.type, 0), event.sequence or 0
        if index < count:
            return []
        entry.counts[event.type] = index + 1
        if self._restoring or claim is not None:
            return []
        self._runner.cancel(entry.request.id)
        return self._fail(entry, "lost", "another process logged a part of it")

    def _cancel(self, session: str, key: str) -> list[Record]:
        books = self._sessions.get(session)
        if books is None:
            if session in self._ended:
                return []
            books = self._sessions[session] = _Session()
        books.cancelled.add(key)
        out: list[Record] = []
        if not self._restoring:
            for entry in [e for e in books.open.values() if key in keys_of(e.request)]:
                if entry.elsewhere:
                    continue
                self._runner.cancel(entry.request.id)
                out += self._fail(entry, "cancelled", "cancelled while it was worked on")
        if key == SESSION_KEY:
            self._ended[session] = self._sessions.pop(session)
            # What is open still needs its books: at most as many as there are open requests, right
            # after a restore.
            while (
                len(self._ended) > ENDED_SESSIONS_KEPT and not next(iter(self._ended.values())).open
            ):
                self._ended.popitem(last=False)
        return out

    def _cancelled(self, request: Event) -> bool:
        books = self._books(request.session)
        return not books.cancelled.isdisjoint(keys_of(request))

    # --- what is written

    def _fail(self, entry: _Open, reason: FailureReason, message: str) -> list[Record]:
        return self._emit(entry, entry.effect.failed(entry.request, reason, one_line(message)))

    def _emit(self, entry: _Open, result: Result) -> list[Record]:
        request, type_ = entry.request, result.TYPE  # type: ignore[union-attr]
        terminal = entry.effect.outcomes[type_]
        index = 0 if terminal else entry.counts.get(type_, 0)
        attempt = request.data.attempt
        if entry.effect.claim is not None:
            attempt = max(1, entry.attempt)
            if entry.attempt and terminal:
                result = result.model_copy(update={"attempt": entry.attempt})  # type: ignore[union-attr]
            elif type_ == entry.effect.claim(request, 1).TYPE:
                attempt = result.attempt  # type: ignore[union-attr]
        event = Event(
            type_,
            request.session,
            outcome_id(request.id, attempt, type_, index),
            self._source,
            result,
            None,
            request.id,
            request.correlation,
            None if terminal else index,
            dataref=getattr(result, "digest", None),
        )
        record = encode(event)
        if terminal:
            self._close(entry)
        else:
            entry.counts[type_] = index + 1
        return [record]

    # --- the books

    def _books(self, session: str) -> _Session:
        return self._sessions.get(session) or self._ended[session]

    def _entry(self, request: str) -> _Open | None:
        session = self._session_of.get(request)
        return None if session is None else self._books(session).open[request]

    def _close(self, entry: _Open) -> None:
        books = self._books(entry.request.session)
        del books.open[entry.request.id]
        del self._session_of[entry.request.id]
        books.closed.add(entry.request.id)
