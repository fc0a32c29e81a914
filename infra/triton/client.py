"""The models as Python calls: voice activity synchronously, everything else with asyncio.

`VadClient` serves a flow that owns its thread and counts every microsecond. `ModelClient` serves
the asynchronous flows; it belongs to the event loop that first uses it. A generation and a spoken
text each have a gRPC stream of their own: closing the generator, or cancelling the task that reads
it, cancels the work on the server.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from infra.clock import monotonic_s
from infra.triton.wire import (
    CHANNEL_OPTIONS,
    Array,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    add_bytes,
    add_input,
    failure,
    outputs_of,
    request_of,
    sort,
    target,
)

__all__ = [
    "Delta",
    "ModelClient",
    "ModelError",
    "ModelRejected",
    "ModelUnavailable",
    "SpeechChunk",
    "Transcript",
    "VadClient",
    "VadResult",
    "Word",
]

VAD = "silero_vad"
ENDPOINT = "smart_turn"
WHISPER = "whisper"
CHAT = "chat"
SPEECH = "speech"
BACKCHANNEL = "backchannel"

WINDOW = 1536
CONTEXT = 64


class VadResult(NamedTuple):
    """Probability [B, 3] of the three hops, and what the session's next call needs."""

    probability: Array
    context: Array
    state: Array


