"""The live view of a conversation in the terminal: who speaks, what was heard, what was decided.

Finished things scroll by as lines; on a terminal a status line below shows the clock and who has the floor. Fed with what the shared
fold applies, so it shows the causal order, not the order of arrival.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from flows.story import Story
from operators.fold import Applied
from schemas.envelope import Event

USER, ASSISTANT, DECISION, FAULT, QUIET = (
    "bold blue",
    "bold dark_orange3",
    "magenta",
    "bold red",
    "dim",
)


def clock(us: int) -> str:
    """`m:ss.d` of a media time."""
    tenths = us // 100_000
    return f"{tenths // 600}:{tenths // 10 % 60:02d}.{tenths % 10}"


class LiveView:
    """Show a session while it happens; a context manager."""

    def __init__(
        self, session: str, length_us: int | None = None, console: Console | None = None
    ) -> None:
        self.story = Story(session)
        self._console = console or Console(stderr=True)
        self._length = length_us
        self._heard: set[str] = set()
        self._live = (
            Live(console=self._console, refresh_per_second=8, transient=True)
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, applied: Applied) -> None:
        """Take an input and its decisions."""
        self.story.show(applied)
        if applied.fate != "applied":
            return
        for event in (applied.input, *applied.decisions):
            self._line(event)
        if self._live is not None:
            self._live.update(self._status())

    def _status(self) -> Text:
        story = self.story
        now = clock(story.media_us) + (f" / {clock(self._length)}" if self._length else "")
        status = Text(f" {now}  ", style=QUIET)
        status.append("● user " if story.speaking_since is not None else "○ user ", style=USER)
        playing = any(r.playing_since is not None for r in story.responses.values())
        status.append("● assistant" if playing else "○ assistant", style=ASSISTANT)
        if not playing and any(r.end_us is None for r in story.responses.values()):
            status.append("  thinking…", style=QUIET)
        return status

    def _print(self, at: int, who: str, text: str, style: str, note: str = "") -> None:
        line = Text(f"{clock(at):>7}  ", style=QUIET)
        line.append(f"{who:<10}", style=style)
        line.append(text)
        if note:
            line.append(f"  {note}", style=QUIET)
        self._console.print(line, soft_wrap=True)

    def _line(self, event: Event) -> None:
        data, at = event.data, event.mediatime or 0
        match event.type:
            case "turn.ended":
                sure = "" if data.probability is None else f", p {data.probability:.2f}"
                note = f"[{data.reason}{sure}, {(at - data.end_us) / 1e6:.2f} s after]"
                self._print(at, "user", f"“{data.text}”" if data.text else "(no words)", USER, note)
            case "turn.held":
                self._print(
                    at,
                    "",
                    "waits: there may be more to come",
                    DECISION,
                    f"[p {data.probability:.2f}]",
                )
            case "response.started" | "playback.ack":
                response = self.story.responses.get(data.response)
                # Told when it is heard, as the summary measures it: the floor alone is still silence.
                if (
                    response is not None
                    and response.first_heard_us is not None
                    and data.response not in self._heard
                ):
                    self._heard.add(data.response)
                    late = self.story.latency_us(response)
                    note = "" if late is None else f"[{late / 1e6:.2f} s after the user]"
                    self._print(at, "assistant", "begins to speak", ASSISTANT, note)
            case "overlap.resolved":
                kind = f" ({data.kind})" if data.kind else ""
                self._print(
                    at, "", f"overlap: {data.verdict}{kind}", DECISION, f"[{data.evidence}]"
                )
            case "response.ended" | "response.cancelled" | "response.failed":
                what = event.type.removeprefix("response.")
                self._print(
                    at,
                    "assistant",
                    f"“{data.heard_text}”",
                    ASSISTANT,
                    f"[{what}, heard {data.heard_us / 1e6:.1f} s]",
                )
            case "event.rejected":
                self._print(at, "rejected", data.detail, FAULT)
            case "perception.gap":
                self._print(
                    at, "gap", f"{data.reason}: {data.missing_us / 1e6:.2f} s of media", FAULT
                )
            case "fault.operator":
                said = f"operator {data.operator} failed: {data.error}"
                self._print(
                    at, "failed", f"{said} (a fault of the program; it ends the session)", FAULT
                )
            case "session.ended":
                self._print(at, "", f"session ended ({data.reason})", QUIET)
            case _ if event.type.endswith(".failed") and getattr(data, "reason", "") != "cancelled":
                self._print(at, "failed", f"{event.type}: {data.reason} {data.message}", FAULT)
