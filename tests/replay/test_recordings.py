"""Recordings of every released version: read completely, and proven by today's operators.

A decision may differ only where the recorded version of an operator is not today's. What fails here is a changed operator whose
`version` was not raised, or a changed event without an upcaster.
"""

from pathlib import Path
from typing import Any

import pytest

from flows.replay import SessionProof, prove_both
from flows.session_files import open_any
from operators import pipeline
from operators.fold import operator_versions
from operators.interrupt import Interrupt
from schemas.cloudevents import decode
from schemas.record import Lane
from schemas.registry import REQUESTS
from tests.replay.make_recording import RECORDINGS, make, version

pytestmark = pytest.mark.flow

FILES = sorted(RECORDINGS.glob("*.mcap"))
AGAIN = "make it: python -m tests.replay.make_recording"


def unexplained(proof: SessionProof) -> str | None:
    """What differs although the operators that decide it are of the recorded version; None: nothing."""
    if proof.failure is not None:
        return f"{proof.session}: {proof.failure.error}"
    found = proof.difference
    if found is None:
        return None if proof.bytewax_agrees else f"{proof.session}: differs through Bytewax"
    sides = [e.source.rpartition("/")[2] for e in (found.recorded, found.derived) if e is not None]
    if proof.versions.keys() & set(sides):
        return None
    return f"{proof.session}: decision {found.index}, operator {found.operator}, whose version is the recorded one"


def wrong_in(path: Path) -> list[str]:
    with open_any(str(path)) as log:
        return [told for p in prove_both(log).values() if (told := unexplained(p)) is not None]


def test_this_version_has_its_recording() -> None:
    assert RECORDINGS / f"v{version()}.mcap" in FILES, AGAIN


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_released_version_is_read_completely(path: Path) -> None:
    assert path.stat().st_size < 300_000
    with open_any(str(path)) as log:
        types = [decode(record).type for lane in Lane for record in log.scan(lane, 0)]
        assert len(types) == sum(sum(log.end(lane).values()) for lane in Lane)
    # What a conversation can hold is in it.
    wanted = {"session.ended", "overlap.resolved", "response.cancelled", "work.delivered"}
    wanted |= {"work.failed", "text.input", "media.audio", *REQUESTS}
    assert wanted <= set(types)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_released_version_decides_the_same(path: Path) -> None:
    assert wrong_in(path) == [], (
        "raise the `version` of the operator that has changed; or, if this version is not released yet, "
        + AGAIN
    )


class Deaf(Interrupt):
    """Does not hear words."""

    def _words(self, *_: Any) -> None:
        return None


class OfAnotherVersion(Deaf):
    version = Interrupt.version + 1


@pytest.mark.parametrize(("changed", "wrong"), [(Deaf, 1), (OfAnotherVersion, 0)])
def test_a_change_is_found_unless_its_version_says_so(
    changed: type[Interrupt], wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    assert wrong_in(path) == []
    operators = tuple(changed() if isinstance(o, Interrupt) else o for o in pipeline.OPERATORS)
    monkeypatch.setattr("operators.pipeline.OPERATORS", operators)
    monkeypatch.setattr("operators.fold.SessionFold.__init__.__defaults__", (operators, None, None))
    assert operator_versions()["interrupt"] == changed.version
    assert (len(wrong_in(path)) >= 1) == bool(wrong)


def test_the_same_operators_give_the_same_file(tmp_path: Path) -> None:
    assert make(tmp_path / "a").read_bytes() == make(tmp_path / "b").read_bytes()


def test_both_pacings_are_in_it(tmp_path: Path) -> None:
    with open_any(str(make(tmp_path))) as log:
        found = [decode(r) for r in log.scan(Lane.TIMELINE, 0)]
    pacings = {e.session: e.data.pacing for e in found if e.type == "session.configured"}
    assert pacings == {"overlaps": "live", "works": "live", "faults": "live", "asap": "asap"}
