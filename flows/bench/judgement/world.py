"""One conversation under one policy: the fold, driven by what the models said of the user's audio and by a simulated assistant.

The session is paced `asap`: an outcome comes `policy.latency.<kind>` after its request (law 7), so nothing here depends on how fast the
models were. The assistant's words are the script's, its speech is silence of their length, and its loudspeaker the one of
`operators.playout`. There is no echo. The plain detector against which ours is measured is the same fold, told nothing: to every
endpoint question the answer is yes, at once; of what was said over the assistant it gets no words.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from flows.bench.judgement.models import CHANNEL, Oracle, session_of
from flows.bench.judgement.sound import Clip
from operators.fold import SessionFold
from operators.pipeline import operator_versions
from operators.playout import Playouts
from schemas import ids
from schemas.envelope import Event, Pcm
from schemas.media import PlaybackAck, TextInput
from schemas.policy import Policy
from schemas.registry import REQUESTS
from schemas.responses import GenerationCompleted, ResponseText, SpeechCompleted
from schemas.session import SessionConfigured, SessionOpened
from schemas.transcription import (
    BackchannelPredicted,
    EndpointPredicted,
    TranscriptFailed,
    TranscriptFinal,
)

QUESTION = "Please tell me about it."
REPLY = "Certainly, I will see to that."
"""To whatever is said and not typed."""
US_PER_CHARACTER = 60_000
RATE = 16_000
KEPT = frozenset(
    {
        "turn.ended",
        "overlap.resolved",
        "floor.paused",
        "floor.resumed",
        "response.started",
        "response.ended",
        "response.failed",
        "response.cancelled",
    }
)


class World:
    """`oracle` None: the plain detector."""

    def __init__(
        self, clip: Clip, windows: Sequence[Event], policy: Policy, oracle: Oracle | None
    ) -> None:
        self.clip, self.windows, self.policy, self.oracle = clip, windows, policy, oracle
        self.session = session_of(clip)
        self.fold = SessionFold(self.session)
        self.decisions: list[Event] = []
        self._playouts = Playouts()
        self._sequence = 0
        self._horizon = 0

    def run(self) -> list[Event]:
        """All decisions that say when somebody had the floor."""
        opened = SessionOpened(pacing="asap", playback="acknowledged")
        self._observe(opened, 0)
        configured = SessionConfigured(
            channel=CHANNEL,
            pacing="asap",
            playback="acknowledged",
            language="en",
            policy=self.policy,
            operators=operator_versions(),
            models={},
        )
        self._feed(
            Event(configured.TYPE, self.session, "configured", "perception", configured, None)
        )
        questions = deque(self.clip.questions)
        for window in self.windows:
            until = window.mediatime or 0
            while questions and questions[0] <= until:
                self._observe(TextInput(text=QUESTION), questions.popleft())
            self._horizon = until
            self._feed(window)
            self._acknowledge()
        return self.decisions

    def _observe(self, data: Any, at: int) -> None:
        self._sequence += 1
        id_ = ids.observation_id(self.session, "device", self._sequence, data.TYPE)
        self._feed(Event(data.TYPE, self.session, id_, "device", data, at, sequence=self._sequence))

    def _feed(self, event: Event) -> None:
        """Feed an input, then the answers to what it asks for, and so on."""
        waiting = deque([event])
        while waiting:
            for applied in self.fold.feed(waiting.popleft()):
                if applied.fate != "applied":
                    continue
                for seen in (applied.input, *applied.decisions):
                    if seen.type in Playouts.EVENTS:
                        self._playouts.follow(seen, seen.mediatime or self.fold.now)
                self.decisions += [d for d in applied.decisions if d.type in KEPT]
                requests = [d for d in applied.decisions if d.type in REQUESTS]
                for request in requests:
                    self._ask(request)
                for request in requests:
                    waiting.extend(self._answer(request))

    def _acknowledge(self) -> None:
        """What the loudspeaker has to say up to here."""
        while (due := self._playouts.next_ack()) is not None and due[1].at_us <= self._horizon:
            response, ack = due
            self._playouts.acknowledge(response, ack)
            data = PlaybackAck(response=response, played_us=ack.played_us, state=ack.state)
            self._observe(data, ack.at_us)

    def _ask(self, request: Event) -> Any:
        """The model's answer about what the request names, perhaps still to come."""
        data, oracle = request.data, self.oracle
        if oracle is None:
            return None
        match REQUESTS[request.type]:
            case "endpoint":
                return oracle.endpoint(self.clip, data.audio.first_sample, data.audio.end_sample)
            case "transcript":
                return oracle.transcript(self.clip, data.audio.first_sample, data.audio.end_sample)
            case "backchannel":
                return oracle.backchannel(data.text, data.assistant, data.speech_us)
        return None

    def _answer(self, request: Event) -> Iterable[Event]:
        data, asked = request.data, self._ask(request)
        match REQUESTS[request.type]:
            case "endpoint":
                probability = 1.0 if asked is None else asked.result()
                yield _outcome(request, EndpointPredicted(turn=data.turn, probability=probability))
            case "transcript" if asked is not None:
                yield _outcome(request, TranscriptFinal(turn=data.turn, text=asked.result()))
            case "transcript" if self.clip.turns:
                yield _outcome(request, TranscriptFinal(turn=data.turn, text="something"))
            case "transcript":
                yield _outcome(request, TranscriptFailed(turn=data.turn, reason="unavailable"))
            case "backchannel":
                probability = 0.5 if asked is None else asked.result()
                predicted = BackchannelPredicted(overlap=data.overlap, probability=probability)
                yield _outcome(request, predicted)
            case "generate":
                typed = data.messages[-1].content.endswith(QUESTION)
                text = self.clip.assistant if typed else REPLY
                yield _outcome(request, ResponseText(response=data.response, text=text))
                yield _outcome(
                    request,
                    GenerationCompleted(
                        response=data.response, text=text, tokens=1, finish_reason="stop"
                    ),
                )
            case "speak":
                pcm = Pcm(RATE, 1, bytes(2 * (len(data.text) * US_PER_CHARACTER * RATE // 10**6)))
                yield _outcome(request, pcm, "response.speech")
                done = SpeechCompleted(
                    response=data.response, index=data.index, duration_us=pcm.duration_us
                )
                yield _outcome(request, done)


def _outcome(request: Event, data: Any, type_: str | None = None) -> Event:
    name = type_ or data.TYPE
    id_ = ids.outcome_id(request.id, 1, name, 0)
    session, correlation = request.session, request.correlation
    return Event(name, session, id_, "inference", data, None, request.id, correlation, 0)
