"""One conversation → its figures. Our sessions are read as recorded (`venus replay` says whether they follow from their inputs).

Perception's windows are not needed, since the operators' decisions say who spoke when; leaving them unread is what makes a thousand
sessions a matter of seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flows.analysis import duplex_bench
from flows.analysis.duplex_bench import ASSISTANT, Spoken, spread
from flows.analysis.floor import Floor, Span, floor
from flows.analysis.foreign import Talk
from flows.analysis.metrics import FALSE_CUTOFF_US
from flows.analysis.tau_voice import TICK_US, Label, Tally, tally, ticks
from flows.replay import all_records
from flows.story import Story
from infra.timeline.mcap import McapTimeline
from infra.timeline.port import Timeline
from operators.heard import words
from schemas.base import WINDOW_SAMPLES
from schemas.cloudevents import decode, wire_type
from schemas.envelope import Event
from schemas.errors import BadRecord
from schemas.record import Lane

UNREAD = frozenset({wire_type("perception.window"), wire_type("clock.tick")})
_UNREAD_BYTES = frozenset(name.encode() for name in UNREAD)
_FIRST = {
    "endpoint.predicted": "endpoint_latency",
    "transcript.final": "transcript_latency",
    "response.text": "generation_latency",
    "response.speech": "speech_latency",
}
_ASKS = frozenset(
    {"endpoint.requested", "transcript.requested", "response.requested", "speech.requested"}
)
USER = "user"


@dataclass(slots=True)
class Figures:
    """What was measured of one conversation."""

    name: str
    where: str = ""
    media_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    per_time: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Name → (count, time in the metric's unit)."""
    backchannels: list[Span] = field(default_factory=list)
    """Stretches of the assistant's that took no floor."""
    tally: Tally = field(default_factory=Tally)


@dataclass(slots=True)
class Gathered:
    """A session as told by its records, with what only the log's own times say."""

    story: Story
    latencies: dict[str, list[float]] = field(default_factory=dict)
    works: dict[str, int] = field(default_factory=dict)
    work_durations: list[float] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)
    delivery_delays: list[float] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    now: int = 0

    def see(self, appended_us: int, event: Event) -> None:
        if event.id in self.seen:
            return
        self.seen.add(event.id)
        if event.mediatime is None:
            event = event._replace(mediatime=self.now)
        else:
            self.now = max(self.now, event.mediatime)
        self.story.see(event)
        if event.type in _ASKS:
            self.requests[event.id] = appended_us
        elif event.type in _FIRST:
            asked = self.requests.pop(event.cause or "", None)
            if asked is not None:
                self.latencies.setdefault(_FIRST[event.type], []).append(
                    (appended_us - asked) / 1e3
                )
        elif event.type.startswith("work."):
            self._work(event, event.mediatime or 0)

    def _work(self, event: Event, at: int) -> None:
        work = getattr(event.data, "work", "")
        if event.type == "work.queued":
            self.works.setdefault(work, at)
        elif (
            event.type in ("work.completed", "work.failed", "work.cancelled") and work in self.works
        ):
            self.work_durations.append((at - self.works.pop(work)) / 1e6)
            self.results[work] = at
        elif event.type == "work.delivered" and work in self.results:
            self.delivery_delays.append((at - self.results.pop(work)) / 1e6)


def stamped(timeline: Timeline, session: str | None = None) -> Iterator[tuple[int, Event]]:
    """(time of append, event) of the timeline lane without windows and ticks."""
    if isinstance(timeline, McapTimeline):
        yield from timeline.stamped(Lane.TIMELINE, session, UNREAD)
        return
    for record in all_records(timeline, session):
        wire = next((value for name, value in record.headers if name == "ce_type"), b"")
        if record.key and wire not in _UNREAD_BYTES:
            try:
                yield record.appended_us, decode(record)
            except BadRecord:
                continue


def gather(events: Iterable[tuple[int, Event]]) -> dict[str, Gathered]:
    """Session → what its records tell."""
    found: dict[str, Gathered] = {}
    for appended_us, event in events:
        one = found.get(event.session)
        if one is None:
            one = found[event.session] = Gathered(Story(event.session))
        one.see(appended_us, event)
    return found


