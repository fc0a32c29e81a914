"""What the respond operator knows: the response under way, the history of what was heard, the turns that wait for an answer."""

from dataclasses import dataclass, field

from operators.reducer import NEVER
from operators.spans import TextSpans
from operators.speaking import Speaking
from operators.works import WorkBook
from schemas.floor import FloorRequested
from schemas.policy import Policy
from schemas.responses import Message

PROMPT_CHARS = 64_000
"""Of what was said and heard, in a prompt: the newest. The log takes a megabyte, and no model reads so much."""


@dataclass(slots=True)
class Responding:
    """The response that is under way."""

    response: str
    turn: str | None
    messages: tuple[Message, ...]
    speaking: Speaking
    request: str | None = None
    attempt: int = 1
    text: str = ""
    """Generated text that has not been sent to the synthesis."""
    spans: TextSpans = field(default_factory=TextSpans)
    generated: bool = False
    sentences: int = 0
    speech_attempts: dict[int, int] = field(default_factory=dict)
    progress_at: int = 0
    superseded: bool = False
    """The user has had words before it was started: `interrupt` is about to cancel it."""


@dataclass(slots=True)
class HeardItem:
    """One item of the history; `response` is None for what the user said."""

    role: str
    content: str
    response: str | None = None
    turn: str | None = None


@dataclass(slots=True)
class RespondState:
    alarm: int = NEVER
    policy: Policy = field(default_factory=Policy)
    acknowledged: bool = False
    history: list[HeardItem] = field(default_factory=list)
    queue: list[tuple[str, str]] = field(default_factory=list)
    """Turns (id, text) that have ended and wait for their answer."""
    floor: list[FloorRequested] = field(default_factory=list)
    """Who has asked for the floor, in order."""
    book: WorkBook = field(default_factory=WorkBook)
    language: str = "en"
    active: Responding | None = None
    last: Speaking | None = None
    """The response before, whose final acknowledgement may still come."""
    turn_open: bool = False
    turn: str = ""
    """The turn that is open or was the last."""
    overlap: str | None = None
    """The turn that overlaps the response and is not judged yet."""
    unanswered: set[str] = field(default_factory=set)
    """Open turns that were judged to want no answer."""
    cut_off: bool = False
    """The assistant was stopped during the present turn."""
    count: int = 0
    epoch: int = 0
    closed: bool = False

    def messages(self, now: int) -> tuple[Message, ...]:
        """The prompt: the system's part, the works that run, and what was said and heard."""
        system = [Message(role="system", content=self.policy.response.system_prompt)]
        works = self.book.prompt(now)
        said: list[Message] = []
        room = PROMPT_CHARS
        for item in reversed(self.history):
            if item.content and room > 0:
                content = item.content[:room]
                room -= len(content)
                of_user = item.role == "user"
                said.append(Message(role="user" if of_user else "assistant", content=content))
        return (*system, *([works] if works is not None else []), *reversed(said))

    def amend(self, turn: str, text: str) -> None:
        """A late transcript of a turn: it is what the user had said."""
        for item in self.history:
            if item.turn == turn:
                item.content = text
                return
        self.history.append(HeardItem("user", text, turn=turn))
