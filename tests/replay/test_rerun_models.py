"""Re-run with every model real (Triton): the same models say the same of a recording; other sound or another prompt is named.

The session is spoken by the speech model itself, heard by the real models, and recorded as live flows would have done it.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from flows.cli import main, rerun
from flows.rerun import Rerun, Tolerances, rerun_session
from flows.session_files import Wishes, export
from infra.timeline import Timeline, open_timeline
from infra.timeline.port import Timeline as Log
from infra.triton.client import ModelClient, VadClient, vad_start
from schemas.base import HOP_US, WINDOW_SAMPLES
from schemas.cloudevents import encode
from schemas.envelope import Event, Pcm
from schemas.record import Lane
from schemas.responses import GenerationCompleted, ResponseText
from tests.replay.sessions import records
from tests.support.script import Session
from tests.support.triton import resampled, triton  # noqa: F401

pytestmark = pytest.mark.triton

ALL = ("vad", "endpoint", "transcript", "generate")
QUESTION = "What is the weather in Paris?"
LONGER = "I would like to know whether the weather in Paris will be nice tomorrow, and if it is not"
OTHER = "Please play some music for me."
S = 16_000
TIGHT = Tolerances(
    vad_probability=0.002,
    vad_share=1.0,
    endpoint_probability=0.001,
    transcript_similarity=1.0,
    generate_similarity=1.0,
    turn_ms=0,
)


class Heard(Session):
    """A session whose answers come from the models at `url`."""

    def __init__(self, sound: Any, url: str) -> None:
        super().__init__("s", policy={"response.max_tokens": "16"})
        self.sound, self.url = sound, url

    def outcomes(self, request: Event) -> list[Event]:
        data = request.data
        if request.type == "response.requested":
            messages = [m.model_dump() for m in data.messages]
            text = ask(self.url, lambda c: generated(c, messages, data))
            done = GenerationCompleted(
                response=data.response, text=text, tokens=1, finish_reason="stop"
            )
            said = ResponseText(response=data.response, text=text)
            return [self.outcome(request, said), self.outcome(request, done)]
        if request.type == "endpoint.requested":
            cut = self._cut(data.audio)
            self.endpoint = ask(self.url, lambda c: c.endpoint(cut))
        elif request.type == "transcript.requested":
            cut = self._cut(data.audio)
            self.transcript = ask(self.url, lambda c: c.transcribe(cut, "en")).text
        return list(super().outcomes(request))

    def _cut(self, span: Any) -> Any:
        return self.sound[span.first_sample : span.end_sample]


async def generated(client: ModelClient, messages: Any, data: Any) -> str:
    return "".join(
        [
            d.text
            async for d in client.generate(messages, data.max_tokens, data.temperature, data.seed)
        ]
    )


def ask(url: str, what: Callable[[ModelClient], Any]) -> Any:
    async def run() -> Any:
        async with ModelClient(url) as client:
            return await what(client)

    return asyncio.run(run())


async def spoken(client: ModelClient, text: str) -> Any:
    chunks = [c async for c in client.speak(text)]
    samples = np.concatenate([np.frombuffer(c.pcm, "<i2") for c in chunks])
    return resampled(samples, chunks[0].rate)


def question(url: str, text: str) -> Any:
    """The text as sound, 12 s of whole windows in all."""
    speech = ask(url, lambda c: spoken(c, text))
    sound = np.zeros(125 * WINDOW_SAMPLES, np.int16)
    sound[S : S + len(speech)] = speech
    return sound


def hops(sound: Any, url: str) -> Iterator[float]:
    context, state = vad_start(1)
    with VadClient(url) as vad:
        for first in range(0, len(sound), WINDOW_SAMPLES):
            heard = vad.infer(sound[None, first : first + WINDOW_SAMPLES], context, state)
            context, state = heard.context, heard.state
            yield from (round(float(p), 4) for p in heard.probability[0])


def with_sound(session: Session, sound: Any) -> Timeline:
    log = open_timeline("memory://")
    log.append(records(session))
    for index, first in enumerate(range(0, len(sound), S)):
        pcm = Pcm(S, 1, sound[first : first + S].tobytes())
        event = Event(
            "media.audio", "s", f"m{index}", "device", pcm, index * 1_000_000, sequence=index
        )
        log.append([encode(event)], Lane.MEDIA)
    return log


@pytest.fixture(scope="module")
def session(triton) -> Heard:  # noqa: F811
    sound = question(triton.url, QUESTION)
    session = Heard(sound, triton.url)
    for p in hops(sound, triton.url):
        session.hops(HOP_US // 1000, p)
    session.close()
    return session


@pytest.fixture(scope="module")
def log(session: Heard) -> Log:
    return with_sound(session, session.sound)


def checks(result: Rerun) -> dict[str, tuple[bool, int]]:
    return {c.name: (c.passed, c.compared) for c in result.checks}


def test_the_session_is_what_it_should_be(session: Heard) -> None:
    (turn,) = session.data("turn.ended")
    assert "weather in paris" in turn.text.lower() and turn.probability > 0.5
    assert session.data("generation.completed")[0].text


def test_the_same_models_say_the_same(log: Log, triton) -> None:  # noqa: F811
    found = rerun_session(log, "s", ALL, triton.url, TIGHT)
    assert found.passed, [b for c in found.checks for b in c.beyond][:5]
    assert checks(found) == {
        "vad": (True, 375),
        "endpoint": (True, 1),
        "transcript": (True, 1),
        "generate": (True, 1),
        "turns": (True, 1),
        "verdicts": (True, 0),
    }
    assert not found.changed


def test_other_words_are_named(session: Heard, triton) -> None:  # noqa: F811
    altered = with_sound(session, question(triton.url, OTHER))
    found = rerun_session(altered, "s", ("transcript",), triton.url, Tolerances())
    assert not found.passed
    (beyond,) = found.checks[0].beyond
    assert "weather" in beyond.recorded and "music" in beyond.now
    # The turn is where it was, with other words.
    assert checks(found)["turns"] == (True, 1)
    changed = {p.either.type: p.fields for p in found.changed}
    assert any(name == "text" and "music" in now for name, _, now in changed["turn.ended"])


def test_speech_that_goes_on_is_not_over(session: Heard, triton) -> None:  # noqa: F811
    longer = with_sound(session, question(triton.url, LONGER))
    found = rerun_session(longer, "s", ("vad", "endpoint"), triton.url, Tolerances())
    vad, endpoint, turns = found.checks[:3]
    assert not vad.passed and not endpoint.passed and not turns.passed
    (beyond,) = endpoint.beyond
    assert float(beyond.recorded) > 0.5 > float(beyond.now)
    assert " → " in str(turns.beyond[0])


def test_another_prompt_is_another_answer(log: Log, triton, capsys, tmp_path: Path) -> None:  # noqa: F811
    export(log, tmp_path / "s.mcap", Wishes())
    arguments = ["replay", str(tmp_path / "s.mcap"), "--rerun", "generate", "--triton", triton.url]
    prompt = ["--set", "response.system_prompt=You are a pirate. Answer with one short word."]
    for more, code in (([], 0), (prompt, 1)):
        with pytest.raises(SystemExit) as caught:
            main([*arguments, *more, "--json"])
        assert caught.value.code == code
    same, other = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert same["passed"] and same["checks"][0]["beyond"] == []
    (beyond,) = other["checks"][0]["beyond"]
    assert beyond["recorded"] != beyond["now"] and beyond["at_us"] > 1_000_000


def test_a_difference_fits_a_line(session: Heard, triton, capsys) -> None:  # noqa: F811
    found = rerun_session(
        with_sound(session, question(triton.url, OTHER)), "s", ALL, triton.url, Tolerances()
    )
    rerun._explain(found, Console(width=120))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 120
    (told,) = [line for line in lines if "music" in line]
    assert "weather" in told and " → " in told
