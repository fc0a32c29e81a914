"""Sound for the tests of echo: speech-like noise, a way from the loudspeaker to the microphone, and a session that plays and listens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from operators.echo import EchoMeter
from operators.played import Played
from schemas.base import SAMPLE_RATE, WINDOW_SAMPLES
from schemas.envelope import Event, Pcm
from schemas.media import PlaybackAck

Sound = NDArray[np.float64]
Int16 = NDArray[np.int16]
ACK_EVERY = SAMPLE_RATE // 2
CHUNK = 8000


def talk(seconds: float, seed: int, level_db: float = -20.0) -> Sound:
    """Syllables of a voice: harmonics under moving formants, some noise, and short pauses between them."""
    rng = np.random.default_rng(seed)
    out = np.zeros(round(seconds * SAMPLE_RATE))
    at = 0
    while at < len(out):
        length = int(rng.uniform(0.09, 0.26) * SAMPLE_RATE)
        t = np.arange(length) / SAMPLE_RATE
        pitch = rng.uniform(90, 220) * (1 + rng.uniform(-0.1, 0.1) * t / t[-1])
        phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
        formants = rng.uniform(300, 900), rng.uniform(900, 2500), rng.uniform(2500, 4500)
        sound = 0.05 * rng.standard_normal(length) * rng.choice([0.3, 3.0])
        for k in range(1, 30):
            weight = sum(np.exp(-(((k * pitch[0] - f) / 250) ** 2)) for f in formants) + 0.02
            sound += weight * np.sin(k * phase + rng.uniform(0, 6.28))
        piece = (sound * np.hanning(length))[: len(out) - at]
        out[at : at + len(piece)] = piece
        at += length + int(rng.choice([0.0, 0.03, 0.2], p=[0.6, 0.25, 0.15]) * SAMPLE_RATE)
    return at_level(out, level_db)


def at_level(sound: Sound, level_db: float) -> Sound:
    return np.asarray(sound * 10 ** (level_db / 20) / np.sqrt(np.mean(sound**2)))


def room(seconds: float, direct_db: float, seed: int = 0) -> Sound:
    """An impulse response: the direct sound, and so many dB below it a tail that falls by 60 dB in `seconds`."""
    rng = np.random.default_rng(seed)
    count = round(seconds * SAMPLE_RATE)
    tail = rng.standard_normal(count) * 10 ** (-3 * np.arange(count) / count)
    tail[:32] = 0.0
    path = tail * 10 ** (-direct_db / 20) / np.sqrt(np.sum(tail**2))
    path[0] = 1.0
    return np.asarray(path)


def echo_of(
    played: Sound, delay_ms: float, level_db: float, path: Sequence[float] | Sound = (1.0,)
) -> Sound:
    """What comes back of a sound: later, and so much quieter than it was played."""
    size = 1 << (len(played) + len(path)).bit_length()
    back = np.fft.irfft(np.fft.rfft(played, size) * np.fft.rfft(path, size), size)[: len(played)]
    late = round(delay_ms * SAMPLE_RATE / 1000)
    loud = 10 ** (level_db / 20) * np.sqrt(np.mean(played**2) / np.mean(back**2))
    return np.concatenate((np.zeros(late), back * loud))[: len(played)]


def int16(sound: Sound) -> Int16:
    return np.clip(np.rint(sound * 32768), -32768, 32767).astype(np.int16)


def speech_events(response: str, sound: Int16, rate: int = SAMPLE_RATE) -> list[Event]:
    return [
        Event(
            "response.speech",
            "s",
            f"{response}-{i}",
            "inference",
            Pcm(rate, 1, sound[at : at + CHUNK].tobytes()),
            None,
            f"ask-{response}",
            response,
            i,
        )
        for i, at in enumerate(range(0, len(sound), CHUNK))
    ]


def ack(response: str, at: int, position: int, state: str = "playing") -> Event:
    """An acknowledgement of a position at a media sample."""
    us = 1_000_000 / SAMPLE_RATE
    data = PlaybackAck(response=response, played_us=int(position * us), state=state)  # type: ignore[arg-type]
    return Event(data.TYPE, "s", f"{response}-{at}-{state}", "device", data, int(at * us))


class Scene(NamedTuple):
    """A response that is played from media sample `start` on, and what the microphone hears meanwhile."""

    speech: Sound
    start: int
    microphone: Sound
    user: Sound
    echo: Sound

    @property
    def windows(self) -> int:
        return len(self.microphone) // WINDOW_SAMPLES

    def window(self, i: int) -> slice:
        return slice(i * WINDOW_SAMPLES, (i + 1) * WINDOW_SAMPLES)

    def loud(self, sound: Sound, i: int, db: float = -50.0) -> bool:
        """Whether a sound is heard in most of window `i`."""
        parts = sound[self.window(i)].reshape(6, -1)
        return sum(float(np.mean(part**2)) > 10 ** (db / 10) for part in parts) >= 3

    def acks(self, jitter_ms: float = 0.0, seed: int = 0) -> list[Event]:
        rng = np.random.default_rng(seed)
        said = []
        for position in range(0, len(self.speech), ACK_EVERY):
            late = rng.uniform(-jitter_ms, jitter_ms) * SAMPLE_RATE / 1000
            said.append(ack("r", self.start + position + round(late), position))
        end = len(self.speech)
        return [*said, ack("r", self.start + end, end, "drained")]

    def heard(
        self,
        acks: list[Event] | None = None,
        meter: EchoMeter | None = None,
        known_ahead: bool = True,
    ) -> list[float | None]:
        """The echo of each window. `known_ahead`: all that the device says is there before; else just before it counts."""
        played, meter = Played(), meter or EchoMeter()
        waiting = self.acks() if acks is None else list(acks)
        for event in speech_events("r", int16(self.speech)):
            played.follow(event, 0)
        values = []
        for i in range(self.windows):
            end_us = self.window(i).stop * 1_000_000 // SAMPLE_RATE
            while waiting and (known_ahead or (waiting[0].mediatime or 0) <= end_us):
                event = waiting.pop(0)
                played.follow(event, event.mediatime or 0)
            sound = int16(self.microphone[self.window(i)])
            values.append(meter.hear(sound, self.window(i).start, played))
        return values


def scene(
    delay_ms: float,
    level_db: float,
    path: Sequence[float] | Sound = (1.0,),
    *,
    seed: int = 1,
    seconds: float = 5.0,
    speech: Sound | None = None,
    user: Sound | None = None,
    user_at: float = 0.0,
    noise_db: float = -65.0,
) -> Scene:
    """One second of silence, so much speech with its echo, one second of silence."""
    speech = talk(seconds, seed) if speech is None else speech
    start = SAMPLE_RATE
    played = np.concatenate((np.zeros(start), speech, np.zeros(SAMPLE_RATE)))
    loud = at_level(speech, -20.0)
    played[start : start + len(speech)] = loud
    echo = echo_of(played, delay_ms, level_db, path) if level_db > -100 else np.zeros_like(played)
    over = np.zeros_like(played)
    if user is not None:
        at = round(user_at * SAMPLE_RATE)
        over[at : at + len(user)] = user[: len(over) - at]
    noise = np.random.default_rng(seed).standard_normal(len(played)) * 10 ** (noise_db / 20)
    return Scene(loud, start, echo + over + noise, over, echo)
