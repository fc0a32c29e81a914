"""Figures of many recordings: in parallel over files, pooled with intervals, as a table or JSON."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

from flows.analysis.bootstrap import Summary, share, summarise
from flows.analysis.foreign import SUFFIXES, SpeechFinder, read_foreign
from flows.analysis.metrics import METRICS
from flows.analysis.session import Figures, figures, figures_of_talk, gather, stamped, vad_latencies
from flows.analysis.tau_voice import Tally
from flows.replay_many import not_configured
from flows.session_files import open_any
from schemas.errors import VenusError


@dataclass(slots=True)
class Read:
    """What one file or timeline gave: figures, or why not."""

    where: str
    figures: list[Figures] = field(default_factory=list)
    error: str | None = None


def read_one(
    where: str,
    session: str | None = None,
    media: bool = False,
    find_speech: SpeechFinder | None = None,
) -> Read:
    """The figures of a recording; never raises for what is wrong with it."""
    found = Read(where)
    try:
        if "://" not in where and Path(where).suffix.lower() in SUFFIXES:
            found.figures = [
                figures_of_talk(t, where) for t in read_foreign(Path(where), find_speech)
            ]
            return found
        with open_any(where) as timeline:
            everything = gather(stamped(timeline, session))
            odd = [n for n, g in everything.items() if g.story.turns and not g.story.pacing]
            for gathered in [g for n, g in everything.items() if n not in odd]:
                one = figures(gathered)
                one.where = where
                if media:
                    one.samples["vad_latency"] = vad_latencies(timeline, one.name)
                found.figures.append(one)
        if odd:
            found.error = f"{where}: {not_configured(odd)}"
        elif not found.figures:
            what = f"no session {session!r}" if session else "no session"
            found.error = f"{where}: there is {what} in it"
    except VenusError as error:
        found.error = str(error)
    return found


def _read_some(wheres: Sequence[str], session: str | None, media: bool) -> list[Read]:
    return [read_one(where, session, media) for where in wheres]


def read_many(
    wheres: Sequence[str],
    workers: int,
    session: str | None = None,
    media: bool = False,
    find_speech: SpeechFinder | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Read]:
    """All recordings, in the order given."""
    sounds = {w for w in wheres if w.lower().endswith(".wav")}
    if len(wheres) - len(sounds) < 2 * workers or workers == 1:
        out = []
        for where in wheres:
            out.append(read_one(where, session, media, find_speech))
            if progress is not None:
                progress(1)
        return out
    found: dict[str, Read] = {w: read_one(w, session, media, find_speech) for w in sounds}
    rest = [w for w in wheres if w not in sounds]
    size = max(1, min(25, len(rest) // (4 * workers)))
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        waiting = [
            pool.submit(_read_some, rest[i : i + size], session, media)
            for i in range(0, len(rest), size)
        ]
        for future in as_completed(waiting):
            reads = future.result()
            found |= {r.where: r for r in reads}
            if progress is not None:
                progress(len(reads))
    return [found[where] for where in wheres]


@dataclass(slots=True)
class Pooled:
    """All sessions together."""

    sessions: int
    media_s: float
    counts: dict[str, int]
    samples: dict[str, Summary]
    rates: dict[str, tuple[float, float, float, int]]
    """Shares and counts per minute: (rate, low, high, of so many)."""
    tau_voice: dict[str, float | None]

    def as_json(self) -> dict[str, Any]:
        def plain(value: float) -> float | None:
            return None if isnan(value) else round(value, 6)

        return {
            "sessions": self.sessions,
            "media_s": self.media_s,
            "counts": self.counts,
            "samples": {
                n: {k: plain(v) for k, v in s._asdict().items()} for n, s in self.samples.items()
            },
            "rates": {
                n: dict(zip(("rate", "low", "high", "of"), map(plain, r), strict=True))
                for n, r in self.rates.items()
            },
            "tau_voice": self.tau_voice,
        }


def pool(sessions: Sequence[Figures]) -> Pooled:
    """Everything over all sessions, with intervals."""
    counts: dict[str, int] = {}
    tally = Tally()
    for one in sessions:
        for name, count in one.counts.items():
            counts[name] = counts.get(name, 0) + count
        tally.add(one.tally)
    samples: dict[str, Summary] = {}
    rates: dict[str, tuple[float, float, float, int]] = {}
    for metric in METRICS:
        if metric.kind == "samples":
            summary = summarise([one.samples.get(metric.name, []) for one in sessions])
            if summary is not None:
                samples[metric.name] = summary
        elif metric.kind == "share":
            found = share(
                [one.shares[metric.name] for one in sessions if metric.name in one.shares]
            )
            if found is not None:
                of = sum(
                    one.shares[metric.name][1] for one in sessions if metric.name in one.shares
                )
                rates[metric.name] = (*found, of)
        else:
            # Thousandths, so that counts and times divide as whole numbers do.
            pairs = [one.per_time[metric.name] for one in sessions if metric.name in one.per_time]
            found = share([(n, round(time * 1000)) for n, time in pairs])
            if found is not None:
                rate, low, high = (value * 1000 for value in found)
                rates[metric.name] = (rate, low, high, sum(n for n, _ in pairs))
    return Pooled(
        len(sessions), sum(s.media_s for s in sessions), counts, samples, rates, tally.metrics()
    )
