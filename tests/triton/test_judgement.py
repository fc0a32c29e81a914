"""`venus bench judgement --quick` on the real models: the relations that it is there to show, and what it writes."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from flows.bench.judgement.report import Judged, show
from flows.bench.judgement.run import Plan, judge, write
from infra.triton.server import LocalTriton

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def judged(triton: LocalTriton) -> Judged:
    said: list[str] = []
    found = judge(Plan(quick=True), triton.url, False, lambda what, share: said.append(what))
    assert {"speaking", "hearing", "ours, default policy"} <= set(said)
    return found


def test_turns_are_cut_off_less_often_than_by_a_silence_that_is_equally_fast(
    judged: Judged,
) -> None:
    figures, compared = judged.point("turns").turns, judged.point("turns").compared
    assert figures is not None and compared is not None
    assert figures.turns >= 24 and figures.pauses >= 20 and figures.unanswered == 0
    assert compared.ours.rate < compared.plain


def test_a_longer_silence_is_slower_and_cuts_off_less(judged: Judged) -> None:
    curve = [p.turns for p in judged.curve("turns", "plain") if p.turns is not None]
    latencies = [t.latency_mean for t in curve]
    assert latencies == sorted(latencies)
    assert curve[0].cut_pauses > curve[-1].cut_pauses


def test_overlaps_are_judged_better_than_by_their_length(judged: Judged) -> None:
    ours, plain = judged.point("overlaps").overlaps, judged.best_plain.overlaps
    assert ours is not None and plain is not None
    assert ours.interruption_recall >= 0.8
    assert ours.backchannel_f1 > plain.backchannel_f1
    assert ours.interruption_f1 >= plain.interruption_f1
    assert ours.silent_mean < ours.cancelled_mean


def test_it_is_written_as_data_and_picture_and_shown(judged: Judged, tmp_path: Path) -> None:
    data, picture = write(judged, tmp_path / "out")
    tree = json.loads(data.read_bytes())
    assert {p["name"] for p in tree["points"]} == {p.name for p in judged.points}
    assert picture.read_bytes().startswith(b"\x89PNG")
    console = Console(record=True, width=170)
    show(judged, console)
    text = console.export_text()
    assert "At the same mean latency" in text and "clean" in text