def figures(gathered: Gathered) -> Figures:
    """The figures of one of our sessions."""
    story = gathered.story
    out = Figures(story.session, media_s=story.media_us / 1e6)
    user = sorted(story.speech)
    assistant = sorted(span for r in story.responses.values() for span in r.played)
    _floor(out, floor({USER: user, ASSISTANT: assistant}))
    _turns(out, story, user)
    _responses(out, story, assistant)
    _overlaps(out, story, assistant)
    said = {r.response: spread(words(r.heard_text), r.played) for r in story.responses.values()}
    answered = [
        (
            turn.end_us,
            [w for r in story.responses.values() if r.turn == turn.turn for w in said[r.response]],
        )
        for turn in story.turns.values()
        if turn.end_us is not None and turn.reason != "text" and turn.text
    ]
    _duplex_bench(out, answered, [w for spoken in said.values() for w in spoken])
    out.samples |= {name: values for name, values in gathered.latencies.items() if values}
    out.samples |= {
        "work_duration": gathered.work_durations,
        "delivery_delay": gathered.delivery_delays,
    }
    out.counts |= {"failures": len(story.failures), "rejected": story.rejected}
    out.tally = _tally(story, user, assistant)
    return out


def figures_of_talk(talk: Talk, where: str = "") -> Figures:
    """The figures of a recording from elsewhere."""
    out = Figures(talk.name, where, talk.duration_us / 1e6)
    found = floor(talk.activity)
    _floor(out, found)
    if ASSISTANT in talk.words:
        said = talk.words[ASSISTANT]
        _duplex_bench(out, duplex_bench.answers(found, said), said)
    for speaker, ipus in found.ipus.items():
        out.samples.setdefault("ipu_user", []).extend((b - a) / 1e6 for a, b in ipus)
        out.counts[f"ipus of {speaker}"] = len(ipus)
    for said in talk.words.values():
        lasted = sum(w.end_us - w.start_us for w in said) / 1e6
        if lasted:
            out.samples.setdefault("rate_user", []).append(
                sum(len(words(w.text)) for w in said) / lasted
            )
    return out


def _duplex_bench(
    out: Figures, answered: list[tuple[int, list[Spoken]]], said: list[Spoken]
) -> None:
    """`answered`: for each turn its end and what was said in answer."""
    took = [(at, spoken) for at, spoken in answered if duplex_bench.takeover(spoken)]
    out.shares["fdb_takeover"] = (len(took), len(answered))
    latencies = [duplex_bench.latency_us(spoken, at) for at, spoken in took]
    out.samples["fdb_latency"] = [us / 1e6 for us in latencies if us is not None]
    out.backchannels = duplex_bench.backchannels(said)
    out.per_time["fdb_backchannels"] = (len(out.backchannels), out.media_s)


def beside(one: Figures, reference: Figures) -> None:
    """What needs another recording of the same name."""
    duration_us = round(max(one.media_s, reference.media_s) * 1e6)
    distance = duplex_bench.jensen_shannon(one.backchannels, reference.backchannels, duration_us)
    one.samples["fdb_backchannel_distance"] = [] if distance is None else [distance]


def _floor(out: Figures, found: Floor) -> None:
    out.samples |= {
        "fto": [t.offset_us / 1e6 for t in found.transfers],
        "gap": [g / 1e6 for g in found.gaps],
        "overlap": [o / 1e6 for o in found.overlaps],
        "overlap_within": [(b - a) / 1e6 for a, b in found.within],
        "pause": [(b - a) / 1e6 for _, (a, b) in found.pauses],
    }
    for speaker in (USER, ASSISTANT):
        if speaker in found.ipus:
            out.samples[f"ipu_{speaker}"] = [(b - a) / 1e6 for a, b in found.ipus[speaker]]


