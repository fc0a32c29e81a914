"""The harness flow: the works that the log asks for.

    timeline + finished outcomes ─► one step (`HarnessStep`) ─► timeline        (`flows.effect_flow`)

The second user of `flows.effects`: a request in the log is claimed, worked on elsewhere, and gets exactly one terminal outcome; what runs
is `flows.work_effects`. One process of it a partition: a start takes over what another had claimed. State is in the log: a start scans it
for works without an end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event as StopFlag
from typing import Any
from uuid import uuid4

from flows.effect_flow import Item, build_effect_flow, run_effect_flow
from flows.effect_runner import EffectRunner
from flows.effects import EffectDesk, Produced
from flows.evidence_audio import EvidenceAudio
from flows.work_effects import AT_ONCE, Executors, work_effects
from infra.blobs import BlobStore
from infra.harness.config import HarnessConfig
from infra.harness.mcp import McpTools
from infra.harness.openai import ChatAgent
from infra.harness.pool import SkillPool
from infra.harness.port import ToolSource
from infra.harness.skills import SkillSet
from infra.harness.subprocess import SubprocessAgents
from infra.harness.toolbox import Toolbox
from infra.timeline import Place, Timeline, open_timeline
from schemas.record import Lane, Record

SOURCE = "harness/"
SHORTEST_SECRET = 6


@dataclass(frozen=True)
class HarnessSettings:
    """Where files go, and how much runs at once."""

    blobs: str = "out/blobs"
    workspaces: Path = field(default_factory=lambda: Path("out/work"))
    at_once: int = AT_ONCE
    installed_skills: bool = True


def make_executors(
    config: HarnessConfig,
    settings: HarnessSettings,
    open_timeline: Callable[[], Timeline] | None = None,
) -> Executors:
    """All executors of a configuration. To be called on the loop that they run on."""
    skills = SkillSet(config.skills, installed=settings.installed_skills)
    sources: list[ToolSource] = [
        SkillPool(skills, config.skill_environment),
        SubprocessAgents(config.agents, config.path),
        McpTools(config.servers),
    ]
    toolbox = Toolbox(sources)
    agent = None if config.chat is None else ChatAgent(config.chat, toolbox)
    hears = config.chat is not None and config.chat.audio
    return Executors(
        toolbox,
        agent,
        BlobStore(settings.blobs),
        settings.workspaces,
        config.secrets(SHORTEST_SECRET),
        settings.at_once,
        EvidenceAudio(open_timeline) if hears and open_timeline is not None else None,
    )


class HarnessStep:
    """The flow without Bytewax: records and results in, outcomes out."""

    def __init__(self, executors: Callable[[], Executors]) -> None:
        self.runner = EffectRunner("harness")
        try:
            self.executors = self.runner.call(self._on_loop(executors))
        except BaseException:
            self.runner.close()
            raise
        # New at every start, so that a claim tells this process from every other.
        self.desk = EffectDesk(work_effects(self.executors), self.runner, SOURCE + uuid4().hex)

    async def _on_loop(self, executors: Callable[[], Executors]) -> Executors:
        return executors()

    def start(
        self, timeline: Timeline, partitions: Sequence[int]
    ) -> tuple[dict[Place, int], list[Record]]:
        """Take up what the log holds: where to read on, and what becomes of works without an end."""
        offsets: dict[Place, int] = {}
        for partition in partitions:
            following = 0

            def records(partition: int = partition) -> Any:
                nonlocal following
                for record in timeline.scan(Lane.TIMELINE, partition):
                    following = record.offset + 1
                    yield record

            self.desk.restore(records())
            offsets[Place(Lane.TIMELINE, partition)] = following
        return offsets, self.desk.resume()

    def extra(self) -> list[Produced]:
        """What the works have produced since."""
        return self.runner.drain()

    def __call__(self, items: Sequence[Item]) -> list[Record]:
        out: list[Record] = []
        for item in items:
            if isinstance(item, Produced):
                out += self.desk.take(item)
            elif isinstance(item, Record):
                out.append(item)
            else:
                out += self.desk.read(item)
        return out

    def close(self) -> None:
        """Stop; works that run stay open in the log, and the next start decides about them."""
        self.runner.close(self.executors.close)


def run_harness(
    timeline_url: str,
    config: HarnessConfig,
    *,
    settings: HarnessSettings | None = None,
    stop: StopFlag | None = None,
    pace_s: float | None = None,
    opener: Callable[[], Timeline] | None = None,
) -> None:
    """Run the flow until `stop` is set."""
    open_here = opener or partial(open_timeline, timeline_url)
    made = partial(make_executors, config, settings or HarnessSettings(), open_here)
    step = HarnessStep(made)
    lanes = (Lane.TIMELINE,)
    try:
        run_effect_flow(
            build_effect_flow("harness", lanes, open_here, step, stop or StopFlag(), pace_s)
        )
    finally:
        step.close()
