"""The story of a session: what a person would tell of it, gathered from its events in causal order.

`Story` is shown what the shared fold applies and keeps turns, responses, overlaps and who was heard when. The live view, the summary
and the picture read it; all times are media time in µs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from operators.fold import Applied, SessionFold
from schemas.envelope import Event


@dataclass(slots=True)
class TurnStory:
    turn: str
    start_us: int
    end_us: int | None = None
    decided_us: int | None = None
    text: str = ""
    reason: str = ""
    probability: float | None = None


@dataclass(slots=True)
class ResponseStory:
    response: str
    turn: str | None
    requested_us: int
    text: str = ""
    played: list[tuple[int, int]] = field(default_factory=list)
    """Stretches of media time in which it was heard, as acknowledged."""
    playing_since: int | None = None
    end_us: int | None = None
    how: str = ""
    reason: str = ""
    heard_text: str = ""
    heard_us: int = 0

    @property
    def first_heard_us(self) -> int | None:
        return self.played[0][0] if self.played else self.playing_since


@dataclass(slots=True)
class OverlapStory:
    overlap: str
    response: str
    start_us: int
    resolved_us: int | None = None
    verdict: str = ""
    kind: str | None = None
    evidence: str = ""


@dataclass(slots=True)
class Story:
    """See the module."""

    session: str
    device: str = ""
    pacing: str = ""
    acknowledged: bool = False
    media_us: int = 0
    speech: list[tuple[int, int]] = field(default_factory=list)
    speaking_since: int | None = None
    turns: dict[str, TurnStory] = field(default_factory=dict)
    responses: dict[str, ResponseStory] = field(default_factory=dict)
    overlaps: dict[str, OverlapStory] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    lost_us: int = 0
    rejected: int = 0
    end: str = ""

    def show(self, applied: Applied) -> None:
        """Take an input and its decisions."""
        if applied.fate != "applied":
            return
        self.see(applied.input)
        for decision in applied.decisions:
            self.see(decision)

    def see(self, event: Event) -> None:
        """Take one event."""
        at = event.mediatime or 0
        self.media_us = max(self.media_us, at)
        data = event.data
        match event.type:
            case "session.opened":
                self.device = data.device
            case "session.configured":
                self.pacing, self.acknowledged = data.pacing, data.playback == "acknowledged"
            case "speech.started":
                self.speaking_since = data.start_us
            case "speech.stopped":
                self.speech.append((data.start_us, data.end_us))
                self.speaking_since = None
            case "turn.started":
                self.turns[data.turn] = TurnStory(data.turn, data.start_us)
            case "turn.ended":
                turn = self.turns.setdefault(data.turn, TurnStory(data.turn, data.start_us))
                turn.end_us, turn.decided_us, turn.text = data.end_us, at, data.text
                turn.reason, turn.probability = data.reason, data.probability
            case "turn.amended":
                if data.turn in self.turns:
                    self.turns[data.turn].text = data.text
            case "overlap.started":
                self.overlaps[data.overlap] = OverlapStory(
                    data.overlap, data.response, data.start_us
                )
            case "overlap.resolved":
                overlap = self.overlaps.get(data.overlap)
                if overlap is not None:
                    overlap.resolved_us, overlap.verdict, overlap.kind = at, data.verdict, data.kind
                    overlap.evidence = data.evidence
            case "perception.gap":
                self.lost_us += data.missing_us
            case "event.rejected":
                self.rejected += 1
            case "fault.operator":
                self.failures.append(f"operator {data.operator} failed: {data.error}")
            case "session.ended":
                self.end = data.reason
            case _ if event.type.endswith(".failed") and event.type != "response.failed":
                if data.reason != "cancelled":
                    self.failures.append(f"{event.type} {data.reason}: {data.message}")
            case _:
                self._see_response(event, at)

    def _see_response(self, event: Event, at: int) -> None:
        data = event.data
        if event.type == "response.requested":
            if data.attempt == 1:
                self.responses[data.response] = ResponseStory(data.response, data.turn, at)
            return
        if event.type == "response.prepared":
            self.responses[data.response] = ResponseStory(data.response, data.turn, at, data.text)
            return
        response = self.responses.get(getattr(data, "response", ""))
        if response is None:
            return
        match event.type:
            case "generation.completed":
                response.text = data.text
            case "response.started":
                if not self.acknowledged:
                    response.playing_since = at
            case "playback.ack":
                if data.state == "playing" and response.playing_since is None:
                    response.playing_since = at
                elif data.state != "playing":
                    self._silent(response, at)
            case "response.ended" | "response.failed" | "response.cancelled":
                response.how, response.end_us = event.type.removeprefix("response."), at
                response.heard_text, response.heard_us = data.heard_text, data.heard_us
                response.reason = getattr(data, "reason", "")
                self._silent(response, at)
            case "heard.amended":
                response.heard_text, response.heard_us = data.heard_text, data.heard_us

    @staticmethod
    def _silent(response: ResponseStory, at: int) -> None:
        if response.playing_since is not None:
            response.played.append((response.playing_since, at))
            response.playing_since = None

    def latency_us(self, response: ResponseStory) -> int | None:
        """From where the user fell silent to where the answer was first heard; None where one of them is missing."""
        turn = self.turns.get(response.turn or "")
        if (
            turn is None
            or turn.end_us is None
            or turn.reason == "text"
            or response.first_heard_us is None
        ):
            return None
        return response.first_heard_us - turn.end_us


def tell(session: str, events: Iterable[Event]) -> Story:
    """Fold a session's records (in offset order) into its story."""
    fold, story = SessionFold(session), Story(session)
    for event in events:
        for applied in fold.feed(event):
            story.show(applied)
    return story
