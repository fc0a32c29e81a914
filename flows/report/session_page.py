"""The page of one session: its timeline with sound, turns, overlaps, inference with causes, works, tables, distributions."""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from flows.analysis.metrics import BY_NAME
from flows.analysis.session import Figures, figures, gather, stamped
from flows.live_view import clock
from flows.looking import essence
from flows.replay import Proof, SessionProof, events_on
from flows.report.page import (
    ASSISTANT,
    INK,
    KINDS,
    QUIET,
    USER,
    VERDICTS,
    Row,
    envelope,
    histogram,
    legend,
    page,
    table,
    timeline,
)
from flows.report.sound import STEP_US, Sound, sound_of
from flows.story import Story
from flows.work_view import works_of
from infra.atomic import new_file
from infra.timeline.port import Timeline
from operators.fold import Applied
from schemas.envelope import Event
from schemas.registry import REQUESTS, TERMINALS

DRAWN = (
    "response_latency",
    "fto",
    "stop_latency",
    "endpoint_latency",
    "transcript_latency",
    "generation_latency",
    "speech_latency",
)


@dataclass(slots=True)
class Call:
    """A request and its end."""

    request: Event
    kind: str
    ended: Event | None = None


@dataclass(slots=True)
class Told:
    """All that a page shows of a session, gathered in causal order."""

    story: Story
    calls: dict[str, Call] = field(default_factory=dict)
    works: dict[str, list[Event]] = field(default_factory=dict)
    faults: list[Event] = field(default_factory=list)
    causes: dict[str, str] = field(default_factory=dict)
    """Id of an event that something names as its cause → what to say of it."""

    def show(self, applied: Applied) -> None:
        self.story.show(applied)
        for event in (applied.input, *applied.decisions):
            if event.type in REQUESTS:
                self.calls[event.id] = Call(event, REQUESTS[event.type])
            elif event.type in TERMINALS and event.cause in self.calls:
                self.calls[event.cause].ended = event
            if event.type.startswith("work."):
                for work in works_of(event.data):
                    self.works.setdefault(work, []).append(event)
            elif event.type.endswith(
                (".timed_out", ".failed", ".rejected", ".gap")
            ) or event.type.startswith("fault."):
                self.faults.append(event)
            if event.type != "perception.window":
                self.causes[event.id] = f"{event.type} at {clock(event.mediatime or 0)}"


def tell_all(log: Timeline, session: str) -> tuple[Told, SessionProof]:
    """Fold the session once: its story, and whether it proves."""
    told = Told(Story(session))
    proof = Proof(session, on_applied=told.show)
    for event in events_on(log, session):
        proof.feed(event)
    return told, proof.finish()


def rows_of(told: Told, sound: Sound | None = None) -> list[Row]:
    """The lanes of the timeline."""
    story = told.story
    user = Row("user", 44, [(a, b, USER, "", "user speaks") for a, b in story.speech], colour=USER)
    assistant = Row("assistant", 44, colour=ASSISTANT)
    if sound is not None:
        user.envelope, assistant.envelope = (
            envelope(sound.user, STEP_US),
            envelope(sound.assistant, STEP_US),
        )
    turns, overlaps = Row("turns"), Row("overlaps")
    for turn in story.turns.values():
        end = turn.end_us if turn.end_us is not None else story.media_us
        sure = "" if turn.probability is None else f", endpoint p {turn.probability:.2f}"
        tip = f"{turn.turn}: “{turn.text}”\n{turn.reason}{sure}"
        turns.spans.append(
            (turn.start_us, end, USER, turn.text or f"({turn.reason or 'open'})", tip)
        )
        if turn.decided_us is not None:
            turns.marks.append((turn.decided_us, INK, f"{turn.turn} ended: {turn.reason}{sure}"))
    for response in story.responses.values():
        for a, b in response.played:
            tip = f"{response.response} {response.how}: “{response.heard_text}”\n{response.reason}"
            assistant.spans.append((a, b, ASSISTANT, response.heard_text, tip))
    for overlap in story.overlaps.values():
        end = overlap.resolved_us or story.media_us
        label = overlap.verdict + (f" ({overlap.kind})" if overlap.kind else "")
        tip = f"{overlap.overlap} over {overlap.response}: {label}\n{overlap.evidence}"
        overlaps.spans.append(
            (overlap.start_us, end, VERDICTS.get(overlap.verdict, QUIET), label, tip)
        )
    rows = [user, turns, overlaps, assistant]
    for kind, colour in KINDS.items():
        calls = [c for c in told.calls.values() if c.kind == kind]
        if calls:
            rows.append(Row(kind, 18, [_call(told, c, colour) for c in calls]))
    faults = [(e.mediatime or 0, "#c1121f", f"{e.type}: {essence(e, 200)}") for e in told.faults]
    if faults:
        rows.append(Row("faults", 16, marks=faults))
    return rows


