"""Voice activity detection: Silero VAD 6.2 on three hops of many sessions at once, without memory of its own.

in   AUDIO [B, 1536] int16        three hops of 512 samples at 16 kHz
     CONTEXT [B, 64] float32      the 64 samples before them, in -1..1 (zeros at a session's start)
     STATE [B, 2, 128] float32    recurrent state, hidden and cell (zeros at a session's start)
out  PROBABILITY [B, 3] float32   speech probability of each hop, 0..1
     CONTEXT_OUT, STATE_OUT       to be passed with the session's next call

The caller keeps context and state, so this server may crash, restart or be many without any session
noticing. A row's result does not depend on the rows beside it, bit by bit (one thread, every
product sums in one order: tests hold it); the promise of equal windows however sessions are batched
rests on that.

Method: the network of the `silero-vad` wheel, 64 + 512 samples a step as its own wrapper feeds it. Its convolutions
run over 1 to 4 positions, where they cost far more than the products they consist of; so at load
time they are written out as dense matrices and the three hops become one call: a third of the CPU
time of three calls of the original, with probabilities within 1e-5 of it (a test compares).
Weights: MIT, snakers4/silero-vad. The file is found without importing the package, which would load torch.
"""

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as pb_utils

HOPS = 3
HOP = 512
CONTEXT = 64
STEP = CONTEXT + HOP
PADDED = STEP + CONTEXT  # the network mirrors 64 samples at the end of a step
FRAMES = 4  # spectra of 256 samples, 128 apart, within a step
STRIDES = (1, 2, 2, 1)  # of the four convolutions


def model_path(parameters: dict[str, Any]) -> Path:
    """Environment, then configuration, then the package's own file; one line that says what is missing."""
    chosen = os.environ.get("VENUS_VAD_MODEL") or parameters["MODEL_PATH"]["string_value"]
    if not chosen:
        package = importlib.util.find_spec("silero_vad")
        if package is None or package.origin is None:
            raise FileNotFoundError(
                "silero_vad: no model, run: pip install --no-deps 'silero-vad>=6.2.3'"
            )
        chosen = Path(package.origin).parent / "data" / "silero_vad_16k_sequence.onnx"
    if not Path(chosen).is_file():
        raise FileNotFoundError(
            f"silero_vad: no file {chosen} (6.2.3 and later have it; setting VENUS_VAD_MODEL)"
        )
    return Path(chosen)


def dense(weight: Any, positions: int, stride: int) -> Any:
    """A convolution of width 3 (padding 1) over few positions, as one matrix [positions*in, left*out]."""
    outputs, inputs, width = weight.shape
    left = (positions - 1) // stride + 1
    matrix = np.zeros((positions, inputs, left, outputs), np.float32)
    for place in range(left):
        for tap in range(width):
            source = place * stride + tap - 1
            if 0 <= source < positions:
                matrix[source, :, place] = weight[:, :, tap].T
    return matrix.reshape(positions * inputs, left * outputs)


