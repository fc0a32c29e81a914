"""The model calls on Triton as effects: what each request type asks of the model server, and which
outcomes its answer becomes.

Word times become media time here; text is streamed in groups and speech in the model's own chunks,
so that the first sentence is spoken while the rest is generated. How requests are queued, retried,
cancelled and ended is the business of `flows.effects`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from flows.audio_store import AudioStore
from flows.effects import Effect, Results, plain_reason
from flows.grouping import grouped
from infra.triton.client import Delta, ModelClient, ModelRejected, ModelUnavailable
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
    BackchannelFailed,
    BackchannelPredicted,
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
    backchannel_limit: int = 8
    endpoint_s: float = 5.0
    transcript_s: float = 20.0
    generate_s: float = 120.0
    speak_s: float = 60.0
    backchannel_s: float = 2.0
    """The conversation waits `overlap.backchannel_within`; much later an answer is of no use to anybody."""
    catch_up_s: float = 120.0
    """How long the media lane may take to be read again after a restart."""
    audio_s: float = 5.0
    """How long a request waits for the samples that it names."""


def reason_of(error: BaseException) -> FailureReason:
    """The client's errors in the log's words."""
    if isinstance(error, ModelUnavailable):
        return "unavailable"
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
        # After a restart the media lane is read again first, which takes its time.
        await audio.caught_up.wait()
        try:
            async with asyncio.timeout(settings.audio_s):
                return await audio.span(request.session, request.data.audio)
        except TimeoutError:
            late = f"its audio was not read within {settings.audio_s:g} s"
            raise TimeoutError(late) from None

    async def endpoint(request: Event, pcm: Any) -> Results:
        probability = await client.endpoint(pcm, timeout_s=settings.endpoint_s)
        yield EndpointPredicted(turn=request.data.turn, probability=probability)

    async def transcript(request: Event, pcm: Any) -> Results:
        asked, start = request.data, request.data.start_us
        answer = await client.transcribe(pcm, asked.language, timeout_s=settings.transcript_s)
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
            turn=asked.turn, text=answer.text, words=words, language=answer.language
        )

    async def backchannel(request: Event, _: Any) -> Results:
        asked = request.data
        probability = await client.backchannel(
            asked.text,
            asked.assistant,
            asked.language,
            asked.speech_us,
            timeout_s=settings.backchannel_s,
        )
        yield BackchannelPredicted(overlap=asked.overlap, probability=probability)

    return {
        "endpoint.requested": Effect(
            endpoint,
            lambda r, reason, text: EndpointFailed(turn=r.data.turn, reason=reason, message=text),
            _outcomes("endpoint"),
            settings.endpoint_limit,
            settings.endpoint_s,
            samples,
            settings.catch_up_s + settings.audio_s,
            reason_of=reason_of,
        ),
        "transcript.requested": Effect(
            transcript,
            lambda r, reason, text: TranscriptFailed(turn=r.data.turn, reason=reason, message=text),
            _outcomes("transcript"),
            settings.transcript_limit,
            settings.transcript_s,
            samples,
            settings.catch_up_s + settings.audio_s,
            reason_of=reason_of,
        ),
        "backchannel.requested": Effect(
            backchannel,
            lambda r, reason, text: BackchannelFailed(
                overlap=r.data.overlap, reason=reason, message=text
            ),
            _outcomes("backchannel"),
            settings.backchannel_limit,
            settings.backchannel_s,
            tries=2,
            reason_of=reason_of,
        ),
        "response.requested": Effect(
            lambda request, _: _generate(client, request, settings.generate_s),
            lambda r, reason, text: GenerationFailed(
                response=r.data.response, reason=reason, message=text
            ),
            _outcomes("generate"),
            settings.generate_limit,
            settings.generate_s,
            reason_of=reason_of,
        ),
        "speech.requested": Effect(
            lambda request, _: _speak(client, request, settings.speak_s),
            lambda r, reason, text: SpeechFailed(
                response=r.data.response, index=r.data.index, reason=reason, message=text
            ),
            _outcomes("speak"),
            settings.speak_limit,
            settings.speak_s,
            reason_of=reason_of,
            # Speech is played as it comes: the sentences of a response must not mix.
            line=lambda request: request.data.response,
        ),
    }


async def _generate(client: ModelClient, request: Event, within_s: float) -> Results:
    asked = request.data
    messages = [message.model_dump() for message in asked.messages]
    text, last = "", Delta("", "", 0)

    async def pieces() -> AsyncGenerator[str, None]:
        nonlocal last
        deltas = client.generate(
            messages, asked.max_tokens, asked.temperature, asked.seed, timeout_s=within_s
        )
        async with aclosing(deltas):
            async for last in deltas:
                yield last.text

    async with aclosing(grouped(pieces())) as groups:
        async for group in groups:
            text += group
            yield ResponseText(response=asked.response, text=group)
    reason: Literal["stop", "length"] = "length" if last.finish == "length" else "stop"
    yield GenerationCompleted(
        response=asked.response, text=text, tokens=last.tokens, finish_reason=reason
    )


async def _speak(client: ModelClient, request: Event, within_s: float) -> Results:
    asked = request.data
    samples, at_rate = 0, 1
    async with aclosing(client.speak(asked.text, timeout_s=within_s)) as chunks:
        async for pcm, rate in chunks:
            chunk = ResponseSpeech(rate, 1, pcm)
            if chunk.samples:
                samples, at_rate = samples + chunk.samples, rate
                yield chunk
    duration_us = samples * 1_000_000 // at_rate
    yield SpeechCompleted(response=asked.response, index=asked.index, duration_us=duration_us)