def _turns(out: Figures, story: Story, user: list[Span]) -> None:
    spoken = [t for t in story.turns.values() if t.end_us is not None and t.reason != "text"]
    out.counts["turns"] = sum(1 for t in story.turns.values() if t.end_us is not None)
    samples: dict[str, list[float]] = {"turn_length": [], "decision_delay": [], "rate_user": []}
    early = 0
    for turn in spoken:
        assert turn.end_us is not None
        length = (turn.end_us - turn.start_us) / 1e6
        samples["turn_length"].append(length)
        decided = turn.decided_us
        if decided is not None:
            samples["decision_delay"].append((decided - turn.end_us) / 1e6)
            heard = [
                r.first_heard_us for r in story.responses.values() if r.first_heard_us is not None
            ]
            for start, _ in user:
                if turn.end_us <= start <= decided + FALSE_CUTOFF_US:
                    # Speech that begins once the answer is heard is a reaction to it.
                    early += not any(turn.end_us <= at <= start for at in heard)
                    break
        if turn.text and length > 0:
            samples["rate_user"].append(len(words(turn.text)) / length)
    out.samples |= samples
    out.shares["false_cutoff"] = (early, len(spoken))


def _responses(out: Figures, story: Story, assistant: list[Span]) -> None:
    responses = list(story.responses.values())
    out.counts["responses"] = len(responses)
    out.samples["response_latency"] = [
        us / 1e6 for r in responses if (us := story.latency_us(r)) is not None
    ]
    out.samples["rate_assistant"] = [
        len(words(r.heard_text)) / (r.heard_us / 1e6)
        for r in responses
        if r.heard_text and r.heard_us > 0
    ]
    begun = [r for r in responses if r.first_heard_us is not None]
    out.shares["stopped"] = (sum(r.how == "cancelled" for r in begun), len(begun))


def _overlaps(out: Figures, story: Story, assistant: list[Span]) -> None:
    overlaps = [o for o in story.overlaps.values() if o.verdict]
    out.counts["overlaps"] = len(overlaps)
    verdicts = {
        "interruption": ("interruption",),
        "backchannel": ("backchannel",),
        "noise": ("noise", "side_talk"),
        "inconclusive": ("inconclusive",),
    }
    for name, which in verdicts.items():
        out.shares[name] = (sum(o.verdict in which for o in overlaps), len(overlaps))
    minutes = sum(b - a for a, b in assistant) / 6e7
    out.per_time["backchannels"] = (out.shares["backchannel"][0], minutes)
    stops = []
    for overlap in overlaps:
        if overlap.verdict == "interruption":
            silent = next(
                (b for a, b in assistant if a <= overlap.start_us + 1 and b >= overlap.start_us),
                None,
            )
            if silent is not None:
                stops.append((silent - overlap.start_us) / 1e6)
    out.samples["stop_latency"] = stops


def _tally(story: Story, user: list[Span], assistant: list[Span]) -> Tally:
    count = -(-max(story.media_us, 1) // TICK_US)
    labels: list[tuple[int, int, Label]] = []
    kinds: dict[str, Label] = {
        "backchannel": "backchannel",
        "noise": "vocal_tic",
        "side_talk": "non_directed",
    }

    def mark(start_us: int, label: Label) -> None:
        span = next((s for s in user if s[0] <= start_us < s[1]), (start_us, start_us + 1))
        labels.append((span[0] // TICK_US, -(-span[1] // TICK_US), label))

    for overlap in story.overlaps.values():
        if overlap.verdict in kinds:
            mark(overlap.start_us, kinds[overlap.verdict])
    for turn in story.turns.values():
        if turn.end_us is not None and not turn.text:
            mark(turn.start_us, "vocal_tic")
    return tally(ticks(user, count), ticks(assistant, count), labels)


def vad_latencies(timeline: Timeline, session: str) -> list[float]:
    """ms from each chunk's append to that of the first window that holds its end. Reads the media lane's headers and lengths."""
    partition = timeline.partition_of(session)
    windows: list[tuple[int, int]] = []
    for record in timeline.scan(Lane.TIMELINE, partition, 0, session):
        if any(v == b"venus.perception.window.v1" for _, v in record.headers):
            event = decode(record)
            windows.append((event.mediatime or 0, record.appended_us))
    found: list[float] = []
    at = 0
    for record in timeline.scan(Lane.MEDIA, partition, 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        data: Any = event.data
        end = (event.mediatime or 0) + data.duration_us
        # The resampler and the window's own length come before any model sees the samples.
        while at < len(windows) and windows[at][0] < end - end % (
            WINDOW_SAMPLES * 1_000_000 // 16_000
        ):
            at += 1
        if at < len(windows):
            found.append((windows[at][1] - record.appended_us) / 1e3)
    return found
