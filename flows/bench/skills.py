"""Two skills for `flows.bench.harness`: one computes for its time, one sleeps for it."""

from pydantic import BaseModel, Field

from infra.clock import monotonic_s, sleep_s
from infra.harness.skills import skill


class Load(BaseModel):
    seconds: float = Field(ge=0, le=300)
    number: int = 0
    """Makes each task another one: the same task is not begun twice."""


@skill("bench_busy", "Computes for some seconds.", idempotent=True, timeout=300)
def bench_busy(arguments: Load) -> str:
    end = monotonic_s() + arguments.seconds
    rounds = 0
    while monotonic_s() < end:
        rounds += sum(range(2_000)) > 0
    return f"{rounds} rounds"


@skill("bench_sleep", "Sleeps for some seconds.", idempotent=True, timeout=300)
def bench_sleep(arguments: Load) -> str:
    sleep_s(arguments.seconds)
    return "slept"
