"""Figures of sessions and of recordings from elsewhere: a scripted session worked out by hand, files that are wrong, pooling."""

import json
from pathlib import Path

import pytest

from flows.analysis.bootstrap import summarise
from flows.analysis.foreign import read_foreign
from flows.analysis.many import pool, read_many, read_one
from flows.analysis.metrics import document
from flows.analysis.session import figures, gather, stamped
from flows.cli import main
from flows.session_files import Wishes, export
from schemas.errors import BadInput
from tests.replay.sessions import memory, talk
from tests.support.script import Session
from tests.support.sources import ROOT

pytestmark = pytest.mark.flow


def figures_of(session: Session):
    (found,) = gather(stamped(memory(session.close(), with_media=False))).values()
    return figures(found)


def test_a_question_and_its_answer_by_hand() -> None:
    # Speech from 992 to 2208 ms; the answer is 35 characters of 60 ms each.
    session = Session(
        "s", transcript="what time is it", reply="It is exactly a quarter past eleven"
    ).silence(992)
    one = figures_of(session.speak(1216).silence(5000))
    assert one.counts["turns"] == one.counts["responses"] == 1
    assert one.samples["turn_length"] == [1.216]
    assert one.samples["rate_user"] == [pytest.approx(4 / 1.216)]
    assert one.samples["rate_assistant"] == [pytest.approx(7 / 2.1, rel=0.01)]
    assert one.samples["ipu_user"] == [1.216]
    (latency,) = one.samples["response_latency"]
    (offset,) = one.samples["fto"]
    assert latency == offset and 0.32 <= latency <= 0.42
    assert one.samples["decision_delay"][0] == 0.32
    assert one.shares["false_cutoff"] == (0, 1)
    assert one.shares["fdb_takeover"] == (1, 1) and one.samples["fdb_latency"] == [latency]
    assert one.per_time["fdb_backchannels"] == (0, one.media_s)


def test_a_short_acknowledgement_takes_no_floor() -> None:
    # "Mhm, yes" lasts 8 × 60 ms.
    session = Session("s", transcript="I am thinking", reply="Mhm, yes").silence(992)
    one = figures_of(session.speak(1216).silence(3000))
    assert one.shares["fdb_takeover"] == (0, 1) and one.samples["fdb_latency"] == []
    assert one.per_time["fdb_backchannels"][0] == 1
    (span,) = one.backchannels
    assert span[1] - span[0] == 480_000


def test_an_interruption_and_how_soon_the_assistant_is_silent() -> None:
    session = Session(
        "s",
        transcript=lambda r: "stop" if r.data.start_us > 3_000_000 else "tell me all",
        reply="long " * 60,
    )
    one = figures_of(session.silence(992).speak(1216).silence(2016).speak(512).silence(4000))
    assert one.shares["interruption"] == (1, 1) and one.shares["stopped"][0] >= 1
    (stop,) = one.samples["stop_latency"]
    assert 0.1 < stop < 0.5
    assert one.tally.yields and not one.tally.no_yields


def test_a_turn_cut_off_too_early() -> None:
    session = Session("s", transcript="I would like that", hold={"generate"}).silence(992)
    one = figures_of(session.speak(1216).silence(500).speak(1200).silence(3000))
    assert one.shares["false_cutoff"] == (1, 2)


def test_a_timeline_and_its_file_give_the_same(tmp_path: Path) -> None:
    log = memory(talk("a", 30).close(), talk("b", 20).close())
    export(log, tmp_path / "x.mcap", Wishes())
    here = [figures(g) for g in gather(stamped(log)).values()]
    read = read_one(str(tmp_path / "x.mcap"))
    assert read.error is None
    for one in read.figures:
        one.where = ""
    assert read.figures == here


def test_pooling_many_files_in_processes(tmp_path: Path) -> None:
    export(
        memory(*(talk(f"s{i}", 15 + i).close() for i in range(6)), with_media=False),
        tmp_path,
        Wishes(),
    )
    (tmp_path / "broken.mcap").write_bytes(b"no")
    paths = [str(p) for p in sorted(tmp_path.iterdir())]
    alone, together = read_many(paths, 1), read_many(paths, 2)
    assert [r.where for r in together] == paths
    assert [r.error is None for r in together] == [False] + [True] * 6
    first = pool([f for r in alone for f in r.figures]).as_json()
    assert first == pool([f for r in together for f in r.figures]).as_json()
    assert first["sessions"] == 6 and first["samples"]["response_latency"]["n"] > 10


