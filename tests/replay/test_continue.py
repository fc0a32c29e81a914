"""Going on from a point of a recording: the past is whole wherever it is cut, and flows that start on it go on as after a crash."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main
from flows.continuation import Continuation, _Media, append, past_of
from flows.conversation_session import ConversationSession
from flows.conversation_session import what_is_logged as decisions_logged
from flows.moments import Moment, parse_moment
from flows.perception_batches import WAKE
from flows.perception_restart import what_is_logged
from flows.replay import prove_both
from flows.session_files import Wishes, export
from flows.session_import import import_file
from flows.settings import timeline_at
from flows.supervisor import OneRun
from infra.timeline import Timeline, open_timeline
from infra.timeline.port import Place
from operators.fold import SessionFold
from operators.interrupt import Interrupt
from schemas import ids
from schemas.base import Kind
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput
from schemas.media import TextInput
from schemas.perception import PerceptionWindow
from schemas.record import Lane, Record
from schemas.registry import KINDS, PARTIALS, REQUESTS, TERMINALS
from schemas.responses import GenerationFailed, SpeechFailed
from tests.capture.runtime import Runtime, _outcome, logged
from tests.capture.test_device import INTERRUPTING, QUESTION, play, recording
from tests.replay.sessions import memory, talk

pytestmark = pytest.mark.flow

PROMPT = {"response.system_prompt": "Answer in Latin."}


def written(past: Continuation, url: str = "memory://") -> Timeline:
    log = open_timeline(url)
    append(past, log)
    return log


def at_event(event: Event) -> Moment:
    return Moment(event.id, id=event.id)


def inputs_of(log: Timeline, session: str) -> list[Event]:
    return [e for e in logged(log, session) if KINDS[e.type] is not Kind.DECISION]


def decided(fold: SessionFold, inputs: list[Event]) -> list[Event]:
    return [d for event in inputs for step in fold.feed(event) for d in step.decisions]


def essence(event: Event) -> tuple[str, int | None, Any]:
    return event.type, event.mediatime, event.data


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_past_cut_anywhere_and_what_came_after_it_give_the_whole(pacing: str) -> None:
    log = memory(talk("s", 20, pacing=pacing).close())
    inputs = inputs_of(log, "s")
    whole = decided(SessionFold("s"), inputs)
    for cut in inputs[2:-6:3]:
        past = past_of(log, "s", at_event(cut), {})
        there = [decode(r) for r in past.timeline]
        kept = {(e.source, e.id) for e in there if KINDS[e.type] is not Kind.DECISION}
        assert (cut.source, cut.id) in kept
        rest = [e for e in inputs if (e.source, e.id) not in kept]
        fold = SessionFold("s")
        before = decided(fold, [e for e in there if KINDS[e.type] is not Kind.DECISION])
        assert [e for e in there if KINDS[e.type] is Kind.DECISION] == before
        assert before + decided(fold, rest) == whole


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_under_another_name_every_id_is_derived_from_it(pacing: str) -> None:
    log = memory(talk("s", 20, pacing=pacing).close())
    cuts = [
        e for e in logged(log, "s") if e.type in ("turn.ended", "response.started", "floor.paused")
    ]
    assert len(cuts) > 4
    for cut in cuts:
        past = past_of(log, "s", at_event(cut), {}, "new")
        events = [decode(r) for r in past.timeline]
        same = [decode(r) for r in past_of(log, "s", at_event(cut), {}).timeline]
        assert {e.session for e in events} == {"new"}
        assert [essence(e) for e in events if e.type != "session.updated"] == [
            essence(e) for e in same if e.type != "session.updated"
        ]
        known = {e.id for e in events} | {"opened"}
        for event in events:
            assert event.cause is None or event.cause in known, event
            if event.type == "perception.window":
                first = event.data.first_sample
                assert event.id == ids.window_id("new", "mic", 0, first)
            elif event.type in TERMINALS:
                assert event.id == ids.outcome_id(event.cause or "", 1, event.type, 0)
        result = prove_both(written(past))["new"]
        assert result.same and result.bytewax_agrees


def test_the_named_decision_is_taken_under_the_new_policy() -> None:
    log = memory(talk("s", 20).close())
    ended = next(e for e in logged(log, "s") if e.type == "turn.ended")
    for name in (None, "new"):
        past = past_of(log, "s", at_event(ended), dict(PROMPT), name)
        events = [decode(r) for r in past.timeline]
        (asked,) = [e for e in events if e.type == "response.requested"]
        assert asked.data.messages[0].content == "Answer in Latin."
        (updated,) = [e for e in events if e.type == "session.updated"]
        assert ended.id in updated.data.reason and updated.data.policy == PROMPT
        again = next(e for e in events if e.type == "turn.ended")
        assert events.index(updated) < events.index(again) and again.data == ended.data
        assert past.open == {"generate": 1}
        assert prove_both(written(past))[name or "s"].same


def test_a_time_cuts_before_what_comes_after_it() -> None:
    log = memory(talk("s", 20).close())
    past = past_of(log, "s", parse_moment("5s"), dict(PROMPT))
    assert 4_900_000 < past.until_us <= 5_000_000
    assert decode(past.timeline[-1]).type == "session.updated"
    to_the_end = past_of(log, "s", None, {})
    assert to_the_end.until_us > 19_000_000
    assert not {"session.closed", "session.ended"} & {decode(r).type for r in to_the_end.timeline}


def test_a_past_can_be_gone_on_with_again_and_again() -> None:
    log = memory(talk("s", 20).close())
    for until, name in (("15s", "b"), ("10s", "c"), ("5s", "d")):
        log = written(past_of(log, log_name(log), parse_moment(until), {}, name))
    updates = [e.data.reason for e in logged(log, "d") if e.type == "session.updated"]
    assert [u.split()[1] for u in updates] == ["c"] and prove_both(log)["d"].same


def log_name(log: Timeline) -> str:
    return next(r.key or "" for r in log.scan(Lane.TIMELINE, 0))


# --- media


@pytest.mark.parametrize("rate", [16_000, 48_000])
@pytest.mark.parametrize("chunk_ms", [100.0, 21.3, 1000.0, 0.0])
def test_media_ends_with_the_last_window(tmp_path: Path, rate: int, chunk_ms: float) -> None:
    with open_timeline("memory://") as log:
        with Runtime(log):
            play(log, recording(tmp_path / "a.wav", QUESTION, rate), speed=None, chunk_ms=chunk_ms)
        cut = next(e for e in logged(log, "s") if e.type == "turn.ended")
        past = past_of(log, "s", at_event(cut), {})
    last = [decode(r) for r in past.timeline if decode(r).type == "perception.window"][-1]
    samples = sum(decode(r).data.samples for r in past.media)

    assert 0 <= samples / rate - (last.mediatime or 0) / 1e6 < 0.0001
    perception, first = what_is_logged(written(past), [0])
    assert first[0].sessions["s"].channels["mic"].last == (0, last.data.first_sample)
    assert perception


def test_what_fills_a_gap_and_what_begins_an_epoch_is_kept() -> None:
    def sound(number: int, at_ms: int, rate: int = 16_000) -> Event:
        pcm = Pcm(rate, 1, bytes(rate // 5))  # 100 ms
        at = at_ms * 1000
        return Event("media.audio", "s", f"m{number}", "device", pcm, at, sequence=number)

    def window(first: int) -> PerceptionWindow:
        return PerceptionWindow(
            channel="mic", epoch=0, first_sample=first, start_us=0, probabilities=None, level_db=0
        )

    # The last window ends at 192 ms, in a gap of 150 ms: what comes after it is needed, but only to be there.
    media = _Media(window(1536), epochs=0)
    assert [len(media.kept(sound(n, at))) for n, at in ((0, 0), (1, 250), (2, 350))] == [3200, 2, 0]
    # An epoch without a window keeps its number by 10 ms of its own; one that is not in the past is not in the copy.
    media = _Media(window(0), epochs=1)
    records = (sound(0, 0), sound(1, 100, 8_000), sound(2, 200, 8_000), sound(3, 300))
    assert [len(media.kept(r)) for r in records] == [2 * 1536, 160, 0, 0]


def test_without_its_media_nobody_can_go_on() -> None:
    log = memory(talk("s", 10).close(), with_media=False)
    with pytest.raises(BadInput, match="does not hold the media"):
        past_of(log, "s", parse_moment("5s"), {})


# --- going on


class Restarted(Runtime):
    """The flows as they start on a log that holds a past."""

    def _run(self) -> None:
        timeline = self.timeline
        starts, first = what_is_logged(timeline, range(timeline.partitions))
        _, said = decisions_logged(timeline, range(timeline.partitions), _Nobody())
        for one in said:
            self._sessions[one.session] = ConversationSession(one.session, one.decisions)
        lane = Lane.TIMELINE
        decide = timeline.reader({Place(lane, p): 0 for p in range(timeline.partitions)})
        hear = timeline.reader(starts)
        self._past = self._answered()
        while not self._stop.is_set():
            out = self.perception.on_batch([*first, *hear.poll(0.003), WAKE])
            first = []
            if out:
                timeline.append(out)
            for record in decide.poll(0.0):
                self._decide(record)
            self._answer()

    def _answered(self) -> dict[str, bool]:
        """Request → whether its end is in the past (else a part)."""
        found: dict[str, bool] = {}
        for record in self.timeline.scan(Lane.TIMELINE, 0):
            event = decode(record)
            if event.type in TERMINALS or event.type in PARTIALS:
                found[event.cause or ""] = (
                    found.get(event.cause or "", False) or event.type in TERMINALS
                )
        return found

    def _outcomes(self, request: Event) -> list[Event]:
        done = self._past.get(request.id)
        if done is None:
            return super()._outcomes(request)
        if done:
            return []
        data: Any = request.data
        if REQUESTS[request.type] == "generate":
            lost: Any = GenerationFailed(response=data.response, reason="lost")
        else:
            lost = SpeechFailed(response=data.response, index=data.index, reason="lost")
        return [_outcome(request, lost)]


class _Nobody(dict):  # type: ignore[type-arg]
    """No session has ended."""

    def add(self, name: str) -> None:
        raise AssertionError(f"{name} has ended")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Timeline]]:
    """A conversation with an interruption, once in each pacing."""
    folder = tmp_path_factory.mktemp("recorded")
    logs = {}
    for pacing, speed in (("asap", None), ("live", 8.0)):
        log = logs[pacing] = open_timeline("memory://")
        said = {2: "no, that is not what I meant"}
        with Runtime(
            log, speed=speed or 1.0, hears=lambda n, said=said: said.get(n, "what is this")
        ):
            play(log, recording(folder / "a.wav", INTERRUPTING), speed=speed)
    yield logs


@pytest.mark.parametrize("name", [None, "new"])
@pytest.mark.parametrize("pacing", ["asap", "live"])
@pytest.mark.parametrize(
    "where", ["turn.started", "turn.ended", "response.text", "response.started", "floor.paused"]
)
def test_a_device_and_flows_go_on_from_anywhere(
    recorded: dict[str, Timeline], tmp_path: Path, where: str, pacing: str, name: str | None
) -> None:
    log = recorded[pacing]
    cut = next(e for e in logged(log, "s") if e.type == where)
    past = past_of(log, "s", at_event(cut), dict(PROMPT), name)
    session = name or "s"
    speed = None if pacing == "asap" else 8.0
    new = written(past)
    with Restarted(new, speed=speed or 1.0, hears=lambda n: f"and now number {n}"):
        device = play(new, recording(tmp_path / "b.wav", QUESTION), session, speed=speed)
    assert device.fold.ended
    events = logged(new, session)
    assert [encode(e) for e in events[: len(past.timeline)]] == [
        Record(r.key, r.headers, r.value) for r in past.timeline
    ]
    went_on = events[len(past.timeline) :]
    asked = [e for e in went_on if e.type == "response.requested"]
    assert asked and all(e.data.messages[0].content == "Answer in Latin." for e in asked)
    formats = [e.data.epoch for e in events if e.type == "perception.format_changed"]
    assert formats == [0, 1]
    turns = [e.data for e in went_on if e.type == "turn.ended"]
    assert turns[-1].text.startswith("and now number")
    assert not [e for e in events if e.type == "event.rejected"]
    ids_ = [(e.source, e.id) for e in events if KINDS[e.type] is Kind.DECISION]
    assert len(ids_) == len(set(ids_))
    result = prove_both(new)[session]
    assert result.same and result.ended and result.bytewax_agrees, result.difference
    # Nothing that is not over stays open: each request has its end.
    ends = {e.cause for e in events if e.type in TERMINALS}
    open_ = {e.id for e in events if e.type in REQUESTS} - ends
    assert not open_


@pytest.mark.parametrize("pacing", ["asap", "live"])
def test_typed_text_goes_on_too(recorded: dict[str, Timeline], tmp_path: Path, pacing: str) -> None:
    log = recorded[pacing]
    cut = next(
        e for e in logged(log, "s") if e.type == "response.ended" or e.type == "session.closed"
    )
    past = past_of(log, "s", at_event(cut) if cut.type == "response.ended" else None, {}, "typed")
    new = written(past)
    text = TextInput(text="what did I say")
    new.append(
        [encode(Event(text.TYPE, "typed", "t1", "keyboard", text, past.until_us, sequence=0))]
    )
    speed = None if pacing == "asap" else 8.0
    with Restarted(new, speed=speed or 1.0):
        play(new, recording(tmp_path / "b.wav", ((0.5, False),)), "typed", speed=speed)
    events = logged(new, "typed")
    said = [e.data.text for e in events[len(past.timeline) :] if e.type == "turn.ended"]
    assert "what did I say" in said
    assert prove_both(new)["typed"].same


# --- the command


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return int(caught.value.code or 0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = memory(talk("s", 20).close(), talk("other", 5).close())
    export(log, tmp_path / "s.mcap", Wishes(sessions=("s",)))
    ended = next(e for e in logged(log, "s") if e.type == "turn.ended")
    url = f"sqlite:///{tmp_path}/new.db"
    arguments = ("continue", str(tmp_path / "s.mcap"), "--until", ended.id[:10], "--timeline", url)
    assert run(*arguments, "--set", "response.system_prompt=Answer in Latin.", "--json") == 0
    line = json.loads(capsys.readouterr().out)
    assert line["session"] == "s" and line["open_requests"] == {"generate": 1}
    assert line["media_records"] > 10
    assert run("replay", "--timeline", url) == 0
    capsys.readouterr()
    assert run(*arguments) == 2
    assert "--as" in capsys.readouterr().err
    assert run(*arguments, "--as", "new") == 0
    assert capsys.readouterr().out == "new\n"
    assert run("replay", "--timeline", url) == 0
    # What has been gone on with is a recording like any other.
    export(timeline_at(url), tmp_path / "new.mcap", Wishes(sessions=("new",)))
    assert import_file(tmp_path / "new.mcap", open_timeline("memory://"))[0] == ["new"]
    lock = OneRun(url)
    assert run(*arguments, "--as", "third") == 2
    lock.release()
    assert "another `venus run`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--until", "ffffffff"), "no event"),
        (("--until", "?"), "neither an event's id nor"),
        (("--until", "session-end"), "no event"),
        (("--set", "turn.nonsense=1"), "no policy key"),
        (("--set", "x"), "key=value"),
        (("--session", "nobody"), "no session"),
    ],
)
def test_wrong_use_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    export(memory(talk("s", 5).close()), tmp_path / "s.mcap", Wishes())
    url = f"sqlite:///{tmp_path}/new.db"
    assert run("continue", str(tmp_path / "s.mcap"), "--timeline", url, *arguments) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 1


def test_other_operators_do_not_go_on_with_what_they_would_not_have_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Deaf(Interrupt):
        def _words(self, *_: Any) -> None:
            return None

    from operators import pipeline

    log = memory(talk("s", 20).close())
    operators = tuple(Deaf() if isinstance(o, Interrupt) else o for o in pipeline.OPERATORS)
    monkeypatch.setattr("operators.fold.SessionFold.__init__.__defaults__", (operators, None, None))
    with pytest.raises(BadInput, match="does not come out as recorded"):
        past_of(log, "s", None, {})
