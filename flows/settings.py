"""Settings: the only reader of the environment. Command-line options win over these, these over the defaults.

`VENUS_TIMELINE` and `VENUS_TRITON` say where things are, `VENUS_DEVICE` whether models run on `cpu` or `cuda`, `VENUS_LOG_LEVEL` how much
is logged, `VENUS_HARNESS`, `VENUS_SKILLS` and `VENUS_BLOBS` what the Harness may use (docs/harness.md), `VENUS_BACKCHANNEL=on` switches
the backchannel classifier on (docs/backchannel.md). `VENUS_KAFKA_*` are handed to the Kafka timeline, and the model settings
(`VENUS_CHAT_MODEL` and the like, see infra/triton/README.md) to Triton, unread.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from infra.timeline import open_timeline
from infra.timeline.port import Timeline
from infra.triton.parts import MODELS, OPTIONAL
from schemas.errors import BadInput

DEFAULT_TIMELINE = "sqlite:///venus.db"
DEFAULT_BLOBS = "out/blobs"
DEVICES = ("cpu", "cuda")
LOG_LEVELS = ("WARNING", "DEBUG", "INFO", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says."""

    timeline: str = DEFAULT_TIMELINE
    triton: str = "local"
    device: str = "cpu"
    log_level: str = "WARNING"
    kafka_home: str | None = None
    harness: str | None = None
    """The configuration of the Harness (`infra.harness.config`)."""
    skills: tuple[str, ...] = ()
    """Modules with skills, comma-separated in the variable."""
    blobs: str = DEFAULT_BLOBS
    backchannel: bool = False
    """Load the backchannel classifier, and let sessions ask it unless they wish otherwise."""

    @property
    def models(self) -> tuple[str, ...]:
        """What a Triton server of our own loads."""
        return (*MODELS, *OPTIONAL) if self.backchannel else MODELS

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        env = os.environ if environ is None else environ
        return cls(
            timeline=env.get("VENUS_TIMELINE") or DEFAULT_TIMELINE,
            triton=env.get("VENUS_TRITON") or "local",
            device=_choice(env, "VENUS_DEVICE", DEVICES),
            log_level=_choice(env, "VENUS_LOG_LEVEL", LOG_LEVELS),
            kafka_home=env.get("KAFKA_HOME") or None,
            harness=env.get("VENUS_HARNESS") or None,
            skills=tuple(s.strip() for s in env.get("VENUS_SKILLS", "").split(",") if s.strip()),
            blobs=env.get("VENUS_BLOBS") or DEFAULT_BLOBS,
            backchannel=_choice(env, "VENUS_BACKCHANNEL", ("off", "on")) == "on",
        )


def _choice(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """A variable that takes one of some words, in any case; the first is the default."""
    value = env.get(name) or choices[0]
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    raise BadInput(f"{name} is {value!r}; use one of {', '.join(choices)}")


def environment() -> Mapping[str, str]:
    """All of it, for the secrets that a configuration of the Harness names."""
    return os.environ


def timeline_at(url: str, create: bool = True) -> Timeline:
    """Open a timeline with what the environment says about Kafka."""
    return open_timeline(url, create=create, environ=os.environ)


def opener(url: str) -> "partial[Timeline]":
    """`timeline_at` for later, e.g. in a worker of its own."""
    return partial(timeline_at, url)
