"""Re-run: the models' answers anew, within tolerances. Models are real (Triton); the session is scripted around their first answers."""

import json
from pathlib import Path

import pytest

from flows.cli import main
from flows.rerun import Tolerances, parse_kinds, rerun_session, similarity
from flows.session_files import Wishes, export, open_file
from infra.triton.client import VadClient, vad_start
from schemas.cloudevents import decode, encode
from schemas.errors import BadInput
from schemas.record import Lane
from tests.replay.sessions import media, memory, records, talk
from tests.support.triton import triton  # noqa: F401

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def heard(triton):  # noqa: F811
    """A session whose windows hold what the model says of its media."""
    import numpy as np

    from infra.timeline import open_timeline

    session = talk("s", 12).close()
    sound = np.concatenate([np.frombuffer(decode(r).data.pcm, "<i2") for r in media(session)])
    context, state = vad_start(1)
    log = open_timeline("memory://")
    with VadClient(triton.url) as vad:
        for record in records(session):
            event = decode(record)
            if event.type == "perception.window":
                cut = sound[event.data.first_sample : event.data.first_sample + 1536]
                cut = np.pad(cut, (0, 1536 - len(cut))).astype(np.int16)
                answer = vad.infer(cut[None], context, state)
                context, state = answer.context, answer.state
                p = tuple(round(float(x), 4) for x in answer.probability[0])
                record = encode(
                    event._replace(data=event.data.model_copy(update={"probabilities": p}))
                )
            if not event.source.startswith("conversation/"):
                log.append([record])
    log.append(media(session), Lane.MEDIA)
    return log


def test_the_same_model_says_the_same(heard, triton) -> None:  # noqa: F811
    found = rerun_session(
        heard, "s", ("vad",), triton.url, Tolerances(vad_probability=0.002, vad_share=1.0)
    )
    vad = found.checks[0]
    assert found.passed and vad.compared > 300 and not vad.beyond, vad.beyond[:5]


def test_another_answer_is_beyond_the_tolerance(triton, capsys, tmp_path: Path) -> None:  # noqa: F811
    # The script's windows claim speech that is not in its media.
    export(memory(talk("s", 12).close()), tmp_path / "s.mcap", Wishes())
    with pytest.raises(SystemExit) as caught:
        main(
            [
                "replay",
                str(tmp_path / "s.mcap"),
                "--rerun",
                "vad",
                "--triton",
                triton.url,
                "--json",
                "--junit",
                str(tmp_path / "j.xml"),
            ]
        )
    line = json.loads(capsys.readouterr().out)
    assert caught.value.code == 1 and not line["passed"]
    assert {c["name"]: c["passed"] for c in line["checks"]} == {
        "vad": False,
        "turns": False,
        "verdicts": False,
    }
    assert "beyond the tolerance" in (tmp_path / "j.xml").read_text()


def test_a_redacted_file_says_what_cannot_be_asked(tmp_path: Path) -> None:
    export(memory(talk("s", 5).close()), tmp_path / "s.mcap", Wishes(redact_media=True))
    export(memory(talk("s", 5).close()), tmp_path / "t.jsonl", Wishes(media=False))
    with (
        open_file(tmp_path / "s.mcap") as log,
        pytest.raises(BadInput, match="cannot be asked again"),
    ):
        rerun_session(log, "s", ("vad",), "127.0.0.1:1", Tolerances())
    with open_file(tmp_path / "t.jsonl") as log, pytest.raises(BadInput, match="no media"):
        rerun_session(log, "s", ("vad",), "127.0.0.1:1", Tolerances())


def test_tolerances_are_declared(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[rerun]\nturn_ms = 250\n")
    assert Tolerances.read(file).turn_ms == 250
    file.write_text("[tool.venus.rerun]\nverdicts = false\n")
    assert Tolerances.read(file).verdicts is False
    for text, message in (
        ("[rerun]\nx = 1\n", "no tolerance"),
        ("[rerun]\nturn_ms = 'a'\n", "float is needed"),
        ("[", "t.toml"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=message):
            Tolerances.read(file)
    with pytest.raises(BadInput, match="there are"):
        parse_kinds("vad,nose")


def test_similarity_is_of_words() -> None:
    assert similarity("What is the weather?", "what is the weather") == 1
    assert similarity("one two", "three four") == 0
