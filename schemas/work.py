"""Work: one delegated task from its queueing to its end, and the way of its result back into the conversation.

    type                   class        writer        what it says                                        ends
    --------------------   ----------   -----------   -------------------------------------------------   --------------
    work.requested         observation  any device    a structured request, without tags
    work.cancel_requested  observation  any device    stop a work (or all of them)
    work.queued            decision     conversation  do this: the request that the Harness acts on
    work.running           outcome      harness       the claim, attempt n; nothing runs before it was
                                                      read back as the first of its attempt (law 5)
    work.called            outcome      harness       a tool was called, and what it returned
    work.progress          outcome      harness       how far it is
    work.artifact          outcome      harness       a file it made, in the blob store
    work.completed         outcome      harness       the result                                          the work
    work.failed            outcome      harness       why there is none (`lost`: its process died)        the work
    work.cancelled         outcome      harness       the call was stopped                                the work
    work.cancelling        decision     conversation  stop it; its result will not be told
    work.expired           decision     conversation  nothing came within its media time, or the session  the work
                                                      is over
    reply.prepared         decision     conversation  the result as it will be spoken
    work.delivering        decision     conversation  the floor was asked for; attempt n
    work.delivered         decision     conversation  it was spoken and heard to its end                  the delivery
    work.undelivered       decision     conversation  it was not, and why; kept, told on request          the delivery

The first terminal event in causal order counts; a later one is late and changes nothing. A result that comes after `work.cancelling`
is the work's honest end (it had been done) and is not told. The outcomes of one attempt carry it in `attempt`.
"""

from typing import Literal

from pydantic import Field

from schemas.base import AnyJson, Data, Kind, Writer, event
from schemas.delegation import Evidence, Fitting, Route
from schemas.transcription import FailureReason

CancelReason = Literal["user", "corrected", "requested", "superseded"]


@event("work.requested", Kind.OBSERVATION, Writer.DEVICE)
class WorkRequested(Data):
    """A structured request by any producer: a skill with its arguments, or a question to the agent."""

    query: str = ""
    route: Route = "auto"
    skill: str | None = None
    arguments: AnyJson = Field(default_factory=dict)
    continues: str | None = None


@event("work.cancel_requested", Kind.OBSERVATION, Writer.DEVICE)
class WorkCancelRequested(Data):
    """Stop `work`; without a name, every open work of the session."""

    work: str | None = None
    reason: str = ""


@event("work.queued", Kind.DECISION, Writer.CONVERSATION)
class WorkQueued(Data):
    """Do this. Everything that the work may know of its session is in here (works see nothing else)."""

    work: str
    delegate: str
    route: Route
    query: str
    skill: str | None = None
    arguments: AnyJson = Field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    cutoff_us: int = 0
    earlier: str = ""
    """The result of the work that this one continues; what is known of it, if there is none."""
    allow: tuple[str, ...] = ("*",)
    """Tools that it may use, as patterns (`weather`, `time.*`)."""
    limit_us: int
    """Wall time that the Harness gives it."""
    result_chars: int
    replaces: str | None = None
    language: str = "en"
    rule: str | None = None
    attempt: int = 1
    fits: Fitting | None = None
    """The call that is made if there is no planner; see `delegate.captured`."""


@event("work.running", Kind.OUTCOME, Writer.HARNESS)
class WorkRunning(Data):
    """The claim of an attempt: the first one in the log owns it. Its envelope's source is the process."""

    work: str
    attempt: int


@event("work.called", Kind.OUTCOME, Writer.HARNESS)
class WorkCalled(Data):
    """A tool call that the work made, for whoever asks what was done in the user's name. The last is the chat endpoint, if it was asked:
    with the number of calls that it made, and the seconds of the user's sound that it heard."""

    work: str
    tool: str
    arguments: AnyJson = Field(default_factory=dict)
    ok: bool
    result: str = ""


@event("work.progress", Kind.OUTCOME, Writer.HARNESS)
class WorkProgress(Data):
    """How far it is, in the work's own words."""

    work: str
    text: str


@event("work.artifact", Kind.OUTCOME, Writer.HARNESS)
class WorkArtifact(Data):
    """A file that the work made; the envelope's dataref is `digest`."""

    work: str
    name: str
    media_type: str
    size: int
    digest: str


@event("work.completed", Kind.OUTCOME, Writer.HARNESS)
class WorkCompleted(Data):
    """It is done; its result as text."""

    work: str
    result: str
    truncated: bool = False
    attempt: int = 1


@event("work.failed", Kind.OUTCOME, Writer.HARNESS)
class WorkFailed(Data):
    """It could not be done."""

    work: str
    reason: FailureReason
    message: str = ""
    attempt: int = 1


@event("work.cancelled", Kind.OUTCOME, Writer.HARNESS)
class WorkCancelled(Data):
    """It was stopped on request."""

    work: str
    message: str = ""
    attempt: int = 1


@event("work.cancelling", Kind.DECISION, Writer.CONVERSATION)
class WorkCancelling(Data):
    """Its end is wanted; the Harness answers with `work.cancelled`, unless it was done already."""

    work: str
    reason: CancelReason


@event("work.expired", Kind.DECISION, Writer.CONVERSATION)
class WorkExpired(Data):
    """Terminal. `request` is the `work.queued` that nobody has to answer any more."""

    work: str
    request: str
    reason: Literal["timed_out", "closed"]


@event("reply.prepared", Kind.DECISION, Writer.CONVERSATION)
class ReplyPrepared(Data):
    """What will be said of a work, polished to speech: at most `policy.work.sentences`, no control tokens, code or lists."""

    work: str
    text: str
    ok: bool = True
    """False: the text says that there is no result."""


@event("work.delivering", Kind.DECISION, Writer.CONVERSATION)
class WorkDelivering(Data):
    """One spoken text for one or several results."""

    delivery: str
    works: tuple[str, ...]
    text: str
    attempt: int
    waited_us: int
    """Since the first of them was ready."""


@event("work.delivered", Kind.DECISION, Writer.CONVERSATION)
class WorkDelivered(Data):
    """The user has heard the result: its playback was acknowledged."""

    work: str
    delivery: str
    response: str
    heard_us: int


@event("work.undelivered", Kind.DECISION, Writer.CONVERSATION)
class WorkUndelivered(Data):
    """The result is kept; asked for, it is told again.

    `unknown`: spoken, but no acknowledgement came; `stale`: no eligible moment within the freshness; `interrupted`: part of it was
    heard; `superseded`: the user changed the intent or cancelled; `failed`: it could not be spoken; `closed`: the session ended.
    """

    work: str
    reason: Literal["unknown", "stale", "interrupted", "superseded", "failed", "closed"]
    delivery: str | None = None
    heard_text: str = ""