def test_on_the_command_line(tmp_path: Path, capsys) -> None:
    export(memory(talk("s", 20).close()), tmp_path / "s.mcap", Wishes())
    (tmp_path / "bad.mcap").write_bytes(b"no")
    with pytest.raises(SystemExit) as caught:
        main(["stats", str(tmp_path), "--json", "-j", "1"])
    said = capsys.readouterr()
    assert caught.value.code == 2 and len(said.err.splitlines()) == 1
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert lines[0]["session"] == "s" and lines[-1]["pooled"]["sessions"] == 1
    with pytest.raises(SystemExit):
        main(["stats", str(tmp_path / "s.mcap"), "--each", "--media"])
    assert "response_latency" in capsys.readouterr().out


WORDS = "Speaker, Start, End, Text\nann, 0.0, 0.4, hello\nbob, 1.0, 1.5, hello there\nann, 1.4, 2.4, yes\n"


def test_words_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(WORDS)
    read = read_one(str(tmp_path / "x.csv"))
    assert read.figures[0].samples["fto"] == [0.6, -0.1]
    assert read.figures[0].samples["rate_user"] == [pytest.approx(2 / 1.4), pytest.approx(4.0)]


DUPLEX = """speaker,start,end,text
user,0.0,4.0,so I went there and
assistant,1.0,1.2,mhm
user,5.0,6.0,what is it
assistant,6.5,7.0,it is
assistant,7.05,8.0,a lake
user,9.0,10.0,thanks
"""


def test_full_duplex_bench_by_hand(tmp_path: Path, capsys) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, text in ((here, DUPLEX), (there, DUPLEX.replace("1.0,1.2,mhm", "3.0,3.1,mhm"))):
        folder.mkdir()
        (folder / "x.csv").write_text(text)
    (here / "y.csv").write_text(DUPLEX)
    arguments = ["stats", str(here), "--reference", str(there), "--json", "-j", "1"]
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    said = capsys.readouterr()
    assert caught.value.code in (0, None) and said.err == "venus: no reference is called y\n"
    x, y, pooled = (json.loads(line) for line in said.out.splitlines())
    # One answer, after .5 s, and none to the last word. One "mhm" in 10 s, in bins 5 and 6; 15 in the reference: nothing in common.
    assert x["samples"]["fdb_latency"]["mean"] == 0.5
    assert x["rates"]["fdb_takeover"]["rate"] == 0.5 and x["rates"]["fdb_takeover"]["of"] == 2
    assert x["rates"]["fdb_backchannels"]["rate"] == pytest.approx(0.1)
    assert x["samples"]["fdb_backchannel_distance"]["mean"] == pytest.approx(0.832555, abs=1e-6)
    assert "fdb_backchannel_distance" not in y["samples"]
    assert pooled["pooled"]["samples"]["fdb_latency"]["n"] == 2
    assert pooled["pooled"]["rates"]["fdb_takeover"]["of"] == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "speaker,start,end\n", "no column text"),
        ("x.csv", "speaker,start,end,text\na,zero,1,b\n", ":2: 'zero' is not a time"),
        ("x.csv", "speaker,start,end,text\na,2,1,b\n", "ends before it starts"),
        ("x.csv", "speaker,start,end,text\n", "no word"),
        ("x.rttm", "SPEAKER x 1 0.0\n", "at least 8 fields"),
        ("x.rttm", "nothing\n", "no SPEAKER line"),
        ("x.rttm", "SPEAKER f 1 nan 1 <NA> <NA> a <NA>\n", "no time of a recording"),
        ("x.ogg", "", "there are"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=message):
        read_foreign(tmp_path / name)


def test_the_definitions_are_in_the_docs() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == document(), (
        "run: python -m flows.analysis.metrics > docs/metrics.md"
    )


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0, 9.0], [3.0, 5.0], [2.0, 2.0, 7.0]])
def test_an_interval_holds_its_median(values: list[float]) -> None:
    found = summarise([values])
    assert found is not None and found.low <= found.median <= found.high
