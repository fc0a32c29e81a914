"""Triton's gRPC messages from and to numpy, and its errors, sorted by whether a retry makes sense.

The stubs and messages are tritonclient's own. Its client classes are left aside: they copy every
tensor twice, and their streams hide the call that has to be cancelled.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

Array = NDArray[Any]

# Clips of a minute fit many times; a broken length must not eat the memory.
LARGEST_MESSAGE = 64 * 1024 * 1024
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # A server that vanished without a word (its machine, its network) is noticed within half a
    # minute, and only while a call waits. Triton refuses pings that come faster than every 5
    # minutes on an idle connection.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 2),
    # A local server is back within seconds; gRPC's default pause grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

TYPES = {"int16": "INT16", "int32": "INT32", "float32": "FP32"}
DTYPES: Mapping[str, Any] = {"INT16": np.int16, "INT32": np.int32, "FP32": np.float32}

RETRY_CODES = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.ABORTED,
}
# Triton says "unavailable" or "internal" of both kinds; its words tell them apart.
RETRY_WORDS = ("not healthy", "restarted", "shutting down", "stub process")
NO_RETRY_WORDS = ("unknown model", "is not found", "has no available versions", "failed to load")


class ModelError(Exception):
    """A call that did not succeed; the message names server, model and reason."""

    def __init__(self, url: str, model: str, reason: str) -> None:
        super().__init__(f"{model} at {url}: {reason}")
        self.url = url
        self.model = model
        self.reason = reason


class ModelUnavailable(ModelError):
    """The server is down, restarting or too slow: the same call may succeed later."""


class ModelRejected(ModelError):
    """The request is wrong or the model is not there: the same call will fail again."""


def target(url: str) -> str:
    """`grpc://host:port` or `host:port` as gRPC wants it."""
    scheme, separator, rest = url.rpartition("://")
    if separator and scheme != "grpc":
        raise ValueError(f"grpc://host:port required, {url!r} came")
    return rest.rstrip("/")


def failure(url: str, model: str, error: BaseException) -> ModelError:
    """The right one of the two errors for what gRPC or a timeout raised."""
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return ModelUnavailable(url, model, "no answer in time")
    if not isinstance(error, grpc.RpcError):
        return ModelRejected(url, model, f"{type(error).__name__}: {error}")
    code = error.code()
    return sort(url, model, str(error.details() or code.name), retry=code in RETRY_CODES)


def sort(url: str, model: str, details: str, *, retry: bool) -> ModelError:
    lines = details.replace("[request id: <id_unknown>] ", "").strip().splitlines()
    reason = lines[0].split(" NOTE: ")[0] if lines else "no reason given"
    words = details.lower()
    if any(word in words for word in NO_RETRY_WORDS):
        return ModelRejected(url, model, f"model not loaded on this server ({reason})")
    if retry or any(word in words for word in RETRY_WORDS):
        return ModelUnavailable(url, model, reason)
    return ModelRejected(url, model, reason)


def add_input(request: Any, name: str, array: Array) -> None:
    """Append a numeric tensor."""
    request.inputs.add(name=name, datatype=TYPES[array.dtype.name], shape=array.shape)
    request.raw_input_contents.append(array.tobytes())


def add_bytes(request: Any, name: str, data: bytes, shape: tuple[int, ...] = (1,)) -> None:
    """Append a tensor of one byte string, which travels behind its length; (1, 1) where the model takes batches."""
    request.inputs.add(name=name, datatype="BYTES", shape=shape)
    request.raw_input_contents.append(len(data).to_bytes(4, "little") + data)


def outputs_of(response: Any) -> dict[str, Any]:
    """Output tensors by name: arrays, or `bytes` for a tensor of one byte string."""
    found: dict[str, Any] = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=False):
        if output.datatype == "BYTES":
            found[output.name] = raw[4:]
        else:
            array = np.frombuffer(raw, DTYPES[output.datatype])
            found[output.name] = array.reshape(tuple(output.shape))
    return found


def request_of(model: str) -> Any:
    return service_pb2.ModelInferRequest(model_name=model)
