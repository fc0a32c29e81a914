"""The demo's two skills. Their data is made up: a small table, and a rule on the digits of the order number.

    venus run --skills flows.demo.skills

Both are slow on purpose, as a real service may be: the conversation goes on meanwhile.
"""

from pydantic import BaseModel, Field

from infra.clock import sleep_s
from infra.harness.skills import SkillContext, SkillSet, skill

WEATHER_S = 8.0
ORDER_S = 4.0

WEATHER = {
    "berlin": "cloudy, with 14 degrees and a light wind",
    "london": "rainy, with 12 degrees",
    "madrid": "hot and dry, with 31 degrees",
    "new york": "partly sunny, with 19 degrees",
    "paris": "sunny, with 21 degrees",
    "rome": "warm and clear, with 27 degrees",
    "tokyo": "humid, with 25 degrees and some rain",
}
"""Demo data: city → its weather, always the same."""

STATES = (
    "was shipped yesterday and will arrive tomorrow",
    "is being packed and will be shipped today",
    "is waiting for one part that is out of stock",
    "was delivered this morning",
)
"""Demo data: what an order can be like; the sum of its digits chooses."""


class City(BaseModel):
    city: str = Field(min_length=1, max_length=60, description="The name of a city.")


class OrderNumber(BaseModel):
    number: str = Field(pattern=r"^[0-9]{1,12}$", description="The digits of an order number.")


@skill(
    "weather",
    "The weather in a city now (demo data).",
    idempotent=True,
    timeout=25,
    phrases=(
        "(what is|what's|how is|how's) the weather [like|going to be|going to be like] (in|for) {city}",
        "[the] weather (in|for) {city}",
    ),
    corrections=("[to|in|for|the weather in] {city}",),
    say="Let me check the weather.",
)
def weather(arguments: City, context: SkillContext) -> str:
    context.progress(f"Asking for the weather in {arguments.city.title()}.")
    sleep_s(WEATHER_S)
    city = " ".join(arguments.city.lower().split())
    if city not in WEATHER:
        return f"I have no weather for {city.title()}."
    return f"In {city.title()} it is {WEATHER[city]}."


@skill(
    "order_status",
    "Where an order is, by its number (demo data).",
    idempotent=True,
    timeout=25,
    phrases=(
        "check [on|for] [the status of] [my|the|an] order [number] {number:digits}",
        "(where is|what is the status of|what's the status of) [my|the] order [number] {number:digits}",
    ),
    corrections=("[number|it is|it's|order|order number|my order number is] {number:digits}",),
    say="Let me look that up.",
)
def order_status(arguments: OrderNumber, context: SkillContext) -> str:
    sleep_s(ORDER_S)
    state = STATES[sum(map(int, arguments.number)) % len(STATES)]
    spoken = " ".join(arguments.number)
    return f"Your order {spoken} {state}."


def intents() -> list[dict[str, object]]:
    """The intent rules of both, as a session's wish: `{"work.intents": intents()}`."""
    return SkillSet(("flows.demo.skills",), installed=False).intents()