def unrolled(path: Path) -> bytes:
    """The network as one onnx graph: x [3*B, 640], h and c [1, B, 128] -> p [3*B, 1], hn, cn."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    source = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    basis = source["stft.forward_basis_buffer"][:, 0]
    bands = len(basis) // 2
    weights: dict[str, Any] = {"basis": basis.T, "axis": np.array([1])}
    nodes = []

    def node(operator: str, inputs: list[str], outputs: list[str], **settings: Any) -> None:
        nodes.append(helper.make_node(operator, inputs, outputs, **settings))

    def reshape(value: str, shape: list[int], output: str) -> None:
        weights[f"{output}.shape"] = np.array(shape)
        node("Reshape", [value, f"{output}.shape"], [output])

    for frame in range(FRAMES):
        weights[f"first{frame}"] = np.array([frame * 128])
        weights[f"end{frame}"] = np.array([frame * 128 + 256])
        node("Slice", ["x", f"first{frame}", f"end{frame}", "axis"], [f"frame{frame}"])
    node("Concat", [f"frame{frame}" for frame in range(FRAMES)], ["joined"], axis=1)
    reshape("joined", [-1, 256], "frames")
    node("MatMul", ["frames", "basis"], ["spectrum"])
    node("Split", ["spectrum"], ["real", "imaginary"], axis=1, num_outputs=2)
    node("Mul", ["real", "real"], ["real2"])
    node("Mul", ["imaginary", "imaginary"], ["imaginary2"])
    node("Add", ["real2", "imaginary2"], ["power"])
    node("Sqrt", ["power"], ["magnitude"])
    reshape("magnitude", [-1, FRAMES * bands], "layer0")
    positions = FRAMES
    for layer, stride in enumerate(STRIDES):
        matrix = dense(source[f"encoder.{layer}.weight"], positions, stride)
        positions = (positions - 1) // stride + 1
        weights[f"matrix{layer}"] = matrix
        weights[f"bias{layer}"] = np.tile(source[f"encoder.{layer}.bias"], positions)
        node("Gemm", [f"layer{layer}", f"matrix{layer}", f"bias{layer}"], [f"sum{layer}"])
        node("Relu", [f"sum{layer}"], [f"layer{layer + 1}"])
    reshape(f"layer{len(STRIDES)}", [HOPS, -1, 128], "sequence")
    (recurrent,) = (n for n in onnx.load(path).graph.node if n.op_type == "LSTM")
    for name, tensor in zip(("w", "r", "b"), recurrent.input[1:4], strict=True):
        weights[name] = source[tensor]
    node("LSTM", ["sequence", "w", "r", "b", "", "h", "c"], ["y", "hn", "cn"], hidden_size=128)
    node("Relu", ["y"], ["active"])
    reshape("active", [-1, 128], "rows")
    weights["out"], weights["out.bias"] = source["output.weight"][0], source["output.bias"]
    node("Gemm", ["rows", "out", "out.bias"], ["logit"])
    node("Sigmoid", ["logit"], ["p"])

    def value(name: str, shape: list[Any] | None) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    state = [1, "batch", 128]
    graph = helper.make_graph(
        nodes,
        "silero_vad",
        [value("x", ["rows", PADDED]), value("h", state), value("c", state)],
        [value("p", None), value("hn", None), value("cn", None)],
        [numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in weights.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        path = model_path(json.loads(args["model_config"])["parameters"])
        options = onnxruntime.SessionOptions()
        # One thread: the matrices are small, and the order of additions then never depends on the
        # batch.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        if os.environ.get("VENUS_DEVICE", "cpu") == "cuda":
            providers.insert(0, "CUDAExecutionProvider")
        try:
            graph = unrolled(path)
        except ImportError as error:
            raise ImportError(f"silero_vad: {error}, run: pip install onnx") from None
        self.session = onnxruntime.InferenceSession(graph, options, providers=providers)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        audio = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy()
        context = pb_utils.get_input_tensor_by_name(request, "CONTEXT").as_numpy()
        state = pb_utils.get_input_tensor_by_name(request, "STATE").as_numpy()
        batch = len(audio)
        shapes = (audio.shape, context.shape, state.shape)
        if shapes != ((batch, HOPS * HOP), (batch, CONTEXT), (batch, 2, 128)):
            message = (
                f"silero_vad: [B,{HOPS * HOP}], [B,{CONTEXT}], [B,2,128] required, {shapes} came"
            )
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            )
        samples = np.empty((batch, CONTEXT + HOPS * HOP), np.float32)
        samples[:, :CONTEXT] = context
        np.divide(audio, np.float32(32768), out=samples[:, CONTEXT:])
        steps = np.empty((HOPS, batch, PADDED), np.float32)
        for hop in range(HOPS):
            steps[hop, :, :STEP] = samples[:, hop * HOP : hop * HOP + STEP]
        steps[:, :, STEP:] = steps[:, :, STEP - 2 : STEP - 2 - CONTEXT : -1]
        hidden = np.ascontiguousarray(state[None, :, 0])
        cell = np.ascontiguousarray(state[None, :, 1])
        feed = {"x": steps.reshape(-1, PADDED), "h": hidden, "c": cell}
        probability, hidden, cell = self.session.run(("p", "hn", "cn"), feed)
        probability = np.ascontiguousarray(probability.reshape(HOPS, batch).T)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("PROBABILITY", probability),
                pb_utils.Tensor("CONTEXT_OUT", np.ascontiguousarray(samples[:, -CONTEXT:])),
                pb_utils.Tensor("STATE_OUT", np.stack([hidden[0], cell[0]], axis=1)),
            ]
        )
