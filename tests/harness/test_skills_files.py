"""Files of skills that cannot be used: one line, before anything starts."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli import call

pytestmark = pytest.mark.flow


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "skills file {}: no such file"),
        ("x = 1\n1 / 0\n", "{}:2: ZeroDivisionError: division by zero"),
        ("import os\ndef f(:\n", "{}:2: SyntaxError: "),
        ("import no_such_thing\n", "{}:1: No module named 'no_such_thing'"),
        ("raise SystemExit('not\\ntoday')\n", "{}:1: SystemExit: not today"),
        (
            "from infra.harness.skills import skill\n\n@skill('a', 'b')\ndef f(x: int): ...\n",
            "{}:3: skill a: its first parameter needs a pydantic model",
        ),
        (
            "from pydantic import BaseModel, Field\n\nclass A(BaseModel):\n    x: int = Field(pattern=')')\n",
            "{}:3: ",
        ),
    ],
    ids=["missing", "raises", "syntax", "import", "exit", "skill", "model"],
)
@pytest.mark.parametrize("flows", [[], ["--flows", "harness"]], ids=["all", "harness"])
def test_a_mistake_in_skills_is_one_line_before_anything_starts(
    tmp_path: Path,
    text: str | None,
    says: str,
    flows: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "wrong_skills.py"
    if text is not None:
        path.write_text(text)
    log = tmp_path / "log.db"
    assert call("run", *flows, "--skills", str(path), "--timeline", f"sqlite:///{log}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says.format(path) in line
    assert not log.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("json.py", f"the module json is {json.__file__}; give the file another name"),
        ("sys.py", "the module sys is built in; give the file another name"),
        ("my.skills.py", "a module's name has no dot; call it my_skills.py"),
    ],
)
def test_a_skills_file_by_the_name_of_another_module_says_so(
    name: str,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / name
    path.write_text("x = 1\n")
    log = f"sqlite:///{tmp_path}/log.db"
    assert call("run", "--skills", str(path), "--timeline", log) == 2
    assert capsys.readouterr().err == f"venus: skills file {path}: {says}\n"


def test_two_skills_files_of_one_name_are_not_taken_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    paths = [tmp_path / folder / "skills_twice.py" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("x = 1\n")
    log = f"sqlite:///{tmp_path}/log.db"
    assert call("run", "--skills", ",".join(map(str, paths)), "--timeline", log) == 2
    said = capsys.readouterr().err
    assert f"skills file {paths[1]}: the module skills_twice is {paths[0]}" in said
