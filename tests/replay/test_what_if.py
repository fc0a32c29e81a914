"""What-if: the recorded world answers other decisions; both sides are aligned, and the recorded user is trusted only so far."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from flows.counterfactual import take_apart, under
from flows.replay import all_records, sessions_of
from flows.session_files import Wishes, export
from flows.what_if import align, explain_what_if, what_if, what_if_one
from operators.fold import SessionFold
from schemas.envelope import Event
from schemas.errors import BadInput
from schemas.media import TextInput
from schemas.turns import SpeechStarted
from tests.replay.sessions import memory, talk
from tests.support.script import Session

pytestmark = pytest.mark.flow

REPLIES = ["Short.", "One. Two is longer than one, is it? And three comes last, as it always does."]


def events(log) -> list[Event]:
    return [event for _, event in sessions_of(all_records(log))]


@pytest.mark.parametrize("pacing", ["live", "asap"])
@pytest.mark.parametrize("playback", ["acknowledged", "assumed"])
@pytest.mark.parametrize("reply", REPLIES)
def test_nothing_changed_gives_exactly_what_was_recorded(
    pacing: str, playback: str, reply: str
) -> None:
    log = memory(
        talk("s", 60, pacing=pacing, playback=playback, reply=reply).close(), with_media=False
    )
    rec = take_apart("s", events(log))
    outcome = under(rec, lambda policy: policy)
    assert [(e.type, e.mediatime) for e in outcome.decisions] == [
        (e.type, e.mediatime) for e in rec.decisions
    ]
    assert not outcome.unanswered
    assert all(pair.state == "same" for pair in align(rec.decisions, outcome.decisions))


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_longer_silence_moves_turns_and_answers(pacing: str) -> None:
    log = memory(talk("s", 30, pacing=pacing).close())
    (result,) = what_if(log, None, {"turn.end_silence": "640ms"})
    first = result.changed[0]
    assert (first.operator, first.either.type) == ("turn", "turn.ended")
    assert first.recorded is not None and first.derived is not None
    assert first.derived.mediatime - first.recorded.mediatime >= 100_000
    started = [p for p in result.pairs if p.either.type == "response.started"]
    assert started[0].state == "moved"
    assert result.trusted_until == started[0].at


@pytest.mark.parametrize("at", [None, 3_400_000])
def test_typed_text_comes_when_it_came(at: int | None) -> None:
    """Though the answers to what was asked before come at once in a world put together anew."""
    s = Session(pacing="asap", playback="assumed", hold={"generate"})
    s.speak(1200).silence(2200)
    text = s.observe(TextInput(text="and now"))
    assert text is s
    s.inputs[-1] = s.inputs[-1]._replace(mediatime=at)
    s.silence(2000).answer_kind("generate")
    s.close()
    fold, log = SessionFold("s"), []
    for event in s.inputs:
        log += [event, *(d for applied in fold.feed(event) for d in applied.decisions)]
    result = what_if_one("s", log, {"response.max_tokens": "77"})
    assert {p.either.type for p in result.changed} == {"response.requested"}
    assert {f[0] for p in result.changed for f in p.fields} == {"max_tokens"}


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_recording_may_be_put_under_one_policy_after_the_other(pacing: str) -> None:
    rec = take_apart("s", events(memory(talk("s", 30, pacing=pacing).close())))
    longer = lambda policy: policy.with_changes({"turn.end_silence": "640ms"})  # noqa: E731
    first = under(rec, longer)
    assert first.decisions != rec.decisions and not first.unanswered
    assert under(rec, longer) == first
    assert under(rec, lambda policy: policy).decisions == rec.decisions


def test_a_prompt_is_explained_by_its_diff(capsys) -> None:
    from rich.console import Console

    log = memory(talk("s", 20).close())
    (result,) = what_if(log, None, {"response.system_prompt": "Be brief."})
    assert {p.either.type for p in result.changed} == {"response.requested"}
    assert {f[0] for p in result.changed for f in p.fields} == {"messages.0.content"}
    assert result.trusted_until is None
    explain_what_if(result, Console(width=160))
    said = capsys.readouterr().out
    assert "first divergence" in said and "Be brief." in said and len(said.splitlines()) < 45


def test_a_pause_that_does_not_come_lets_the_loudspeaker_play_on() -> None:
    log = memory(talk("s", 20).close())
    (result,) = what_if(log, None, {"overlap.pause_after": "5s", "overlap.interrupt_after": "6s"})
    assert [p for p in result.changed if p.either.type == "floor.paused" and p.state == "gone"]
    ended = [e for e in result.derived if e.type in ("response.ended", "response.cancelled")]
    assert ended and result.derived[-1].type == "session.ended"


def test_alignment_is_by_time_within_a_type() -> None:
    def at(ms: int) -> Event:
        return Event(
            "speech.started",
            "s",
            str(ms),
            "conversation/turn",
            SpeechStarted(start_us=7),
            ms * 1000,
        )

    pairs = align([at(0), at(1000), at(9000)], [at(990), at(9000), at(20_000)])
    assert [p.state for p in pairs] == ["gone", "moved", "same", "new"]


def test_on_the_command_line(tmp_path: Path, capsys) -> None:
    export(memory(talk("s", 20).close()), tmp_path / "s.mcap", Wishes())
    for change, code in (
        ("turn.end_silence=640ms", 1),
        ("turn.end_silence=320ms", 0),
        ("turn.nonsense=1", 2),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["replay", str(tmp_path / "s.mcap"), "--set", change, "--json"])
        assert caught.value.code == code
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[0])
    assert found["changed"][0]["operator"] == "turn" and found["trusted_until_us"] > 0
    assert json.loads(lines[1])["changed"] == []


def test_an_unknown_session() -> None:
    with pytest.raises(BadInput, match="no session"):
        what_if(memory(talk("s", 5).close()), "t", {})
