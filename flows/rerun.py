"""Re-run: ask the models again over a recording, and compare within declared tolerances.

The third comparison, beside prove (nothing may differ) and what-if (another policy): another model, or the same one on another machine.
Recorded audio and prompts go to the models of a Triton server; then
- each answer is compared with the recorded one: probabilities within a distance, texts by the similarity of their words;
- windows, endpoints, transcripts and backchannels replace the recorded ones, and the decisions that follow (`flows.counterfactual`)
  must have the same turns, give or take some ms, and the same verdicts on overlaps.
Generated text is compared as text only: another answer would be another conversation. With a changed policy, the models are asked what
they would have been asked under it: so another prompt shows in the answers.
"""

import asyncio
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flows.counterfactual import Recording, take_apart, under
from flows.perception_model import DIGITS
from flows.replay import events_on
from flows.what_if import Pair, align, change
from infra.timeline.mcap import McapTimeline
from infra.timeline.port import Timeline
from infra.triton.client import ModelClient, VadClient, vad_start
from infra.triton.wire import ModelError
from operators.heard import words
from operators.window import ChannelAssembler, Samples
from schemas.base import WINDOW_SAMPLES
from schemas.cloudevents import decode
from schemas.envelope import Event
from schemas.errors import BadInput, BadRecord
from schemas.perception import AudioSpan
from schemas.policy import Policy
from schemas.record import Lane
from schemas.registry import REQUESTS

KINDS = ("vad", "endpoint", "transcript", "backchannel", "generate")
MODELS = {
    "vad": "silero_vad",
    "endpoint": "smart_turn",
    "transcript": "whisper",
    "backchannel": "backchannel",
    "generate": "chat",
}
Audio = dict[tuple[str, int], NDArray[np.int16]]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """`[tool.venus.rerun]` of a pyproject.toml, or `[rerun]` of a file of its own."""

    vad_probability: float = 0.05
    """Distance of a hop's probability, …"""
    vad_share: float = 0.99
    """… kept by this share of the hops."""
    endpoint_probability: float = 0.1
    backchannel_probability: float = 0.1
    transcript_similarity: float = 0.8
    generate_similarity: float = 0.8
    turn_ms: float = 100.0
    """How far a turn's end may move."""
    verdicts: bool = True
    """Whether the verdicts on overlaps must be the same."""

    @classmethod
    def read(cls, path: Path | None) -> "Tolerances":
        """Raises BadInput for a file that is not TOML, a name that is none, or a value of the wrong type."""
        if path is None:
            return cls()
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BadInput(f"{path}: {error}") from None
        table: dict[str, Any] = tree.get("rerun") or tree.get("tool", {}).get("venus", {}).get(
            "rerun", {}
        )
        known = {f.name: type(f.default) for f in fields(cls)}
        for name, value in table.items():
            if name not in known:
                raise BadInput(f"{path}: no tolerance {name!r}; there are {', '.join(known)}")
            if not isinstance(value, (float, int) if known[name] is float else known[name]):
                raise BadInput(f"{path}: {name} is {value!r}, a {known[name].__name__} is needed")
        return cls(**table)


class Beyond(NamedTuple):
    """What is beyond a tolerance: where, what was recorded, and what is there now."""

    at_us: int
    recorded: str
    now: str

    def __str__(self) -> str:
        return f"{self.at_us / 1e6:.3f} s: {change(self.recorded, self.now)}"


@dataclass(slots=True)
class Check:
    """One tolerance: how many things were compared, and those beyond it."""

    name: str
    compared: int = 0
    beyond: list[Beyond] = field(default_factory=list)
    passed: bool = True
    worst: str = ""


@dataclass(slots=True)
class Rerun:
    """What asking again showed of one session."""

    session: str
    checks: list[Check] = field(default_factory=list)
    changed: list[Pair] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


def similarity(a: str, b: str) -> float:
    """Of the words of two texts, 0 to 1."""
    return SequenceMatcher(None, words(a), words(b), autojunk=False).ratio()


def audio_of(log: Timeline, session: str, channel: str) -> Audio:
    """The samples of a session at 16 kHz, by channel and format epoch."""
    assemblers: dict[str, ChannelAssembler] = {}
    pieces: dict[tuple[str, int], list[NDArray[np.int16]]] = {}

    def keep(name: str, found: Iterable[object]) -> None:
        for piece in found:
            if isinstance(piece, Samples):
                pieces.setdefault((name, piece.epoch), []).append(piece.samples)

    for record in log.scan(Lane.MEDIA, log.partition_of(session), 0, session):
        try:
            event = decode(record)
        except BadRecord:
            continue
        name = event.correlation or channel
        assembler = assemblers.setdefault(name, ChannelAssembler())
        keep(
            name,
            assembler.feed(event.source, event.id, event.sequence, event.mediatime, event.data),
        )
    for name, assembler in assemblers.items():
        keep(name, assembler.flush())
    return {place: np.concatenate(found) for place, found in pieces.items()}


