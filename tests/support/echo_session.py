"""A scripted session in a room: its microphone hears its loudspeaker, and what its windows say comes from that sound.

Loud hops count as speech, whoever makes them, as with any detector of voice activity. `guarded=False` leaves the echo of windows
unknown, as it would be without the guard.
"""

from typing import Any

import numpy as np

from flows.testing.script import RATE, Session
from infra.capture.loudspeaker import Loudspeaker
from infra.capture.room import Echo, Room
from operators.echo import EchoMeter
from operators.fold import Applied
from operators.played import EVENTS, Played
from schemas.base import HOP_SAMPLES, WINDOW_SAMPLES, WINDOW_US
from schemas.envelope import Event, Pcm
from tests.support.echo import int16, talk

LOUD = 10 ** (-50 / 20) * 32768
NO_GUARD = {"echo.threshold": 1, "echo.least_words": 1000}
"""The policy that takes everything that is heard for the user's."""


class EchoSession(Session):
    """See the module; `speak` and `silence` say when the user speaks."""

    def __init__(self, echo: Echo, *, guarded: bool = True, **more: Any) -> None:
        self._guarded = guarded
        self._room = Room(echo, RATE)
        self._speaker = Loudspeaker(self._room)
        self._played, self._meter = Played(), EchoMeter()
        self._users = int16(talk(20.0, 77, -22.0))
        self._user_at = 0
        self._voices = 0
        policy = {} if guarded else NO_GUARD
        super().__init__(policy=policy | more.pop("policy", {}), **more)

    def outcomes(self, request: Event) -> list[Event]:
        """Speech that sounds like some."""
        found = []
        for outcome in super().outcomes(request):
            if isinstance(outcome.data, Pcm):
                self._voices += 1
                sound = int16(talk(outcome.data.samples / RATE, self._voices))
                outcome = outcome._replace(data=Pcm(RATE, 1, sound.astype("<i2").tobytes()))
            found.append(outcome)
        return found

    def feed(self, event: Event) -> list[Applied]:
        applied = super().feed(event)
        for step in applied if applied and applied[0].input.id == event.id else ():
            for seen in (step.input, *step.decisions):
                at = self.at if seen.mediatime is None else seen.mediatime
                if seen.type != "playback.ack":
                    self._speaker.due(at)
                    self._speaker.follow(seen, at)
                if seen.type in EVENTS:
                    self._played.follow(seen, at)
        return applied

    def _window(self) -> None:
        sound = np.zeros(WINDOW_SAMPLES, "<i2")
        for i, probability in enumerate(self._hops):
            if probability is not None and probability >= 0.5:
                begin, self._user_at = self._user_at, self._user_at + HOP_SAMPLES
                said = self._users[begin : begin + HOP_SAMPLES]
                sound[i * HOP_SAMPLES : (i + 1) * HOP_SAMPLES] = said
        self._speaker.due(self.at + WINDOW_US)
        self._speaker.sound(self.at + WINDOW_US)
        heard = self._room.mix(Pcm(RATE, 1, sound.tobytes()), self.at)
        window = np.frombuffer(heard.pcm, "<i2")
        first = self.at // WINDOW_US * WINDOW_SAMPLES
        self.echo = self._meter.hear(window, first, self._played) if self._guarded else None
        hops = window.reshape(-1, HOP_SAMPLES).astype(np.float64)
        loud = np.sqrt(np.mean(hops**2, axis=1)) > LOUD
        self._hops = [0.95 if there else 0.02 for there in loud]
        super()._window()
