"""The floor, worked out by hand: small sequences, and the telephone talk of two (`two_speakers.rttm`)."""

from pathlib import Path

import pytest

from flows.analysis.bootstrap import share, summarise
from flows.analysis.floor import floor, merge

pytestmark = pytest.mark.pure

RTTM = Path(__file__).parents[3] / "shared" / "data" / "two_speakers.rttm"


def ms(*spans: tuple[int, int]) -> list[tuple[int, int]]:
    return [(a * 1000, b * 1000) for a, b in spans]


def test_silences_below_200_ms_are_bridged() -> None:
    assert merge(ms((0, 100), (299, 400), (600, 700), (650, 660), (5, 5))) == ms(
        (0, 400), (600, 700)
    )


def test_gap_overlap_pause_and_overlap_within() -> None:
    found = floor(
        {
            "a": ms((0, 1000), (1400, 3000), (5000, 6000)),
            "b": ms((1600, 1900), (2800, 4000), (6300, 7000)),
        }
    )
    # a pauses 400 ms; b's first is inside a's second; b takes over 200 ms before a ends; 1 s gap; 300 ms gap.
    assert [p for _, p in found.pauses] == ms((1000, 1400))
    assert found.within == ms((1600, 1900))
    assert [t.offset_us // 1000 for t in found.transfers] == [-200, 1000, 300]
    assert [(t.giver, t.taker) for t in found.transfers] == [("a", "b"), ("b", "a"), ("a", "b")]
    assert [g // 1000 for g in found.gaps] == [1000, 300]
    assert [o // 1000 for o in found.overlaps] == [200]


def test_nobody_speaks() -> None:
    assert floor({"a": [], "b": []}).transfers == []


@pytest.mark.skipif(not RTTM.is_file(), reason=f"{RTTM} is not here")
def test_the_telephone_talk_by_hand() -> None:
    from flows.analysis.foreign import read_rttm

    (talk,) = read_rttm(RTTM)
    found = floor(talk.activity)
    assert {s: len(ipus) for s, ipus in found.ipus.items()} == {"speaker90": 5, "speaker91": 5}
    # 90 6.69-7.12 | 91 7.55-8.35 | 90 8.32-10.02 | 91 9.92-11.03 | 90 10.57-14.70 | 91 14.49-17.92 | 90 18.05-21.49
    # (91 18.15-18.59 inside) | 91 21.78-28.50 | 90 27.85-30.00
    assert [t.offset_us // 1000 for t in found.transfers] == [
        430,
        -30,
        -100,
        -460,
        -210,
        130,
        290,
        -650,
    ]
    assert found.within == ms((18_150, 18_590))
    assert found.pauses == []
    assert sum(found.gaps) / len(found.gaps) == pytest.approx(283_333, abs=1)
    assert sum(found.overlaps) == 1_450_000


def test_intervals_are_seeded_and_hold_the_median() -> None:
    groups = [[1.0, 2.0, 3.0], [2.0, 2.5], [4.0], []]
    first = summarise(groups)
    assert first is not None and first == summarise(groups)
    assert (first.n, first.median) == (6, 2.25)
    assert first.low <= first.median <= first.high
    assert summarise([[], []]) is None
    assert share([(1, 2), (3, 4), (0, 0)])[0] == pytest.approx(4 / 6)
