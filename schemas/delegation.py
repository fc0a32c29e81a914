"""Capture: what the assistant delegates to the Harness, and what was refused.

A delegation comes from one of three places, all with the same two decisions after it: a `<delegate>…</delegate>` span in a model's
output, an intent rule that matched a turn (`policy.work.intents`), or a structured `work.requested` of any producer. Its evidence
ends where it was opened: nothing later than `cutoff_us` belongs to the request.
"""

from typing import Literal

from pydantic import Field

from schemas.base import AnyJson, Data, Kind, Writer, event

Route = Literal["auto", "general", "skill", "direct"]
"""`general`: an agent with tools; `skill`: one registered function; `direct`: answered from the evidence alone; `auto`: the
Harness chooses."""

Origin = Literal["span", "intent", "request"]


class Evidence(Data):
    """One thing that was said before the cutoff; of the assistant only what had been heard by then."""

    role: Literal["user", "assistant"]
    text: str
    at_us: int


class Fitting(Data):
    """The call that an intent rule makes of a request in words."""

    rule: str
    skill: str
    arguments: AnyJson = Field(default_factory=dict)


@event("delegate.opened", Kind.DECISION, Writer.CONVERSATION)
class DelegateOpened(Data):
    """The opening tag of a span: from here on the output is private. Fixes the evidence."""

    delegate: str
    cutoff_us: int
    response: str | None = None
    turn: str | None = None


@event("delegate.captured", Kind.DECISION, Writer.CONVERSATION)
class DelegateCaptured(Data):
    """A complete request. One work at most comes of it (`work.queued`), else a `delegate.refused`."""

    delegate: str
    origin: Origin
    query: str
    cutoff_us: int
    route: Route = "auto"
    skill: str | None = None
    arguments: AnyJson = Field(default_factory=dict)
    rule: str | None = None
    """The intent rule that matched."""
    turn: str | None = None
    response: str | None = None
    corrects: str | None = None
    """The work whose intent the user has changed by it: it is cancelled, this one takes its place."""
    continues: str | None = None
    """An earlier work whose result belongs to the evidence."""
    evidence: tuple[Evidence, ...] = ()
    fits: Fitting | None = None
    """With the route `auto`: what the words ask for by the intent rules, for a Harness without a planner."""


@event("delegate.malformed", Kind.DECISION, Writer.CONVERSATION)
class DelegateMalformed(Data):
    """A span that is no request: swallowed whole, neither shown nor spoken."""

    reason: Literal["nested", "protocol_token", "interrupted", "empty", "bad_arguments"]
    response: str | None = None
    text: str = ""
    """Its beginning, for whoever looks for the cause."""


@event("delegate.refused", Kind.DECISION, Writer.CONVERSATION)
class DelegateRefused(Data):
    """No work comes of a captured request; `work` is the running one that answers it already, or that it asks about."""

    delegate: str
    reason: Literal["running", "not_allowed", "too_many", "closed", "no_such_work"]
    work: str | None = None
    detail: str = ""
    """With `running`, how far that work is, if the request was about it."""