def parse_kinds(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for kind in found:
        if kind not in KINDS:
            raise BadInput(f"--rerun {kind}: there are {', '.join(KINDS)}")
    return found


def rerun_session(
    log: Timeline,
    session: str,
    kinds: Sequence[str],
    url: str,
    tolerances: Tolerances,
    changes: Mapping[str, str] = MappingProxyType({}),
) -> Rerun:
    """Ask the models at `url` again, under a changed policy if wished, and compare.

    Raises:
        BadInput: the recording no longer holds what they would be asked about, or a model does not answer.
    """
    if isinstance(log, McapTimeline):
        gone = set(log.about.get("cannot_rerun", "").split(",")) & set(kinds)
        if gone:
            raise BadInput(
                f"{log.path}: {', '.join(sorted(gone))} cannot be asked again: the file was exported without what is needed"
            )
    rec = take_apart(session, events_on(log, session))
    config = next((e.data for e in rec.world if e.type == "session.configured"), None)
    channel = config.channel if config is not None else "mic"
    audio = (
        audio_of(log, session, channel) if set(kinds) & {"vad", "endpoint", "transcript"} else {}
    )
    if not audio and set(kinds) & {"vad", "endpoint", "transcript"}:
        raise BadInput(f"session {session!r}: there is no media in the recording to ask about")

    def override(policy: Policy) -> Policy:
        return policy.with_changes(dict(changes))

    asked = _asked(rec, under(rec, override).decisions) if changes else {}
    result = Rerun(session)
    try:
        if "vad" in kinds:
            with VadClient(url) as vad:
                result.checks.append(_vad(rec, audio, vad, tolerances))
        if set(kinds) - {"vad"}:
            result.checks += asyncio.run(_ask(rec, audio, asked, kinds, url, tolerances))
    except ModelError as error:
        raise BadInput(f"session {session!r}: {error}") from None
    if set(kinds) - {"generate"}:
        outcome = under(rec, override)
        pairs = align(rec.decisions, outcome.decisions)
        result.changed = [p for p in pairs if p.state != "same"]
        result.checks += _decisions(pairs, tolerances)
    return result


def _asked(rec: Recording, derived: Sequence[Event]) -> dict[str, Event]:
    """Recorded request → the one that takes its place under the changed policy."""
    before = [r.event for found in rec.requests.values() for r in found]
    after = [e for e in derived if e.type in REQUESTS]
    pairs = [(p.recorded, p.derived) for p in align(before, after)]
    return {a.id: b for a, b in pairs if a is not None and b is not None}


def _vad(rec: Recording, audio: Audio, vad: VadClient, tolerances: Tolerances) -> Check:
    """Ask about every window anew, with the recorded resets; the answers replace the recorded ones."""
    check = Check("vad")
    states: dict[tuple[str, int], tuple[Any, Any]] = {}
    far, furthest = 0, 0.0
    for place, event in enumerate(rec.world):
        if event.type != "perception.window" or event.data.probabilities is None:
            continue
        data = event.data
        key = (data.channel, data.epoch)
        samples = audio.get(key)
        if samples is None:
            continue
        cut = samples[data.first_sample : data.first_sample + WINDOW_SAMPLES]
        cut = np.pad(cut, (0, WINDOW_SAMPLES - len(cut)))
        context, state = vad_start(1) if data.reset or key not in states else states[key]
        heard = vad.infer(cut[None, :].astype(np.int16), context, state, 10.0)
        states[key] = (heard.context, heard.state)
        new = tuple(round(float(p), DIGITS) for p in heard.probability[0])
        check.compared += len(new)
        for a, b in zip(data.probabilities, new, strict=True):
            furthest = max(furthest, abs(a - b))
            if abs(a - b) > tolerances.vad_probability:
                far += 1
                check.beyond.append(Beyond(data.start_us, str(a), str(b)))
        rec.world[place] = event._replace(data=data.model_copy(update={"probabilities": new}))
    check.worst = f"furthest {furthest:.4f}"
    check.passed = far <= (1 - tolerances.vad_share) * check.compared
    return check


def _cut(audio: Audio, span: AudioSpan) -> NDArray[np.int16] | None:
    samples = audio.get((span.channel, span.epoch))
    return None if samples is None else samples[span.first_sample : span.end_sample]


async def _ask(
    rec: Recording,
    audio: Audio,
    asked: Mapping[str, Event],
    kinds: Sequence[str],
    url: str,
    tolerances: Tolerances,
) -> list[Check]:
    checks: list[Check] = []
    async with ModelClient(url) as client:
        await client.ready([MODELS[k] for k in kinds if k != "vad"], 60.0)
        for kind in ("endpoint", "transcript", "backchannel", "generate"):
            if kind not in kinds:
                continue
            check = Check(kind)
            least = 1.0
            for request in rec.requests.get(kind, ()):
                now = asked.get(request.event.id, request.event)
                for place, _ in request.answers:
                    answer = rec.world[place]
                    new, likeness = await _again(client, kind, now, answer, audio)
                    if new is None:
                        continue
                    rec.world[place] = new
                    check.compared += 1
                    least = min(least, likeness)
                    limit = {
                        "endpoint": 1 - tolerances.endpoint_probability,
                        "transcript": tolerances.transcript_similarity,
                        "backchannel": 1 - tolerances.backchannel_probability,
                        "generate": tolerances.generate_similarity,
                    }[kind]
                    if likeness < limit:
                        said = [
                            str(getattr(e.data, "text", getattr(e.data, "probability", "")))
                            for e in (answer, new)
                        ]
                        check.beyond.append(Beyond(request.at, *said))
            check.passed = not check.beyond
            check.worst = f"least alike {least:.3f}"
            checks.append(check)
    return checks


async def _again(
    client: ModelClient, kind: str, request: Event, answer: Event, audio: Audio
) -> tuple[Event | None, float]:
    """The answer that comes now in place of a recorded one, and how alike they are."""
    data = request.data
    if kind == "endpoint" and answer.type == "endpoint.predicted":
        span = _cut(audio, data.audio)
        if span is None:
            return None, 1.0
        probability = await client.endpoint(span)
        new = answer._replace(data=answer.data.model_copy(update={"probability": probability}))
        return new, 1 - abs(probability - answer.data.probability)
    if kind == "backchannel" and answer.type == "backchannel.predicted":
        probability = await client.backchannel(
            data.text, data.assistant, data.language, data.speech_us
        )
        new = answer._replace(data=answer.data.model_copy(update={"probability": probability}))
        return new, 1 - abs(probability - answer.data.probability)
    if kind == "transcript" and answer.type == "transcript.final":
        span = _cut(audio, data.audio)
        if span is None:
            return None, 1.0
        heard = await client.transcribe(span, data.language)
        new = answer._replace(data=answer.data.model_copy(update={"text": heard.text, "words": ()}))
        return new, similarity(heard.text, answer.data.text)
    if kind == "generate" and answer.type == "generation.completed":
        text = ""
        messages = [m.model_dump() for m in data.messages]
        async with aclosing(
            client.generate(messages, data.max_tokens, data.temperature, data.seed)
        ) as deltas:
            async for delta in deltas:
                text += delta.text
        return answer._replace(data=answer.data.model_copy(update={"text": text})), similarity(
            text, answer.data.text
        )
    return None, 1.0


def _decisions(pairs: Sequence[Pair], tolerances: Tolerances) -> list[Check]:
    """Turns at the same places, and the same verdicts."""
    turns, verdicts = Check("turns"), Check("verdicts")
    furthest = 0.0
    for pair in pairs:
        if pair.either.type == "turn.ended":
            turns.compared += 1
            if pair.recorded is None or pair.derived is None:
                sides = ("a turn", "none") if pair.derived is None else ("none", "a turn")
                turns.beyond.append(Beyond(pair.at, *sides))
                continue
            ends = pair.recorded.data.end_us, pair.derived.data.end_us
            moved = abs(ends[1] - ends[0]) / 1e3
            furthest = max(furthest, moved)
            if moved > tolerances.turn_ms:
                sides = (f"speech ends at {ends[0] / 1e6:.3f} s", f"at {ends[1] / 1e6:.3f} s")
                turns.beyond.append(Beyond(pair.at, *sides))
        elif pair.either.type == "overlap.resolved":
            verdicts.compared += 1
            a, b = (None if e is None else e.data.verdict for e in (pair.recorded, pair.derived))
            if a != b:
                verdicts.beyond.append(Beyond(pair.at, str(a), str(b)))
    turns.worst = f"furthest {furthest:.0f} ms"
    turns.passed = not turns.beyond
    verdicts.passed = not verdicts.beyond or not tolerances.verdicts
    return [turns, verdicts]
