"""`venus send`: what it appends is what a device would append, and wrong use is one clear line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.signals import SIGNALS, WITHOUT_TEXT, signal
from infra.timeline import open_timeline
from operators.fold import SessionFold
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.record import Lane
from tests.harness.support import append
from tests.support.script import Session

pytestmark = pytest.mark.flow


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A log on which one session is open and one is over."""
    made = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(made) as log:
        append(log, *Session("here").silence(960).inputs)
        append(log, *Session("gone").silence(960).close().inputs)
    return made


def send(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["send", *arguments])
    if isinstance(result.exception, BadInput):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def decisions(url: str, session: str) -> list[Event]:
    fold = SessionFold(session)
    with open_timeline(url, create=False) as log:
        records = list(log.scan(Lane.TIMELINE, log.partition_of(session), session=session))
    return [d for r in records for step in fold.feed(decode(r)) for d in step.decisions]


def test_typed_text_becomes_a_turn_of_the_session_that_is_open(url: str) -> None:
    assert send("text", "What", "time is it?", "--timeline", url) == "text.input → here\n"
    turns = [d.data for d in decisions(url, "here") if d.type == "turn.ended"]
    assert [(t.text, t.reason) for t in turns] == [("What time is it?", "text")]


def test_something_to_say_is_prepared(url: str) -> None:
    send("announce", "Dinner is ready.", "--session", "here", "--timeline", url)
    prepared = [d.data for d in decisions(url, "here") if d.type == "response.prepared"]
    assert [(p.text, p.interruptible) for p in prepared] == [("Dinner is ready.", False)]


def test_work_may_be_words_or_a_structured_request(url: str) -> None:
    send("work", "Find", "a hotel", "--timeline", url)
    send("work", '{"query": "What did I say?", "route": "direct"}', "--timeline", url)
    queued = [d.data for d in decisions(url, "here") if d.type == "work.queued"]
    assert [(q.query, q.route) for q in queued] == [
        ("Find a hotel", "auto"),
        ("What did I say?", "direct"),
    ]
    for text, what in (('{"route": "fast"}', "work: route: "), ('{"query"', "work: JSON: ")):
        with pytest.raises(BadInput, match=what) as caught:
            signal("work", text)
        assert "\n" not in str(caught.value)


def test_the_same_signal_twice_is_two_signals(url: str) -> None:
    for _ in range(2):
        send("text", "hello", "--timeline", url)
    assert sum(d.type == "turn.ended" for d in decisions(url, "here")) == 2


def test_a_change_of_policy_is_checked_before_it_is_sent(url: str) -> None:
    send("set", "turn.end_silence=500ms", "turn.hold_max=2s", "--timeline", url)
    with open_timeline(url, create=False) as log:
        last = [decode(r) for r in log.scan(Lane.TIMELINE, log.partition_of("here"))][-1]
    assert last.data.policy == {"turn.end_silence": "500ms", "turn.hold_max": "2s"}
    send("set", "work.holding=Let me see", "turn.reopen_within=0", "--timeline", url)
    with open_timeline(url, create=False) as log:
        last = [decode(r) for r in log.scan(Lane.TIMELINE, log.partition_of("here"))][-1]
    assert last.data.policy == {"work.holding": "Let me see", "turn.reopen_within": "0"}
    with pytest.raises(BadInput, match="end_silense"):
        send("set", "turn.end_silense=1s", "--timeline", url)
    with pytest.raises(BadInput, match="key=value"):
        send("set", "patient", "--timeline", url)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["text", "hello", "--session", "gone"], "session 'gone' is closed"),
        (["text", "hello", "--session", "elsewhere"], "session 'elsewhere' is not there"),
        (["shout", "hello"], "'shout': there are text, say"),
        (["text"], "text needs a text"),
        (["mute", "hello"], "mute takes no text"),
    ],
)
def test_wrong_use(url: str, arguments: list[str], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        send(*arguments, "--timeline", url)


def test_with_several_open_sessions_one_has_to_be_named(url: str) -> None:
    with open_timeline(url) as log:
        append(log, *Session("there").silence(960).inputs)
    with pytest.raises(BadInput, match=r"several sessions are open \(.*there.*\)"):
        send("text", "hello", "--timeline", url)


@pytest.mark.parametrize("name", sorted(SIGNALS))
def test_every_signal_is_an_observation_that_anybody_may_write(name: str) -> None:
    text = "" if name in WITHOUT_TEXT else "turn.hold_max=2s" if name == "set" else "words"
    data = signal(name, *[text] * bool(text))
    assert data.KIND.name == "OBSERVATION" and data.WRITER.name == "DEVICE"
