"""Every sequence of events up to a length, and what must hold after each: legal states, one end for every start, no reply lost or doubled.

Sequences are walked level by level. Two that have led to the same state have the same future, so it is walked once and counted for
both; what happened before is in the state as far as it matters (`Books`). After every sequence the session is closed on a copy. Models
answer only when the alphabet says so; the loudspeaker acknowledges as time passes, and once more when the alphabet says so.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

from operators.respond import UNANSWERED
from schemas.envelope import Event
from schemas.media import PlaybackAck
from schemas.registry import REQUESTS
from schemas.transcription import TranscriptOffered
from schemas.work import WorkRequested
from tests.support.script import Session
from tests.support.snapshots import Snapshots
from tests.support.works import TERMINAL, WorkSession

pytestmark = pytest.mark.pure

ENDS = ("response.ended", "response.failed", "response.cancelled")
PAIRS = {"turn.started": "turn", "overlap.started": "overlap", "work.queued": "work"}
"""What is begun by an event → the field that names it."""
ENDED_BY = {"turn.ended": "turn", "overlap.resolved": "overlap", **dict.fromkeys(TERMINAL, "work")}


class Books:
    """What has begun and what has ended: kept event by event, so that no sequence has to be read again."""

    def __init__(self) -> None:
        self.begun: dict[str, list[str]] = {"turn": [], "overlap": [], "work": [], "response": []}
        self.over: dict[str, list[str]] = {name: [] for name in self.begun}
        self.started: list[str] = []
        """Responses."""
        self.heard_for: list[str] = []
        """Turns whose answer was heard to its end."""
        self.turn_of: dict[str, str] = {}
        self.paused: str | None = None
        self.unanswered: dict[str, str] = {}
        """Turns that want an answer and have not been in a prompt → their words."""
        self.overlapping: dict[str, set[str]] = {}
        """Overlaps that are open → the turns in which they began."""
        self.results: list[str] = []
        """Works whose result was to be told."""
        self.told: list[str] = []
        """Works, once for each result that was told or is known not to have been."""

    def see(self, events: Iterable[Event], path: object) -> None:
        for e in events:
            if e.type in PAIRS:
                self._begin(PAIRS[e.type], e, path)
            elif e.type in ENDED_BY:
                self._end(ENDED_BY[e.type], e, path)
            elif e.type.startswith(("response.", "floor.")):
                self._response(e, path)
            if e.type == "turn.ended" and e.data.reply and e.data.text not in ("", "mhm", "stop"):
                self.unanswered[e.data.turn] = e.data.text
            elif e.type == "overlap.started":
                self.overlapping[e.data.overlap] = self.open("turn")
            elif e.type == "overlap.resolved":
                for turn in self.overlapping.pop(e.data.overlap):
                    if e.data.verdict in UNANSWERED:
                        self.unanswered.pop(turn, None)
            elif e.type == "reply.prepared":
                self.results.append(e.data.work)
            elif e.type in ("work.delivered", "work.undelivered"):
                self.told.append(e.data.work)
        assert len(self.open("turn")) <= 1, f"{path}: two turns are open at once"
        assert len(self.open("overlap")) <= 1, f"{path}: two overlaps are open at once"
        assert len(self.open("response")) <= 1, f"{path}: two responses are under way at once"

    def _begin(self, what: str, e: Event, path: object) -> None:
        name = getattr(e.data, what)
        assert name not in self.begun[what], f"{path}: {what} {name} began twice"
        self.begun[what].append(name)

    def _end(self, what: str, e: Event, path: object) -> None:
        name = getattr(e.data, what)
        assert name in self.begun[what], f"{path}: {what} {name} ended and had not begun"
        assert name not in self.over[what], f"{path}: {what} {name} ended twice ({e.type})"
        self.over[what].append(name)

    def _response(self, e: Event, path: object) -> None:
        if e.type == "response.prepared" or (
            e.type == "response.requested" and e.data.attempt == 1
        ):
            self._begin("response", e, path)
        if e.type == "response.requested":
            said = [m.content for m in e.data.messages if m.role == "user"]
            for turn, text in list(self.unanswered.items()):
                if any(text in one for one in said):
                    del self.unanswered[turn]
            if e.data.turn is not None:
                self.turn_of[e.data.response] = e.data.turn
        elif e.type == "response.started":
            name = e.data.response
            assert name not in self.started, f"{path}: {name} started twice"
            assert name not in self.over["response"], f"{path}: {name} started after its end"
            self.started.append(name)
        elif e.type in ENDS:
            self._end("response", e, path)
            turn = self.turn_of.get(e.data.response)
            if e.type == "response.ended" and turn is not None:
                assert turn not in self.heard_for, f"{path}: {turn} was answered twice"
                self.heard_for.append(turn)
        if e.type == "floor.paused":
            assert self.paused is None, f"{path}: paused twice"
            self.paused = e.data.response
        elif e.type in ("floor.resumed", *ENDS) and e.data.response == self.paused:
            self.paused = None

    def open(self, what: str) -> set[str]:
        return set(self.begun[what]) - set(self.over[what])

    def check_answered(self, path: object) -> None:
        """No reply is lost: whoever wants an answer has been in a prompt, or still waits for somebody to stop speaking."""
        if not (self.open("turn") or self.open("overlap") or self.open("response")):
            assert not self.unanswered, f"{path}: without an answer: {self.unanswered}"

    def check_closed(self, path: object, works: bool = True) -> None:
        """What must hold once the session is over. `works`: whether somebody has worked on them."""
        for what in self.begun:
            if works or what != "work":
                assert not self.open(what), f"{path}: {what} without an end: {self.open(what)}"
        assert self.paused is None, f"{path}: the floor stays paused"
        if works:
            assert Counter(self.told) == Counter(self.results), (
                f"{path}: results {self.results}, told or known as untold {self.told}"
            )


def check_closed(s: Session, path: object) -> None:
    """The same of a session that is over and has kept all its events."""
    assert s.fold.ended, f"{path}: the session does not end"
    books = Books()
    books.see(s.events, path)
    books.check_closed(path, works=False)


# --- the alphabet


class Scene(WorkSession):
    """A session with its books. A work is running from the beginning."""

    def __init__(self) -> None:
        self.books = Books()
        self.queued_as: dict[str, Event] = {}
        super().__init__(transcript=_words, hold=("endpoint", "transcript", "generate", "speak"))
        self.silence(480)
        self.work()

    def queued(self, work: str) -> Event:
        return self.queued_as[work]

    def book(self, path: object) -> None:
        """Enter what has happened, and forget it."""
        self.queued_as |= {e.data.work: e for e in self.events if e.type == "work.queued"}
        self.books.see(self.events, path)
        for gone in self.books.over["work"]:
            self.queued_as.pop(gone, None)
        self.events.clear()
        self.inputs.clear()

    def work(self) -> None:
        """The result of the oldest work that runs; where none runs, one is asked for, and begins."""
        running = [w for w in self.books.begun["work"] if w in self.queued_as]
        if running:
            self.completes("It is on its way.", running[0])
        else:
            self.observe(WorkRequested(query="check the order", route="general"))
            self.book("work")
            self.running(next(reversed(self.queued_as)))

    def endpoint_says(self, probability: float) -> None:
        self.endpoint = probability
        self.answer_kind("endpoint")
        self.endpoint = 0.9

    def begins(self) -> None:
        self.answer_kind("generate")
        self.answer_kind("speak")

    def plays_out(self) -> None:
        """What was synthesised is played to its end."""
        for _ in range(40):
            if self.playout is None or self.playout.next_ack() is None:
                return
            self.silence(96)

    def acknowledges(self) -> None:
        """An acknowledgement between the usual ones; of a response that is over, one that comes late."""
        if self.playout is not None:
            played = self.playout.played_us(self.at)
            data = PlaybackAck(response=self.playout.response, played_us=played, state="playing")
            self.observe(data)

    def finish(self, path: object) -> None:
        for kind in {REQUESTS[r.type] for r in self.open.values()} - {"work"}:
            self.answer_kind(kind)
        self.book(path)
        self.books.check_answered(path)
        self.close()
        self.book(path)
        assert self.fold.ended, f"{path}: the session does not end"
        self.books.check_closed(path)


def _words(request: Event) -> str:
    words = ("tell me about it", "mhm", "no, the other one", "", "stop")
    return words[(int(request.data.turn.removeprefix("turn-")) - 1) % len(words)]


ALPHABET: dict[str, Callable[[Scene], object]] = {
    "V+": lambda s: s.speak(288),
    "V-": lambda s: s.silence(480),
    "I": lambda s: s.observe(TranscriptOffered(text="tell me", final=False)),
    "F": lambda s: s.answer_kind("transcript"),
    "B+": lambda s: s.begins(),
    "B-": lambda s: s.plays_out(),
    "E+": lambda s: s.endpoint_says(0.9),
    "E-": lambda s: s.endpoint_says(0.1),
    "ack": lambda s: s.acknowledges(),
    "T": lambda s: s.tick(1000),
    "work": lambda s: s.work(),
}


BEGINNINGS: dict[str, tuple[str, ...]] = {
    "quiet": (),
    "the assistant speaks": ("V+", "V-", "E+", "F", "B+"),
}
"""What has happened before the walk begins."""


# --- the walk


class Place(NamedTuple):
    """A state, how many sequences lead to it, and one of them."""

    state: bytes
    sequences: int
    path: tuple[str, ...]


class Walk:
    """All sequences, one level after the other."""

    def __init__(self, beginning: tuple[str, ...]) -> None:
        self.snapshots = Snapshots()
        self.sequences = self.steps = 0
        """Sequences that were checked, and steps that were taken for them."""
        scene = Scene()
        for name in beginning:
            ALPHABET[name](scene)
        scene.book("the beginning")
        state, key = self.snapshots.save(scene)
        self.level = {key: Place(state, 1, ())}
        self._closed: set[bytes] = set()

    def run(self, length: int) -> None:
        self._close_all()
        for left in reversed(range(length)):
            self._lengthen(last=left == 0)

    def _lengthen(self, last: bool) -> None:
        """Walk one event further. Of the last level nothing goes on, so its states need no names."""
        following: dict[bytes, Place] = {}
        for key, place in self.level.items():
            for name, act in ALPHABET.items():
                self.sequences += place.sequences
                scene = self.snapshots.load(place.state)
                before = scene.at, len(scene._hops)
                act(scene)
                self.steps += 1
                path = (*place.path, name)
                state, here = place.state, key
                if scene.inputs or (scene.at, len(scene._hops)) != before:
                    scene.book(path)
                    if last:
                        scene.finish(path)
                        continue
                    state, here = self.snapshots.save(scene)
                same = following.get(here)
                count = place.sequences + (0 if same is None else same.sequences)
                following[here] = Place(state, count, path if same is None else same.path)
        self.level = following
        self._close_all()

    def _close_all(self) -> None:
        """Close a copy of every state that was not closed before."""
        for key, place in self.level.items():
            if key not in self._closed:
                self._closed.add(key)
                self.snapshots.load(place.state).finish(place.path)


NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("length", [5, pytest.param(7, marks=NIGHTLY)])
def test_every_sequence_of_events_ends_well(
    beginning: str, length: int, record_property: Callable[[str, object], None]
) -> None:
    walk = Walk(BEGINNINGS[beginning])
    walk.run(length)
    record_property("sequences", walk.sequences)
    print(
        f"from {beginning!r}: {walk.sequences:,} sequences of up to {length} out of {len(ALPHABET)} events, in {walk.steps:,} steps"
    )
    assert walk.sequences == sum(len(ALPHABET) ** n for n in range(1, length + 1))


def test_a_copy_goes_on_as_the_original() -> None:
    """Whatever the sequence: what is decided after a copy is what would have been."""
    snapshots = Snapshots()
    path = ("V+", "V-", "E+", "F", "B+", "V+", "ack", "I", "B-", "work", "T", "V-")
    copied, straight = Scene(), Scene()
    found: list[Any] = []
    for at, name in enumerate(path):
        for scene in (copied, straight):
            ALPHABET[name](scene)
            found.append(list(scene.events))
            scene.book(path[: at + 1])
        assert found[-2] == found[-1]
        state, key = snapshots.save(copied)
        copied = snapshots.load(state)
        assert snapshots.save(straight)[1] == key == snapshots.save(copied)[1]
