"""Prove: the recorded decisions follow from the recorded inputs, or the first one that does not is named."""

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from flows.cli import main
from flows.moments import parse_moment
from flows.replay import prove, prove_both
from flows.session_files import Wishes, export, open_file
from infra.timeline import open_timeline
from operators import pipeline
from operators.interrupt import Interrupt
from schemas.base import Kind
from schemas.cloudevents import decode, encode
from schemas.errors import BadInput
from schemas.record import Lane
from tests.replay.sessions import memory, records, talk

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sessions")
    export(memory(*(talk(f"s{i}", 20 + 5 * i).close() for i in range(3))), path, Wishes())
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return int(caught.value.code or 0)


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_a_recorded_session_proves_by_both_ways(pacing: str) -> None:
    log = memory(talk("a", 40, pacing=pacing).close(), talk("b", 30, pacing=pacing).close())
    for proof in prove_both(log).values():
        assert proof.same and proof.bytewax_agrees and proof.ended and proof.decisions > 50


def test_a_session_cut_off_anywhere_proves() -> None:
    whole = records(talk("s", 15).close())
    for cut in range(1, len(whole), 37):
        log = open_timeline("memory://")
        log.append(whole[:cut])
        assert prove(log)["s"].same


def changed_text(record):
    event = decode(record)
    if event.type != "turn.ended":
        return record
    return encode(event._replace(data=event.data.model_copy(update={"text": "something else"})))


def test_the_first_difference_is_named() -> None:
    log = open_timeline("memory://")
    log.append([changed_text(r) for r in records(talk("s", 15).close())])
    found = prove(log)["s"].difference
    assert found is not None and found.operator == "turn"
    assert found.fields() == [("data.text", "something else", "what is the weather in Paris")]
    assert [e.type for e in found.before][-1] == "perception.window"


def test_a_missing_and_an_extra_decision_are_found() -> None:
    whole = records(talk("s", 15).close())
    place = next(i for i, r in enumerate(whole) if decode(r).type == "turn.ended")
    for some in (
        [*whole[:place], *whole[place + 1 :]],
        [*whole[:-1], *records(talk("s", 25))[-40:], whole[-1]],
    ):
        log = open_timeline("memory://")
        log.append(some)
        assert not prove(log)["s"].same


class Deaf(Interrupt):
    """A bug: the words of an overlap are ignored."""

    def _words(self, state, text, now, out):
        return None


def test_a_bug_in_an_operator_is_found_and_explained(monkeypatch, capsys, tmp_path: Path) -> None:
    export(memory(talk("s", 15).close()), tmp_path / "s.mcap", Wishes())
    operators = tuple(Deaf() if isinstance(o, Interrupt) else o for o in pipeline.OPERATORS)
    monkeypatch.setattr("operators.fold.SessionFold.__init__.__defaults__", (operators, None, None))
    with open_file(tmp_path / "s.mcap") as log:
        proof = prove(log)["s"]
    assert proof.difference is not None and not proof.same
    assert {"interrupt"} == {proof.difference.operator}
    from rich.console import Console

    from flows.replay_report import explain

    explain(proof, Console(width=120))
    said = capsys.readouterr().out
    assert "operator interrupt" in said and "recorded" in said and "transcript.final" in said
    assert len(said.splitlines()) < 40


def test_another_version_is_said() -> None:
    session = talk("s", 10).close()
    log = open_timeline("memory://")
    for record in records(session):
        event = decode(record)
        if event.type == "session.configured":
            data = event.data.model_copy(update={"operators": {**event.data.operators, "turn": 99}})
            record = encode(event._replace(data=data))
        log.append([record])
    assert prove(log)["s"].versions["turn"] == (99, pipeline.operator_versions()["turn"])


def test_until_stops_at_a_moment() -> None:
    log = memory(talk("s", 40).close())
    part = prove(log, until=parse_moment("0:10"))["s"]
    assert part.same and 10_000_000 <= part.media_us < 10_200_000
    some = next(e for r in log.scan(Lane.TIMELINE, 0) if (e := decode(r)).type == "turn.ended")
    assert 0 <= prove(log, until=parse_moment(some.id))["s"].media_us - some.mediatime < 96_000


@pytest.mark.parametrize(
    ("text", "us"), [("83.5s", 83_500_000), ("1:23.5", 83_500_000), ("1:00:00", 3_600_000_000)]
)
def test_moments(text: str, us: int) -> None:
    assert parse_moment(text).us == us
    with pytest.raises(BadInput):
        parse_moment("?")


