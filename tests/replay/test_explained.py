"""A changed threshold, a changed prompt and a bug: each is found by the regression run and explained in one screen."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main
from flows.session_files import Wishes, export
from operators import pipeline
from operators.interrupt import Interrupt
from operators.interrupt_state import InterruptState
from operators.reducer import Out
from tests.replay.sessions import memory, talk
from tests.support.script import Session

pytestmark = pytest.mark.flow

LINES, COLUMNS = 40, 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recorded sessions; the second has no overlap."""
    folder = tmp_path_factory.mktemp("recorded")
    export(memory(talk("a", 60).close()), folder / "a.mcap", Wishes())
    calm = Session("b").silence(992).speak(1216).silence(6000)
    export(memory(calm.close()), folder / "b.mcap", Wishes())
    return folder


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main(["replay", *arguments])
        code = caught.value.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().out

    return run


def fits(said: str) -> list[str]:
    lines = said.splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, said
    return lines


def with_bug(monkeypatch: pytest.MonkeyPatch, bug: type[Interrupt]) -> None:
    operators = tuple(bug() if isinstance(o, Interrupt) else o for o in pipeline.OPERATORS)
    monkeypatch.setattr("operators.fold.SessionFold.__init__.__defaults__", (operators, None, None))


def test_nothing_changed(folder: Path, replay: Any) -> None:
    code, said = replay(str(folder), "-j", "1")
    assert code == 0 and "2 of 2 sessions the same" in said


def test_a_threshold(folder: Path, replay: Any) -> None:
    code, said = replay(str(folder / "a.mcap"), "--set", "turn.end_silence=640ms")
    lines = fits(said)
    assert code == 1
    assert lines[0].startswith("a: ") and "decisions change" in lines[0]
    assert lines[1].endswith("operator turn, turn.ended 0.320 s later")
    assert "the user would have noticed" in said and "turn.ended 14 → 12" in " ".join(said.split())


def test_a_prompt(folder: Path, replay: Any) -> None:
    code, said = replay(str(folder / "a.mcap"), "--set", "response.system_prompt=Answer in Latin.")
    lines = fits(said)
    assert code == 1 and "operator respond, response.requested messages.0.content" in lines[1]
    changed = [line for line in lines if line.startswith("  ≠")]
    assert len(changed) == 12 and all("Answer in" in line for line in changed)


class Deaf(Interrupt):
    """It does not hear words."""

    def _words(self, state: InterruptState, text: str, now: int, out: Out) -> None:
        return None


class Broken(Interrupt):
    """It cannot bear words."""

    def _words(self, state: InterruptState, text: str, now: int, out: Out) -> None:
        raise ValueError("not a word")


def test_a_bug_that_decides_otherwise(
    folder: Path, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bug(monkeypatch, Deaf)
    code, said = replay(str(folder / "a.mcap"), "-j", "1")
    lines = fits(said)
    assert code == 1 and lines[0].startswith("different  a: ")
    assert lines[1].endswith("operator interrupt, overlap.resolved does not come any more")
    assert "verdict=backchannel" in lines[2]
    (heard,) = [line for line in lines if "transcript.final" in line]
    assert "text=mhm" in heard
    assert any("verdict: backchannel → inconclusi" in line for line in lines)
    # The other session does not need the words over the assistant.
    code, said = replay(str(folder), "-j", "1")
    assert (
        code == 1 and "1 of 2 sessions the same" in said and "interrupt: overlap.resolved" in said
    )


def test_a_bug_that_fails(
    folder: Path,
    replay: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    failing_operators: None,
) -> None:
    with_bug(monkeypatch, Broken)
    code, said = replay(str(folder), "-j", "1", "--junit", str(tmp_path / "j.xml"))
    lines = fits(said)
    assert code == 1 and "0 of 2 sessions the same" in said
    assert lines[1] == "  an operator fails: ValueError: not a word"
    assert "test_explained.py:" in lines[2] and "_words" in lines[2]
    assert "transcript.final" in lines[3] and "weather" in lines[3]
    assert "an operator fails: ValueError: not a word" in (tmp_path / "j.xml").read_text()
    code, said = replay(str(folder / "a.mcap"), "--json")
    found = json.loads(said)
    assert not found["same"] and found["difference"] is None
    assert found["failure"]["error"] == "ValueError: not a word"
    assert found["failure"]["taking"]["type"] == "transcript.final"
