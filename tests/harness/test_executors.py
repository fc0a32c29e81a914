"""Executors as a real flow runs them: skills in worker processes, agents speaking JSON lines, and what they may not do."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.effect_runner import EffectRunner
from flows.effects import EffectDesk, Produced
from flows.work_effects import Executors, work_effects
from infra.blobs import BlobStore
from infra.harness.config import read_config
from infra.harness.pool import SkillPool
from infra.harness.port import SilentReports, Tool, ToolTimedOut
from infra.harness.skills import SkillSet, skill
from infra.harness.subprocess import AgentCommand, SubprocessAgents
from infra.harness.toolbox import Toolbox
from infra.timeline import Timeline, open_timeline
from operators.intents import read_request
from schemas.delegation import Fitting
from schemas.errors import BadInput
from schemas.policy import Policy
from schemas.record import Lane
from tests.harness.support import (
    NoTools,
    append,
    cancelling,
    nothing_left_behind,
    outcomes,
    queued,
    skills_file,
    task_of,
)

pytestmark = pytest.mark.flow


class OneTool(NoTools):
    def __init__(self, tool: Tool) -> None:
        super().__init__()
        self._tool = tool

    async def find(self, name: str) -> Any:
        return self._tool


class Harness:
    """A desk with real executors on a memory timeline."""

    def __init__(self, toolbox: Toolbox, folder: Path, secrets: tuple[str, ...] = ()) -> None:
        self.log: Timeline = open_timeline("memory://")
        self.folder = folder
        self.blobs = BlobStore(str(folder / "blobs"))
        self.runner = EffectRunner("test")
        executors = Executors(toolbox, None, self.blobs, folder / "work", secrets)
        self.desk = EffectDesk(work_effects(executors), self.runner, "harness/test")
        self.toolbox = toolbox
        self._read = 0

    def turn(self) -> None:
        records: list[Any] = []
        for produced in self.runner.drain():
            assert isinstance(produced, Produced)
            records += self.desk.take(produced)
        for record in list(self.log.scan(Lane.TIMELINE, 0, self._read)):
            self._read = record.offset + 1
            records += self.desk.read(record)
        if records:
            self.log.append(records)

    def until(self, done: Callable[[], bool], within_s: float = 30.0) -> None:
        end = time.monotonic() + within_s
        while not done():
            assert time.monotonic() < end, [(e.type, e.data) for e in outcomes(self.log)]
            self.turn()
            time.sleep(0.005)

    def run(self, *requests: Any, within_s: float = 30.0) -> dict[str, Any]:
        """Work → its end."""
        append(self.log, *requests)
        self.until(lambda: len(self.ends()) == len(requests), within_s)
        return self.ends()

    def ends(self) -> dict[str, Any]:
        return {
            e.data.work: e.data
            for e in outcomes(self.log)
            if e.type in ("work.completed", "work.failed", "work.cancelled")
        }

    def of(self, type_: str) -> list[Any]:
        return [e.data for e in outcomes(self.log) if e.type == type_]

    def close(self) -> None:
        self.runner.close(self.toolbox.close)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    skills = SkillSet([skills_file(tmp_path)], installed=False)
    environment = {"PATH": os.environ["PATH"], "SHOWN": "yes"}
    agents = {
        "agent": AgentCommand(
            "agent", (sys.executable, "-u", "-c", AGENT), env={"TOKEN": "s3cret-token"}
        ),
        "mute": AgentCommand(
            "mute", (sys.executable, "-c", "import sys; sys.stdin.read()"), timeout_s=0.5
        ),
        "missing": AgentCommand("missing", ("/no/such/program",)),
    }
    toolbox = Toolbox(
        [SkillPool(skills, environment), SubprocessAgents(agents, os.environ["PATH"])]
    )
    made = Harness(toolbox, tmp_path, ("s3cret-token",))
    yield made
    made.close()


AGENT = """
import json, os, sys
task = json.loads(sys.stdin.readline())["task"]
print("not json")
print(json.dumps(["no object"]))
print(json.dumps({"progress": "thinking about " + task["query"]}))
open("made.txt", "w").write("made")
print(json.dumps({"artifact": {"path": "made.txt", "media_type": "text/plain"}}))
print(json.dumps({"result": "did " + task["query"] + " with " + os.environ["TOKEN"]}))
print(json.dumps({"result": "a second answer"}))
"""


def test_a_skill_gets_checked_arguments_and_answers(harness: Harness) -> None:
    ends = harness.run(
        queued("w1", "echo", {"text": "hello"}),
        queued("w2", "echo", {"txt": "hello"}),
        queued("w3", "no_such_skill"),
        queued("w4", "prints"),
    )
    assert ends["w1"].result == "hello"
    assert (ends["w2"].reason, ends["w3"].reason) == ("rejected", "rejected")
    assert "text" in ends["w2"].message
    assert json.loads(ends["w4"].result) == {"answer": 42}


@pytest.mark.parametrize(
    ("name", "reason", "message"),
    [
        ("raises", "error", "no luck"),
        ("dies", "error", "exit code 3"),
        ("late", "timed_out", "0.5 s"),
    ],
)
def test_a_skill_that_fails_has_one_end(
    harness: Harness, name: str, reason: str, message: str
) -> None:
    ends = harness.run(queued("w1", name))
    assert ends["w1"].reason == reason and message in ends["w1"].message
    assert len(harness.of("work.running")) == 1
    # The pool is none the worse for it.
    assert (
        harness.run(queued("w1", name), queued("w2", "echo", {"text": "on"}))["w2"].result == "on"
    )


def test_a_cancelled_skill_is_stopped_at_once(harness: Harness) -> None:
    append(harness.log, queued("w1", "slow", {"s": 50}))
    harness.until(lambda: bool(harness.of("work.progress")))
    started = time.monotonic()
    append(harness.log, cancelling("w1"))
    harness.until(lambda: bool(harness.ends()))
    assert time.monotonic() - started < 3 and harness.of("work.cancelled")


def test_no_more_than_eight_run_at_once_and_all_end(harness: Harness) -> None:
    requests = [queued(f"w{i}", "slow", {"s": 0.3}, session=f"s{i % 3}") for i in range(12)]
    ends = harness.run(*requests, within_s=60)
    assert all(e.result == "slept" for e in ends.values()) and len(ends) == 12


def test_a_result_is_cut_and_told_so(harness: Harness) -> None:
    end = harness.run(queued("w1", "huge"))["w1"]
    assert len(end.result) == 3_000 and end.truncated


def test_artifacts_leave_the_workspace_and_nothing_else_does(harness: Harness) -> None:
    end = harness.run(queued("w1", "files", {"text": "a note"}))["w1"]
    assert "note.txt" in end.result
    (artifact,) = harness.of("work.artifact")
    assert artifact.name == "note.txt" and artifact.media_type == "text/plain"
    assert harness.blobs.get(artifact.digest) == b"a note"
    event = next(e for e in outcomes(harness.log) if e.type == "work.artifact")
    assert event.dataref == artifact.digest
    assert list((harness.folder / "work").iterdir()) == [], "a workspace goes with its work"


def test_a_workspace_may_be_given_as_a_relative_path(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    skills = SkillSet([skills_file(tmp_path)], installed=False)
    made = Harness(Toolbox([SkillPool(skills, {"PATH": os.environ["PATH"]})]), Path("out"))
    try:
        made.run(queued("w1", "files", {"text": "a note"}))
        assert [a.name for a in made.of("work.artifact")] == ["note.txt"]
    finally:
        made.close()


def test_closing_right_after_a_cancel_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skills = SkillSet([skills_file(tmp_path)], installed=False)
    for _ in range(3):
        with nothing_left_behind(monkeypatch):
            pool = SkillPool(skills, {"PATH": os.environ["PATH"]})
            made = Harness(Toolbox([pool]), tmp_path)
            append(made.log, *(queued(f"w{i}", "slow", {"s": 60.0}) for i in range(4)))
            made.until(lambda made=made: len(made.of("work.progress")) == 4)  # type: ignore[misc]
            append(made.log, *(cancelling(f"w{i}") for i in range(4)))
            made.until(lambda made=made: len(made.ends()) == 4)  # type: ignore[misc]
            made.close()
            del made, pool


def test_skills_see_only_the_environment_that_is_meant_for_them(
    harness: Harness, monkeypatch: Any
) -> None:
    monkeypatch.setenv("VENUS_CHAT_KEY", "secret")
    shown = harness.run(queued("w1", "env"))["w1"].result.split()
    assert "SHOWN" in shown and "VENUS_CHAT_KEY" not in shown


def test_an_agent_in_a_process_of_its_own(harness: Harness) -> None:
    end = harness.run(queued("w1", "agent", query="write a poem"))["w1"]
    assert end.result == "did write a poem with [secret]", "no secret reaches the log"
    assert [p.text for p in harness.of("work.progress")] == ["thinking about write a poem"]
    assert harness.blobs.get(harness.of("work.artifact")[0].digest) == b"made"


def test_agents_that_hang_or_are_missing(harness: Harness) -> None:
    ends = harness.run(queued("w1", "mute"), queued("w2", "missing"))
    assert (ends["w1"].reason, ends["w2"].reason) == ("timed_out", "unavailable")


def test_what_is_not_allowed_is_not_called(harness: Harness) -> None:
    ends = harness.run(queued("w1", "echo", {"text": "x"}, allow=("slow", "time.*")))
    assert ends["w1"].reason == "rejected" and "not allowed" in ends["w1"].message


def test_a_general_task_without_an_agent_says_what_is_missing(harness: Harness) -> None:
    end = harness.run(queued("w1", None, route="general"))["w1"]
    assert end.reason == "rejected" and "chat endpoint" in end.message


def test_warm_workers_answer_fast(harness: Harness) -> None:
    harness.run(queued("w0", "echo", {"text": "warm"}))
    started = time.monotonic()
    append(harness.log, queued("w1", "echo", {"text": "x"}))
    harness.until(lambda: "w1" in harness.ends())
    assert time.monotonic() - started < 0.5


def test_a_skill_is_declared_with_a_model_of_its_arguments() -> None:
    with pytest.raises(BadInput, match="pydantic"):

        @skill("wrong", "No model.")
        def wrong(text: str) -> str:
            return text

    with pytest.raises(BadInput, match="name"):
        skill("two words", "…")
    with pytest.raises(BadInput, match="cannot be imported"):
        SkillSet(["no_such_module_at_all"])


def test_phrases_of_a_skill_become_intent_rules() -> None:
    rules = SkillSet(["flows.demo.skills"], installed=False).intents()
    policy = Policy().with_changes({"work.intents": rules})
    assert {r.skill for r in policy.work.intents} == {"weather", "order_status"}


def test_blobs_are_known_by_their_hash(tmp_path: Path) -> None:
    from infra.blobs import BlobError

    store = BlobStore(f"file://{tmp_path}/blobs")
    reference = store.put(b"data")
    assert store.put(b"data") == reference and store.get(reference) == b"data"
    for wrong in ("sha256:../../etc/passwd", "x", "sha256:" + "0" * 64):
        with pytest.raises(BlobError):
            store.get(wrong)
    next((tmp_path / "blobs").rglob(reference[7:])).write_bytes(b"other")
    with pytest.raises(BlobError, match="damaged"):
        store.get(reference)


def test_asyncio_is_not_blocked_by_a_busy_skill(harness: Harness) -> None:
    append(harness.log, queued("w1", "busy", {"s": 1.0}), queued("w2", "busy", {"s": 1.0}))
    harness.until(lambda: len(harness.of("work.running")) == 2)

    async def longest_gap() -> float:
        worst, last = 0.0, time.monotonic()
        for _ in range(100):
            await asyncio.sleep(0.005)
            worst, last = max(worst, time.monotonic() - last), time.monotonic()
        return worst

    assert harness.runner.call(longest_gap()) < 0.25
    harness.until(lambda: len(harness.ends()) == 2)


def test_auto_without_a_planner_is_what_the_rules_make_of_the_words(harness: Harness) -> None:
    fits = Fitting(rule="say", skill="echo", arguments={"text": "hello"})
    ends = harness.run(
        queued("w1", None, route="auto", fits=fits),
        queued("w2", None, route="auto"),
        queued("w3", None, route="auto", fits=fits, allow=("slow",)),
        queued("w4", None, route="general", fits=fits),
    )
    assert ends["w1"].result == "hello"
    assert [(c.work, c.tool) for c in harness.of("work.called") if c.ok] == [("w1", "echo")]
    assert (ends["w2"].reason, ends["w2"].message) == (
        "rejected",
        "the route auto needs a chat endpoint, and none is configured, and no phrase of a skill fits",
    )
    assert "not allowed" in ends["w3"].message
    assert "phrase" not in ends["w4"].message and "chat endpoint" in ends["w4"].message


def test_limits_and_a_cancel_at_once_do_not_break_off_the_clean_up() -> None:
    """What a call has opened is closed, however often its end is asked for."""
    steps: list[str] = []

    async def call(arguments: Any, task: Any, reports: Any) -> str:
        steps.append("opened")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            steps.append("closed")
        return ""

    async def main() -> None:
        toolbox = Toolbox([OneTool(Tool("t", "", {}, call, timeout_s=0.1))])
        task = task_of(queued("w", "t", limit_s=0.1), Path("none"))
        running = asyncio.ensure_future(toolbox.call("t", {}, task, SilentReports()))
        while not steps:
            await asyncio.sleep(0)
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0.01)
        assert running.done() and steps == ["opened"]
        await toolbox.close()
        with pytest.raises(ToolTimedOut):
            await toolbox.call("t", {}, task, SilentReports())

    asyncio.run(main())
    assert steps == ["opened", "closed"] * 2


def test_what_the_docs_show_works(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "harness.md").read_text()
    python, *configurations = re.findall(r"```(?:python|json)\n(.*?)```", text, re.S)
    (tmp_path / "skills_of_the_docs.py").write_text(python)
    for number, written in enumerate(configurations):
        (tmp_path / f"{number}.json").write_text(written)
    config = read_config(tmp_path / "0.json", {}, (str(tmp_path / "skills_of_the_docs.py"),))
    assert read_config(tmp_path / "1.json", {"CODER_TOKEN": "t"}).chat is not None
    skills = SkillSet(config.skills, installed=False)
    rules = [*skills.intents(), *(r.model_dump(mode="json") for r in config.intents)]
    work = Policy().with_changes({"work.intents": rules}).work
    called = [
        read_request(work, "en", said, None)
        for said in ("a recipe for pancakes", "What time is it in Paris?")
    ]
    assert [(c.skill, c.arguments) for c in called if c is not None] == [
        ("recipe", {"dish": "pancakes"}),
        ("time.get_current_time", {"timezone": "Europe/Paris"}),
    ]
    made = Harness(Toolbox([SkillPool(skills, {"PATH": os.environ["PATH"]})]), tmp_path)
    try:
        ends = made.run(queued("w", "recipe", {"dish": "pancakes"}))
        assert ends["w"].result == "For pancakes you need flour, two eggs and milk."
        assert [a.name for a in made.of("work.artifact")] == ["recipe.txt"]
    finally:
        made.close()