def test_a_folder_on_the_command_line(folder: Path, tmp_path: Path, capsys) -> None:
    assert run("replay", str(folder), "--junit", str(tmp_path / "j.xml"), "-j", "2") == 0
    assert (
        "3 of 3 sessions the same, by the bare fold and through Bytewax" in capsys.readouterr().out
    )
    suites = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("3", "0")


def test_differences_and_unreadable_files_beside_good_ones(
    folder: Path, tmp_path: Path, capsys
) -> None:
    good = (folder / "s0.mcap").read_bytes()
    (tmp_path / "good.mcap").write_bytes(good)
    (tmp_path / "cut.mcap").write_bytes(good[:-50])
    assert run("replay", str(tmp_path), "-j", "1") == 2
    said = capsys.readouterr()
    assert (
        "1 of 1 sessions the same" in said.out
        and "truncated" in said.err
        and len(said.err.splitlines()) == 1
    )
    log = open_timeline("memory://")
    log.append([changed_text(r) for r in records(talk("bad", 15).close())])
    export(log, tmp_path / "bad.mcap", Wishes())
    assert run("replay", str(tmp_path), "-j", "1", "--junit", str(tmp_path / "j.xml")) == 1
    out = capsys.readouterr().out
    assert "data.text: something else → what is the weather in Paris" in out
    failure = ElementTree.parse(tmp_path / "j.xml").getroot().find(".//failure")
    assert (
        failure is not None
        and "operator turn" in str(failure.get("message"))
        and "something else" in str(failure.text)
    )


def test_json_lines(folder: Path, capsys) -> None:
    assert run("replay", str(folder / "s0.mcap"), "--json") == 0
    line = json.loads(capsys.readouterr().out)
    assert line["session"] == "s0" and line["same"] and line["bytewax_agrees"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere",),
        ("--until", "?"),
        ("--html", "x.html"),
        ("--set", "turn.hold_max=2s", "--until", "2s"),
        ("--set", "turn.hold_max=2s", "--junit", "x.xml"),
    ],
)
def test_wrong_use_is_one_line(folder: Path, capsys, arguments: tuple[str, ...]) -> None:
    assert run("replay", str(folder / "s0.mcap"), *arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_state_at_any_event(folder: Path, capsys) -> None:
    file = str(folder / "s0.mcap")
    with open_file(folder / "s0.mcap") as log:
        events = [decode(r) for r in log.scan(Lane.TIMELINE, 0)]
    started = next(e for e in events if e.type == "turn.started")
    assert run("state", file, "--at", started.id[:12], "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["states"]["turn"]["turn"]["turn"] == "turn-1"
    assert run("state", file, "--at", "0.5s", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["states"]["turn"]["turn"] is None
    assert "deque(" not in out
    assert run("state", file, "--json") == 0
    at_the_end = json.loads(capsys.readouterr().out)
    assert at_the_end["after"] == [e for e in events if e.kind is not Kind.DECISION][-1].id
    assert run("state", file, "--at", "ffffnone") == 2
    assert run("replay", file, "--until", "ffffnone") == 2
    assert "no event 'ffffnone'" in capsys.readouterr().err
    assert run("state", file, "--at", "1s", "--operator", "nobody") == 2


def test_a_session_that_nobody_has_configured(tmp_path: Path, capsys) -> None:
    log = f"sqlite:///{tmp_path}/log.db"
    with open_timeline(log) as timeline:
        timeline.append([r for r in records(talk("s", 6).close()) if b"configured" not in wire(r)])
    assert run("state", "--timeline", log, "--json") == 0
    assert json.loads(capsys.readouterr().out)["now_us"] == 0
    for more in ([], ["--set", "turn.hold_max=2s"]):
        assert run("replay", "--timeline", log, *more) == 2
        assert "without a session.configured" in capsys.readouterr().err
    empty = f"sqlite:///{tmp_path}/empty.db"
    open_timeline(empty).close()
    for more in ([], ["--set", "turn.hold_max=2s"]):
        assert run("replay", "--timeline", empty, *more) == 2
        assert "there is no session in it" in capsys.readouterr().err


def wire(record) -> bytes:
    return dict(record.headers)["ce_type"]


def test_stepping_shows_each_input_with_what_it_caused(folder: Path, capsys) -> None:
    assert run("replay", str(folder / "s0.mcap"), "--from", "2s", "--until", "3s") == 0
    out = capsys.readouterr().out
    assert "transcript.final" in out and "└─ turn.ended" in out
    for nowhere in ("ffffnone", "99:00"):
        assert run("replay", str(folder / "s0.mcap"), "--from", nowhere) == 2
        assert f"no '{nowhere}'" in capsys.readouterr().err


def test_the_helper_classes_are_plain() -> None:
    assert dataclasses.is_dataclass(parse_moment("1s"))
