"""The policy of delegated work: what is delegated without a model's asking, and how results come back.

Patterns are templates of words, not regular expressions (a device may set them, and no text may cost more than its length):
`what is the weather [like] in {city}`: words match in lower case, `(a|b c)` is one of several, `[…]` may be missing, `{name}` takes
up to four words up to the sentence's end, `{name:digits}` a number in digits or spoken figure by figure (`one 2 three` → `123`).
"""

from typing import Annotated

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from schemas.base import AnyJson, Micros
from schemas.errors import BadInput
from schemas.templates import Template, parse_template

MS = 1_000
S = 1_000_000


def _templates(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        try:
            parse_template(pattern)
        except BadInput as error:
            raise ValueError(str(error)) from None
    return patterns


def _from_text(value: object) -> object:
    """A list may be written as JSON, as on a command line."""
    # Not `json`: what it reads beyond 64 bits, or half characters, could not be written.
    return orjson.loads(value) if isinstance(value, str) else value


FromText = BeforeValidator(_from_text)
Phrases = Annotated[tuple[str, ...], FromText, AfterValidator(_templates)]


class IntentRule(BaseModel):
    """What the user says → a skill and its arguments, as a language model's tool call would name them."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    """The rule's own."""
    skill: str
    """The tool that it delegates to."""
    patterns: Annotated[Phrases, Field(min_length=1)]
    """What the user may say."""
    corrections: Phrases = ()
    """What may follow a correcting "no," or "I mean" to change an argument: `[to|in] {city}`."""
    arguments: AnyJson = Field(default_factory=dict)
    """Arguments beside those that the pattern takes from the words."""
    say: str = ""
    """Its own holding sentence."""
    answer: str = ""
    """What to say of a result that is JSON: `It is {time} in {place.name}.`; without it, or where a name is missing, name by name."""

    def templates(self) -> tuple[Template, ...]:
        return tuple(parse_template(p) for p in self.patterns)

    def correction_templates(self) -> tuple[Template, ...]:
        return tuple(parse_template(p) for p in self.corrections)


class WorkPolicy(BaseModel):
    """Capture, dispatch and return. Times are media time, but for the limits that the Harness keeps on its wall clock."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    intents: Annotated[tuple[IntentRule, ...], FromText] = ()
    """Rules that delegate without a language model."""
    cancel_phrases: Phrases = (
        "cancel (it|that|this|everything|the task|the request|the search|the order check)",
        "cancel (the|my|that) {what}",
        "(forget|drop) (it|that|about it|about that)",
        "you (can|may) stop (looking|searching|checking|working on it)",
    )
    """What the user may say to cancel works."""
    progress_phrases: Phrases = (
        "how is it (going|coming along)",
        "how far (are you|is it)",
        "(are|is) (you|it|that|this) (done|ready|finished) [yet]",
        "(any news|any progress|are you still on it|what is taking so long)",
    )
    """… to ask how far they are."""
    recall_phrases: Phrases = (
        "what (was|is) the (result|answer|outcome)",
        "what did you (find|find out|get)",
        "tell me the (result|answer|outcome) [again]",
        "say the (result|answer) again",
    )
    """… to hear a result again."""
    holding: str = "Let me check that."
    """Said when a work begins and the model said nothing itself."""
    still_running: str = "I am still working on that."
    """Said when the user asks how far it is, before what is known."""
    cancelled: str = "Okay, I cancelled that."
    """Said when the user has cancelled one."""
    nothing_found: str = "I have no result for that yet."
    """Said when there is nothing to hear again."""
    failed: str = "Sorry, that did not work: {why}."
    """Told when a work failed; `{why}` in a few words."""
    tell_failures: bool = True
    """Whether failures are told."""
    tell_progress: bool = False
    """Whether progress is spoken, one sentence at a time."""

    allow: Annotated[tuple[str, ...], FromText] = ("*",)
    """Tools that works of this session may use: names or patterns (`weather`, `time.*`)."""
    most_open: Annotated[int, Field(ge=1, le=64)] = 8
    """Works of a session that may be open at once; beyond, requests are refused."""
    query_chars: Annotated[int, Field(ge=1)] = 4_000
    """Longest request."""
    result_chars: Annotated[int, Field(ge=1)] = 3_000
    """What is kept of a result."""
    request_limit: Micros = 30 * S
    """Wall time of a work on the routes `skill` and `direct`, …"""
    general_limit: Micros = 180 * S
    """… and on `general` and `auto`."""
    expire_slack: Micros = 30 * S
    """Media time beyond its limit after which an unanswered work has expired."""
    cancel_slack: Micros = 10 * S
    """Media time after `work.cancelling` in which the Harness may still answer."""
    lookback: Micros = 120 * S
    """How far before the cutoff the evidence reaches."""
    evidence_items: Annotated[int, Field(ge=0, le=100)] = 12
    """Turns and answers in the evidence."""

    sentences: Annotated[int, Field(ge=1, le=10)] = 3
    """Sentences of a result that are spoken, …"""
    spoken_chars: Annotated[int, Field(ge=20)] = 600
    """… and their length."""
    silence: Micros = 800 * MS
    """Silence of both sides before a result is told, falling to …"""
    silence_least: Micros = 250 * MS
    """… this, …"""
    silence_decay: Micros = 8 * S
    """… while the result waits so long."""
    freshness: Micros = 60 * S
    """A result older than this is not told unasked."""
    acknowledged_within: Micros = 60 * S
    """From asking for the floor to the last acknowledgement; beyond, the delivery is `unknown`."""
    delivery_tries: Annotated[int, Field(ge=1, le=5)] = 3
    """Times the floor is asked for, as long as nothing of it was heard."""