@dataclass(frozen=True, slots=True)
class Word:
    """A recognised word; µs from the first sample of the audio that was sent."""

    text: str
    start_us: int
    end_us: int
    probability: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said; an empty text where nothing was."""

    text: str
    language: str
    words: tuple[Word, ...]
    duration_us: int
    no_speech_probability: float
    average_log_probability: float


class Delta(NamedTuple):
    """A piece of generated text. `finish` is empty until the last one: "stop" or "length"."""

    text: str
    finish: str
    tokens: int


class SpeechChunk(NamedTuple):
    """PCM16 little-endian mono, at most half a second, with its sample rate."""

    pcm: bytes
    rate: int


def vad_start(batch: int) -> tuple[Array, Array]:
    """Context and state of sessions that begin."""
    return np.zeros((batch, CONTEXT), np.float32), np.zeros((batch, 2, 128), np.float32)


class VadClient:
    """Voice activity for many sessions a call; not for use from several threads at once."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._channel = grpc.insecure_channel(target(url), options=CHANNEL_OPTIONS)
        self._infer = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelInfer

    def infer(
        self, audio: Array, context: Array, state: Array, timeout_s: float = 2.0
    ) -> VadResult:
        """One window of each of B sessions: audio int16 [B, 1536], context [B, 64], state [B, 2, 128].

        Raises:
            ModelUnavailable: no answer within `timeout_s`, or the server is down.
            ModelRejected: wrong shapes or types, or the model is not on this server.
        """
        request = request_of(VAD)
        for name, array, dtype in (
            ("AUDIO", audio, np.int16),
            ("CONTEXT", context, np.float32),
            ("STATE", state, np.float32),
        ):
            if array.dtype != dtype:
                reason = f"{name} of type {np.dtype(dtype)} required, {array.dtype} came"
                raise ModelRejected(self.url, VAD, reason)
            add_input(request, name, array)
        try:
            answer = outputs_of(self._infer(request, timeout=timeout_s))
        except grpc.RpcError as error:
            raise failure(self.url, VAD, error) from None
        return VadResult(answer["PROBABILITY"], answer["CONTEXT_OUT"], answer["STATE_OUT"])

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class ModelClient:
    """Endpoint, transcript, generation, speech and backchannels, for one event loop."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._target = target(url)
        self._channel: Any = None
        self._made: Any = None

    @property
    def _stub(self) -> Any:
        # Made at first use: an asyncio channel belongs to the loop that runs then.
        if self._made is None:
            self._channel = grpc.aio.insecure_channel(self._target, options=CHANNEL_OPTIONS)
            self._made = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        return self._made

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = self._made = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def ready(self, models: Iterable[str], timeout_s: float = 5.0) -> None:
        """Return when all these models answer.

        Raises:
            ModelUnavailable: the server cannot be reached, or a model is still loading after `timeout_s`.
            ModelRejected: the server runs and has no such model.
        """
        until = monotonic_s() + timeout_s
        for model in models:
            while not await self._is_ready(model, max(until - monotonic_s(), 0.1)):
                if monotonic_s() > until:
                    raise ModelUnavailable(self.url, model, f"still loading after {timeout_s} s")
                await asyncio.sleep(0.1)

    async def _is_ready(self, model: str, timeout_s: float) -> bool:
        try:
            asked = service_pb2.ModelReadyRequest(name=model)
            answer = await self._stub.ModelReady(asked, timeout=timeout_s, wait_for_ready=True)
            if answer.ready:
                return True
            index = await self._stub.RepositoryIndex(
                service_pb2.RepositoryIndexRequest(), timeout=timeout_s
            )
        except grpc.RpcError as error:
            raise failure(self.url, model, error) from None
        states = {entry.name: entry for entry in index.models}
        if model not in states:
            here = ", ".join(sorted(states)) or "none"
            raise ModelRejected(self.url, model, f"this server has no such model (it has: {here})")
        entry = states[model]
        if entry.state == "LOADING":
            return False
        reason = entry.reason.splitlines()[0] if entry.reason else "it was not asked to load it"
        raise ModelRejected(self.url, model, f"model not loaded on this server ({reason})")

    async def endpoint(self, audio: Array, timeout_s: float = 5.0) -> float:
        """Probability that the speaker has finished; int16 at 16 kHz, of which the last 8 s count."""
        request = request_of(ENDPOINT)
        add_input(request, "AUDIO", pcm(self.url, ENDPOINT, audio)[-8 * 16_000 :])
        answer = await self._call(request, timeout_s)
        return float(answer["PROBABILITY"][0])

    async def backchannel(
        self,
        text: str,
        assistant: str = "",
        language: str = "en",
        speech_us: int = 0,
        timeout_s: float = 5.0,
    ) -> float:
        """Probability that `text`, said over the assistant's last words, is a mere acknowledgement."""
        said = {
            "text": text,
            "assistant": assistant,
            "language": language,
            "speech_us": speech_us,
        }
        request = request_of(BACKCHANNEL)
        add_bytes(request, "REQUEST", json.dumps(said).encode(), shape=(1, 1))
        answer = await self._call(request, timeout_s)
        return float(answer["PROBABILITY"][0, 0])

    async def transcribe(
        self, audio: Array, language: str | None = None, timeout_s: float = 30.0
    ) -> Transcript:
        """What is said in int16 audio at 16 kHz."""
        request = request_of(WHISPER)
        add_input(request, "AUDIO", pcm(self.url, WHISPER, audio))
        if language:
            add_bytes(request, "LANGUAGE", language.encode())
        answer = await self._call(request, timeout_s)
        result = json.loads(answer["RESULT"])
        words = tuple(Word(**word) for word in result.pop("words"))
        return Transcript(words=words, **result)

    async def generate(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        timeout_s: float = 120.0,
    ) -> AsyncGenerator[Delta, None]:
        """Pieces of the answer to a conversation of {"role", "content"}; the last one says why it ended."""
        wish = {
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "stop": list(stop),
        }
        request = request_of(CHAT)
        add_bytes(request, "REQUEST", json.dumps(wish).encode())
        async with aclosing(self._stream(request, timeout_s)) as answers:
            async for answer in answers:
                finish = answer["FINISH"].decode()
                yield Delta(answer["TEXT"].decode(), finish, int(answer["TOKENS"][0]))

    async def speak(self, text: str, timeout_s: float = 120.0) -> AsyncGenerator[SpeechChunk, None]:
        """The text as speech, from its first sentence on; nothing at all for text without words."""
        request = request_of(SPEECH)
        add_bytes(request, "TEXT", text.encode())
        async with aclosing(self._stream(request, timeout_s)) as answers:
            async for answer in answers:
                yield SpeechChunk(answer["AUDIO"].tobytes(), int(answer["RATE"][0]))

    async def _call(self, request: Any, timeout_s: float) -> dict[str, Any]:
        try:
            return outputs_of(await self._stub.ModelInfer(request, timeout=timeout_s))
        except grpc.RpcError as error:
            raise failure(self.url, request.model_name, error) from None

    async def _stream(self, request: Any, timeout_s: float) -> AsyncGenerator[dict[str, Any], None]:
        """The responses of one decoupled request, on a stream of its own."""
        # Without this the end of an answer with no response at all could not be told from silence.
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        call = self._stub.ModelStreamInfer(one(request), timeout=timeout_s)
        final = False
        try:
            async for message in call:
                if message.error_message:
                    text = message.error_message
                    raise sort(self.url, request.model_name, text, retry=False)
                response = message.infer_response
                final = response.parameters["triton_final_response"].bool_param
                if response.outputs:
                    yield outputs_of(response)
                if final:
                    break
        except grpc.RpcError as error:
            raise failure(self.url, request.model_name, error) from None
        finally:
            call.cancel()  # no effect on a call that has ended; everything else must stop on the server too
        if not final:
            raise ModelUnavailable(self.url, request.model_name, "the stream broke off")


async def one(request: Any) -> AsyncGenerator[Any, None]:
    """A request stream of a single request."""
    yield request


def pcm(url: str, model: str, audio: Array) -> Array:
    """The samples, if they are what the speech models take."""
    if audio.dtype != np.int16 or audio.ndim != 1:
        reason = f"int16 samples [n] required, {audio.dtype} {list(audio.shape)} came"
        raise ModelRejected(url, model, reason)
    return audio
