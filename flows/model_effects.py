"""The model calls on Triton as effects: what each request type asks of the model server, and which
outcomes its answer becomes.

Word times become media time here; text is streamed in groups and speech in the model's own chunks,
so that the first sentence is spoken while the rest is generated. How requests are queued, retried,
cancelled and ended is the business of `flows.effects`.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from flows.audio_store import AudioStore
from flows.effects import Effect, Result, plain_reason
from flows.grouping import grouped
from infra.triton.client import ModelClient, ModelRejected
from schemas.envelope import Event
from schemas.registry import PARTIALS, TERMINALS
from schemas.responses import (
    GenerationCompleted,
    GenerationFailed,
    ResponseSpeech,
    ResponseText,
    SpeechCompleted,
    SpeechFailed,
)
from schemas.transcription import (
    EndpointFailed,
    EndpointPredicted,
    FailureReason,
    TranscriptFailed,
    TranscriptFinal,
    Word,
)


@dataclass(frozen=True)
class InferenceSettings:
    """How much runs at once, and how long (wall time) a request may take once what it needs is
    there.
    """

    endpoint_limit: int = 8
    transcript_limit: int = 2
    generate_limit: int = 2
    speak_limit: int = 2
    endpoint_s: float = 5.0
    transcript_s: float = 20.0
    generate_s: float = 120.0
    speak_s: float = 60.0
    audio_s: float = 5.0
    """How long a request waits for the samples that it names."""


def reason_of(error: BaseException) -> FailureReason:
    return "rejected" if isinstance(error, ModelRejected) else plain_reason(error)


def _outcomes(kind: str) -> dict[str, bool]:
    return {t: False for t, k in PARTIALS.items() if k == kind} | {
        t: True for t, k in TERMINALS.items() if k == kind
    }


def model_effects(
    client: ModelClient, audio: AudioStore, settings: InferenceSettings = InferenceSettings()
) -> dict[str, Effect]:
    """Request type → the model call it asks for."""

    async def samples(request: Event) -> Any:
        return await audio.span(request.session, request.data.audio)

    async def endpoint(request: Event, pcm: Any) -> AsyncIterator[Result]:
        yield EndpointPredicted(turn=request.data.turn, probability=await client.endpoint(pcm))

    async def transcript(request: Event, pcm: Any) -> AsyncIterator[Result]:
        start, answer = request.data.start_us, await client.transcribe(pcm, request.data.language)
        words = tuple(
            Word(
                text=w.text,
                start_us=start + w.start_us,
                end_us=start + w.end_us,
                probability=w.probability,
            )
            for w in answer.words
        )
        yield TranscriptFinal(
            turn=request.data.turn, text=answer.text, words=words, language=answer.language
        )

    return {
        "endpoint.requested": Effect(
            endpoint,
            lambda r, reason, text: EndpointFailed(turn=r.data.turn, reason=reason, message=text),
            _outcomes("endpoint"),
            settings.endpoint_limit,
            settings.endpoint_s,
            samples,
            settings.audio_s,
            reason_of=reason_of,
        ),
        "transcript.requested": Effect(
            transcript,
            lambda r, reason, text: TranscriptFailed(turn=r.data.turn, reason=reason, message=text),
            _outcomes("transcript"),
            settings.transcript_limit,
            settings.transcript_s,
            samples,
            settings.audio_s,
            reason_of=reason_of,
        ),
        "response.requested": Effect(
            lambda request, _: _generate(client, request),
            lambda r, reason, text: GenerationFailed(
                response=r.data.response, reason=reason, message=text
            ),
            _outcomes("generate"),
            settings.generate_limit,
            settings.generate_s,
            reason_of=reason_of,
        ),
        "speech.requested": Effect(
            lambda request, _: _speak(client, request),
            lambda r, reason, text: SpeechFailed(
                response=r.data.response, index=r.data.index, reason=reason, message=text
            ),
            _outcomes("speak"),
            settings.speak_limit,
            settings.speak_s,
            reason_of=reason_of,
        ),
    }


async def _generate(client: ModelClient, request: Event) -> AsyncIterator[Result]:
    asked = request.data
    text, tokens = "", 0

    async def pieces() -> AsyncIterator[str]:
        nonlocal tokens
        messages = [message.model_dump() for message in asked.messages]
        async with aclosing(
            client.generate(messages, asked.max_tokens, asked.temperature, asked.seed)
        ) as deltas:
            async for delta in deltas:
                tokens += 1
                yield delta

    async with aclosing(grouped(pieces())) as groups:
        async for group in groups:
            text += group
            yield ResponseText(response=asked.response, text=group)
    reason = "length" if tokens >= asked.max_tokens else "stop"
    yield GenerationCompleted(
        response=asked.response, text=text, tokens=tokens, finish_reason=reason
    )


async def _speak(client: ModelClient, request: Event) -> AsyncIterator[Result]:
    asked = request.data
    samples, at_rate = 0, 1
    async with aclosing(client.speak(asked.text)) as chunks:
        async for pcm, rate in chunks:
            if len(pcm):
                samples, at_rate = samples + len(pcm), rate
                yield ResponseSpeech(rate, 1, pcm.tobytes())
    duration_us = samples * 1_000_000 // at_rate
    yield SpeechCompleted(response=asked.response, index=asked.index, duration_us=duration_us)
