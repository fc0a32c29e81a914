"""Every sequence of events up to a length, and what must hold after each: legal states, one end for every start, no reply lost or doubled.

The tree of sequences is walked depth first over copies of one scripted session, so that a sequence costs only its last step. Models answer
only when the alphabet says so; acknowledgements come from the loudspeaker's model as time passes. At every leaf the session is closed.
"""

import copy
from collections import Counter
from collections.abc import Callable

import pytest

from schemas.envelope import Event
from schemas.media import InputCommitted, TextInput
from schemas.registry import REQUESTS
from tests.support.script import Session

pytestmark = pytest.mark.pure

Action = Callable[[Session], object]


def _endpoint(p: float) -> Action:
    def act(s: Session) -> None:
        s.endpoint = p
        s.answer_kind("endpoint")

    return act


ALPHABET: dict[str, Action] = {
    "V+": lambda s: s.speak(288),
    "V-": lambda s: s.silence(480),
    "F": lambda s: s.answer_kind("transcript"),
    "E+": _endpoint(0.9),
    "E-": _endpoint(0.1),
    "B+": lambda s: (s.answer_kind("generate"), s.answer_kind("speak")),
    "ack": lambda s: s.silence(1440),
    "T": lambda s: s.tick(1000),
    "work": lambda s: s.observe(TextInput(text="and now something else")),
    "commit": lambda s: s.observe(InputCommitted()),
}
HOLD = ("endpoint", "transcript", "generate", "speak")


def new_session() -> Session:
    return Session(transcript=_words, hold=HOLD)


def _words(request: Event) -> str:
    words = ("tell me about it", "mhm", "no, the other one", "", "stop")
    return words[int(request.data.turn.removeprefix("turn-")) % len(words)]


def check_running(s: Session, path: tuple[str, ...]) -> None:
    """What must hold at any time."""
    open_turns = Counter(d.turn for d in s.data("turn.started"))
    open_turns.subtract(d.turn for d in s.data("turn.ended"))
    assert all(0 <= n <= 1 for n in open_turns.values()), path
    assert sum(open_turns.values()) <= 1, f"{path}: two turns are open at once"
    begun = [d.response for d in s.data("response.requested") if d.attempt == 1] + [
        d.response for d in s.data("response.prepared")
    ]
    over = [
        d.response for end in ("ended", "failed", "cancelled") for d in s.data(f"response.{end}")
    ]
    assert len(begun) == len(set(begun)) and len(over) == len(set(over)), (
        f"{path}: a response began or ended twice"
    )
    assert set(over) <= set(begun) and len(begun) - len(over) <= 1, (
        f"{path}: two responses are under way at once"
    )
    started = Counter(d.response for d in s.data("response.started"))
    assert all(n == 1 for n in started.values()), f"{path}: a response started twice"
    ended_at = {
        e.data.response: i
        for i, e in enumerate(s.events)
        if e.type in ("response.ended", "response.failed", "response.cancelled")
    }
    for i, e in enumerate(s.events):
        if e.type == "response.started":
            assert i < ended_at.get(e.data.response, i + 1), (
                f"{path}: {e.data.response} started after its end"
            )


def check_closed(s: Session, path: tuple[str, ...]) -> None:
    """What must hold once the session is over."""
    check_running(s, path)
    assert s.fold.ended, f"{path}: the session does not end"
    for start, key in (("turn.started", "turn"), ("overlap.started", "overlap")):
        end = {"turn.started": "turn.ended", "overlap.started": "overlap.resolved"}[start]
        begun = Counter(getattr(d, key) for d in s.data(start))
        over = Counter(getattr(d, key) for d in s.data(end))
        assert begun == over, f"{path}: {start} and {end} do not match: {begun} {over}"
    begun = {d.response for d in s.data("response.requested")} | {
        d.response for d in s.data("response.prepared")
    }
    over = {
        d.response for end in ("ended", "failed", "cancelled") for d in s.data(f"response.{end}")
    }
    assert begun == over, f"{path}: responses without an end: {begun - over}"
    paused = None
    for e in s.events:
        if e.type == "floor.paused":
            assert paused is None, f"{path}: paused twice"
            paused = e.data.response
        elif (
            e.type in ("floor.resumed", "response.ended", "response.cancelled", "response.failed")
            and e.data.response == paused
        ):
            paused = None
    assert paused is None, f"{path}: the floor stays paused"


def check_answered(s: Session, path: tuple[str, ...]) -> None:
    """No reply lost: typed text is answered, or cut by what came later, or by the end."""
    answered = {d.turn for d in s.data("response.requested")}
    texts = [t for t in s.data("turn.ended") if t.reason == "text"]
    for turn in texts[:-1]:
        following = [
            d
            for d in s.data("response.requested")
            if any(turn.text in m.content for m in d.messages)
        ]
        assert following or turn.turn in answered or not s.data("response.requested"), (
            f"{path}: {turn.turn} got no answer"
        )


def walk(s: Session, depth: int, path: tuple[str, ...]) -> int:
    """Check every sequence that begins with `path`; returns how many ended here and below."""
    last = copy.deepcopy(s)
    for kind in {REQUESTS[r.type] for r in last.open.values()}:
        last.answer_kind(kind)
    last.close()
    check_closed(last, path)
    check_answered(last, path)
    if depth == 0:
        return 1
    count = 1
    for name, act in ALPHABET.items():
        following = copy.deepcopy(s)
        act(following)
        check_running(following, (*path, name))
        count += walk(following, depth - 1, (*path, name))
    return count


@pytest.mark.parametrize("depth", [4, pytest.param(6, marks=pytest.mark.slow)])
def test_every_sequence_of_events_ends_well(
    depth: int, record_property: Callable[[str, object], None]
) -> None:
    count = walk(new_session().silence(480), depth, ())
    record_property("sequences", count)
    print(f"{count:,} sequences up to length {depth} over {len(ALPHABET)} events")
    assert count == sum(len(ALPHABET) ** n for n in range(depth + 1))