def _call(told: Told, call: Call, colour: str) -> tuple[int, int, str, str, str]:
    start = call.request.mediatime or 0
    end = told.story.media_us if call.ended is None else (call.ended.mediatime or start)
    result = (
        "unanswered" if call.ended is None else f"{call.ended.type}  {essence(call.ended, 160)}"
    )
    cause = told.causes.get(call.request.cause or "", "a perception window")
    tip = f"{call.request.type}  {essence(call.request, 160)}\ncaused by {cause}\n→ {result}"
    failed = call.ended is not None and call.ended.type.endswith((".failed", ".cancelled"))
    return start, end, QUIET if failed else colour, "", tip


def write_session(log: Timeline, session: str, path: Path, with_sound: bool = True) -> Figures:
    """Write the page of a session; returns its figures."""
    told, proof = tell_all(log, session)
    story = told.story
    sound = sound_of(log, session, with_sound)
    (gathered,) = gather(stamped(log, session)).values()
    one = figures(gathered)
    body = [f"<h1>{_text(session)}</h1>", _summary(story, proof)]
    body.append(
        timeline("t", rows_of(told, sound), story.media_us, None if sound is None else sound.url)
    )
    body.append(
        "<p>wheel: zoom; shift+wheel or drag: move; click: play from there; double click: all</p>"
    )
    body.append(
        legend(
            {
                "user": USER,
                "assistant": ASSISTANT,
                **{k: c for k, c in VERDICTS.items() if k != "side_talk"},
                **KINDS,
            }
        )
    )
    body += _tables(told)
    drawings = [histogram(n, one.samples.get(n, []), BY_NAME[n].unit) for n in DRAWN]
    body.append(f'<h2>Distributions</h2><div class="row">{"".join(drawings)}</div>')
    with new_file(path) as file:
        file.write(page(f"{session} — venus report", body).encode())
    return one


def _text(text: str) -> str:
    from html import escape

    return escape(text)


def _summary(story: Story, proof: SessionProof) -> str:
    latencies = sorted(
        us for r in story.responses.values() if (us := story.latency_us(r)) is not None
    )
    latency = f", median response latency {median(latencies) / 1e6:.2f} s" if latencies else ""
    verdict = (
        "every decision follows from the inputs"
        if proof.same
        else "DECISIONS DIFFER from what follows from the inputs"
    )
    said = (
        f"{clock(story.media_us)}, device {story.device or 'unknown'}, {story.pacing}, "
        f"{len(story.turns)} turns, {len(story.responses)} responses, {len(story.overlaps)} overlaps{latency}. "
        f"Replay: {verdict} ({proof.decisions:,} decisions from {proof.inputs:,} inputs)."
    )
    return f'<p class="{"" if proof.same else "warn"}">{_text(said)}</p>'


def _tables(told: Told) -> list[str]:
    story = told.story
    rows: list[tuple[object, ...]]
    head: tuple[str, ...]
    out = ['<h2>Conversation</h2><div class="scroll">']
    talk: list[tuple[int, tuple[object, ...]]] = [
        (
            t.start_us,
            (
                "user",
                t.text or "(no words)",
                t.reason,
                ""
                if t.decided_us is None or t.end_us is None
                else f"{(t.decided_us - t.end_us) / 1e6:.2f}",
            ),
        )
        for t in story.turns.values()
    ]
    for response in story.responses.values():
        at = response.first_heard_us
        latency = story.latency_us(response)
        said = (response.how, "" if latency is None else f"{latency / 1e6:.2f}")
        talk.append(
            (
                response.requested_us if at is None else at,
                ("assistant", response.heard_text or "(nothing heard)", *said),
            )
        )
    talk.sort(key=lambda row: row[0])
    head = ("at", "who", "words", "how it ended", "s after the user")
    out.append(
        table(
            head, [(clock(at), *row) for at, row in talk], numeric=(0, 4), at=[at for at, _ in talk]
        )
        + "</div>"
    )
    if story.overlaps:
        overlaps = list(story.overlaps.values())
        rows = [
            (
                clock(o.start_us),
                o.response,
                o.verdict,
                o.kind,
                o.evidence,
                "" if o.resolved_us is None else f"{(o.resolved_us - o.start_us) / 1e6:.2f}",
            )
            for o in overlaps
        ]
        head = ("at", "over", "verdict", "intent", "evidence", "s to the verdict")
        out.append(
            '<h2>Overlaps</h2><div class="scroll">'
            + table(head, rows, numeric=(0, 5), at=[o.start_us for o in overlaps])
            + "</div>"
        )
    if told.works:
        rows = []
        starts = []
        for work, events in told.works.items():
            asked = next((e for e in events if e.type == "work.queued"), events[0])
            starts.append(asked.mediatime or 0)
            rows.append(
                (
                    clock(starts[-1]),
                    work,
                    getattr(asked.data, "query", ""),
                    " → ".join(e.type.removeprefix("work.") for e in events),
                )
            )
        out.append(
            '<h2>Works</h2><div class="scroll">'
            + table(("at", "work", "query", "life"), rows, numeric=(0,), at=starts)
            + "</div>"
        )
    if told.faults:
        rows = [(clock(e.mediatime or 0), e.type, essence(e, 200)) for e in told.faults]
        out.append(
            '<h2>Faults</h2><div class="scroll">'
            + table(
                ("at", "type", "what"),
                rows,
                numeric=(0,),
                at=[e.mediatime or 0 for e in told.faults],
            )
            + "</div>"
        )
    return out
