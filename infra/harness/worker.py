"""The process that runs Python skills: `python -m infra.harness.worker HARNESS-PID MODULE…`; JSON lines as in `infra.harness.jsonlines`.

It makes room for the conversation (lowest priority), and ends when the Harness does. What a skill prints goes to standard error, so
that it cannot be taken for an answer.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from infra.harness.aside import COMPUTES, make_room
from infra.harness.port import ToolRejected, as_text
from infra.harness.skills import Skill, SkillSet


class _Context:
    """See `infra.harness.skills.SkillContext`."""

    def __init__(self, task: dict[str, Any], out: TextIO) -> None:
        self._out = out
        self.workspace = Path(task["workspace"])
        self.session, self.work, self.language = task["session"], task["work"], task["language"]
        self.workspace.mkdir(parents=True, exist_ok=True)

    def progress(self, text: str) -> None:
        _say(self._out, {"progress": text})

    def artifact(self, path: Path | str, media_type: str = "") -> None:
        _say(self._out, {"artifact": {"path": str(path), "media_type": media_type}})


def _say(out: TextIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    out.flush()


def _run(one: Skill, task: dict[str, Any], out: TextIO) -> str:
    arguments = one.arguments.model_validate(task["arguments"])
    wanted = len(inspect.signature(one.function).parameters)
    given = (arguments, _Context(task, out))[:wanted]
    result = one.function(*given)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    return as_text(result)


def main(harness: int, modules: list[str]) -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if not make_room(harness, COMPUTES):
        return
    skills = SkillSet(modules, installed=False).skills
    for line in sys.stdin:
        task = json.loads(line)["task"]
        one = skills.get(task["skill"])
        try:
            if one is None:
                raise ToolRejected(f"no skill {task['skill']}")
            _say(out, {"result": _run(one, task, out)})
        except ToolRejected as error:
            _say(out, {"error": str(error), "rejected": True})
        except Exception as error:  # whatever a skill raises is its answer
            traceback.print_exc()
            _say(out, {"error": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
