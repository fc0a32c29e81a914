"""What reaches a running session besides sound: typed text, push-to-talk, mute, something to say, a change of policy, work.

Anybody may append these observations; this is how our own commands do it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from flows.looking import SessionLine, sessions
from infra.timeline.port import Timeline
from schemas.base import Data
from schemas.cloudevents import encode
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.floor import SayRequested
from schemas.ids import observation_id
from schemas.media import InputCommitted, InputMuted, InputUnmuted, TextInput
from schemas.policy import Policy
from schemas.session import SessionUpdated
from schemas.work import WorkRequested

OVER = ("closed", "ended")


def send(log: Timeline, session: str, data: Data, by: str = "cli") -> Event:
    """Append an observation under a source of its own; its media time is the session's when it is read."""
    source = f"{by}/{uuid4().hex}"
    id_ = observation_id(session, source, 0, data.TYPE)
    event = Event(data.TYPE, session, id_, source, data, sequence=0)
    log.append([encode(event)])
    return event


def running_session(log: Timeline, session: str | None) -> str:
    """The session of that name, or else the only one that is open.

    Raises:
        BadInput: there is no such session, it is over, or several are open.
    """
    found = {line.session: line for line in sessions(log)}
    if session is not None:
        line = found.get(session, SessionLine(session, state="not there"))
        if line.state in (*OVER, "not there"):
            raise BadInput(f"session {session!r} is {line.state}; `venus sessions` lists them")
        return session
    running = [name for name, line in found.items() if line.state not in OVER]
    if len(running) != 1:
        names = ", ".join(running[:5])
        what = f"several sessions are open ({names})" if running else "no session is open"
        raise BadInput(f"{what}; say which with --session")
    return running[0]


def parse_policy(pairs: Sequence[str]) -> dict[str, Any]:
    """`key=value` options as a mapping, checked against the policy.

    Raises:
        BadInput: not of that form, no such key, or a value that does not fit.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(
                f"{pair!r}: write a policy change as key=value, e.g. turn.end_silence=500ms"
            )
        found[key.strip()] = value.strip()
    Policy().with_changes(dict(found))
    return found


def _text(*words: str) -> TextInput:
    return TextInput(text=" ".join(words).strip())


def _say(*words: str) -> SayRequested:
    return SayRequested(request=f"cli-{uuid4().hex[:8]}", text=" ".join(words).strip())


def _announce(*words: str) -> SayRequested:
    return _say(*words).model_copy(update={"urgency": "high", "interruptible": False})


def _set(*pairs: str) -> SessionUpdated:
    return SessionUpdated(policy=parse_policy(pairs), reason="command line")


def _work(*words: str) -> WorkRequested:
    """Words, or a structured request as JSON."""
    text = " ".join(words).strip()
    if not text.startswith("{"):
        return WorkRequested(query=text)
    try:
        return WorkRequested.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "JSON"
        raise BadInput(f"work: {where}: {first['msg']}") from None


SIGNALS: Mapping[str, tuple[Callable[..., Data], str]] = {
    "text": (_text, "typed by the user: a turn of its own"),
    "say": (_say, "the assistant says this at the next eligible moment"),
    "announce": (_announce, "the assistant says this as soon as nobody speaks, and is not stopped"),
    "work": (_work, "delegate this: words, or JSON with query, skill, arguments, route, continues"),
    "set": (_set, "change the policy: key=value …, each an argument of its own"),
    "commit": (InputCommitted, "push-to-talk released: the turn is over"),
    "note": (lambda: InputCommitted(reply=False), "the same, without an answer"),
    "mute": (InputMuted, "the microphone is off"),
    "unmute": (InputUnmuted, "the microphone is on again"),
}
"""Name on the command line → the observation made of the words behind it, and what it means."""
WITHOUT_TEXT = frozenset({"commit", "note", "mute", "unmute"})


def signal(name: str, *words: str) -> Data:
    """The observation that a signal of this name and the words behind it is.

    Raises:
        BadInput: no such signal; it wants a text or wants none; the text makes no sense.
    """
    if name not in SIGNALS:
        raise BadInput(f"{name!r}: there are {', '.join(SIGNALS)}")
    if any(map(str.strip, words)) is (name in WITHOUT_TEXT):
        wish = "takes no text" if name in WITHOUT_TEXT else "needs a text"
        raise BadInput(f"{name} {wish}")
    return SIGNALS[name][0](*filter(str.strip, words))
