"""The backchannel classifier on a real server: what it makes of clear cases, batches, and requests that are none."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from flows.bench import backchannel as bench
from flows.rerun import Tolerances, rerun_session
from infra.triton.client import BACKCHANNEL, ModelClient, ModelRejected
from infra.triton.parts import package_folder
from infra.triton.server import LocalTriton
from infra.triton.wire import CHANNEL_OPTIONS, add_bytes, outputs_of, request_of, target
from schemas.envelope import Event
from tests.replay.sessions import memory, talk

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(package_folder(bench.ENCODER) is None, reason="its weights are not here"),
]

STORY = "The cat fell from the fourth floor, and for a moment nobody"
ASKED = "Would you like me to book the table for seven o'clock?"


def opinions(triton: LocalTriton, *said: tuple[str, str, str]) -> list[float]:
    """Of (text, assistant, language), all asked at once."""

    async def ask() -> list[float]:
        async with ModelClient(triton.url) as client:
            return await asyncio.gather(*(client.backchannel(*one) for one in said))

    return asyncio.run(ask())


def test_clear_cases_are_told_apart(triton: LocalTriton) -> None:
    clear = opinions(
        triton, ("mhm", STORY, "en"), ("oh how sad", STORY, "en"), ("嗯好的", "明天多云，", "zh")
    )
    floor = opinions(
        triton, ("and what does it cost", STORY, "en"), ("tell me about dogs", STORY, "en"),
        ("那要多少钱", "明天多云，", "zh"),
    )  # fmt: skip
    assert min(clear) > 0.6 > 0.4 > max(floor), (clear, floor)


def test_the_same_word_after_a_question_is_an_answer(triton: LocalTriton) -> None:
    over_a_story, answer = opinions(triton, ("right", STORY, "en"), ("right", ASKED, "en"))
    assert over_a_story > 0.5 > answer


def test_what_is_asked_together_is_answered_as_if_alone(triton: LocalTriton) -> None:
    rows = [(r.text, r.assistant, r.language) for r in bench.read_rows()[::40]]
    together = opinions(triton, *rows)
    alone = [opinions(triton, row)[0] for row in rows]
    assert together == pytest.approx(alone, abs=1e-4)
    assert len({round(p, 3) for p in alone}) > len(rows) // 2


def test_the_server_says_what_the_comparison_measures(triton: LocalTriton) -> None:
    rows = [r for r in bench.read_rows() if r.held_out][:20]
    head = bench.classifier().Head(bench.MODEL / "head.json")
    here = head(bench.said_of(rows), bench.embeddings_of(rows))
    there = opinions(triton, *((r.text, r.assistant, r.language) for r in rows))
    assert there == pytest.approx([float(p) for p in here], abs=1e-3)


def test_it_takes_a_batch_in_one_request(triton: LocalTriton) -> None:
    said = [json.dumps({"text": t}).encode() for t in ("mhm", "and what does it cost")]
    request = request_of(BACKCHANNEL)
    add_bytes(request, "REQUEST", said[0], shape=(2, 1))
    request.raw_input_contents[0] += len(said[1]).to_bytes(4, "little") + said[1]
    answer = raw(triton, request)
    assert answer.shape == (2, 1) and answer[0, 0] > 0.5 > answer[1, 0]


def raw(triton: LocalTriton, request: Any) -> Any:
    from tritonclient.grpc import service_pb2_grpc

    with grpc.insecure_channel(target(triton.url), options=CHANNEL_OPTIONS) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        return outputs_of(infer(request, timeout=10))["PROBABILITY"]


@pytest.mark.parametrize(
    "data", [b"", b"mhm", b"[]", b"{}", b"\xff\xfe", b'{"text": "a", "language": 7}']
)
def test_a_request_that_is_none_is_one_clear_line(triton: LocalTriton, data: bytes) -> None:
    request = request_of(BACKCHANNEL)
    add_bytes(request, "REQUEST", data, shape=(1, 1))
    with pytest.raises(grpc.RpcError) as refused:
        raw(triton, request)
    error: Any = refused.value
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("backchannel: bad request: ") and "\n" not in error.details()


def test_a_bad_request_spoils_no_other_in_its_batch(triton: LocalTriton) -> None:
    async def ask() -> list[Any]:
        async with ModelClient(triton.url) as client:
            said = [client.backchannel("mhm", "", lang) for lang in ("en", "fi", "en", "fi", "zh")]
            return await asyncio.gather(*said, return_exceptions=True)

    found = asyncio.run(ask())
    assert [isinstance(one, ModelRejected) for one in found] == [False, True, False, True, False]


def test_a_language_that_it_never_learned_is_refused(triton: LocalTriton) -> None:
    with pytest.raises(ModelRejected, match="no language 'fi', only en, zh"):
        opinions(triton, ("joo", "", "fi"))
    assert opinions(triton, ("mhm", STORY, "en-GB")) == opinions(triton, ("mhm", STORY, "en"))


def test_words_without_sound_or_end_are_answered(triton: LocalTriton) -> None:
    found = opinions(
        triton, ("", "", "en"), ("...", STORY, "en"), ("word " * 2000, STORY * 50, "en")
    )
    assert all(0 <= p <= 1 for p in found)


def test_a_recording_is_compared_with_the_classifier_of_today(triton: LocalTriton) -> None:
    def now(request: Event) -> float:
        d = request.data
        return opinions(triton, (d.text, d.assistant, d.language))[0]

    policy = {"overlap.backchannel_model": True}
    true = talk("s", 20, policy=policy, backchannel=now).close()
    found = rerun_session(memory(true), "s", ("backchannel",), triton.url, Tolerances())
    (check, *_) = found.checks
    assert found.passed and check.compared == len(true.of("backchannel.predicted")) > 0

    other = talk("s", 20, policy=policy, backchannel=lambda r: 1 - now(r)).close()
    found = rerun_session(memory(other), "s", ("backchannel",), triton.url, Tolerances())
    assert {c.name: c.passed for c in found.checks}["backchannel"] is False
    assert {c.name: c.passed for c in found.checks}["verdicts"] is False
