"""The script of `venus bench judgement`: who says what, with pauses inside turns and overlaps at given times (pure)."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.errors import BadInput

SCRIPT = Path(__file__).parent.with_suffix(".txt")
Kind = Literal["interruption", "backchannel", "side_talk", "noise"]
KINDS: dict[str, Kind] = {
    "i": "interruption",
    "b": "backchannel",
    "s": "side_talk",
    "n": "noise",
}
NOISES = ("cough", "knock", "click", "hum")
_PAUSE = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class TurnLine:
    """A turn: its parts, and the pauses between them in seconds."""

    line: int
    parts: tuple[str, ...]
    pauses: tuple[float, ...]

    @property
    def text(self) -> str:
        """The sentence as it is synthesised, without its pauses."""
        return " ".join(self.parts)


@dataclass(frozen=True, slots=True)
class OverlapLine:
    """Something over the assistant: when (seconds after its first sound), how loud (dB against the user's level), what."""

    line: int
    kind: Kind
    at_s: float
    text: str
    level_db: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, or overlaps with what the assistant says at each of them."""

    name: str
    turns: tuple[TurnLine, ...] = ()
    overlaps: tuple[OverlapLine, ...] = ()
    assistant: str = ""


def parse(text: str, where: str = "script") -> list[Conversation]:
    """Raises BadInput for a line that is none, and says which."""
    found: list[Conversation] = []
    turns: list[TurnLine] = []
    overlaps: list[OverlapLine] = []
    name = assistant = ""

    def close() -> None:
        if name:
            found.append(Conversation(name, tuple(turns), tuple(overlaps), assistant))

    for number, line in enumerate(text.splitlines(), 1):
        mark, _, rest = line.strip().partition(" ")
        if not mark or mark.startswith("#"):
            continue
        try:
            if mark == "=":
                close()
                name, turns, overlaps, assistant = rest.split()[0], [], [], ""
            elif mark == "t":
                turns.append(_turn(number, rest))
            elif mark == "a" and rest:
                assistant = rest
            elif mark in KINDS and assistant:
                overlaps.append(_overlap(number, KINDS[mark], rest))
            else:
                raise ValueError("nothing that a line may begin with here")
        except (ValueError, IndexError) as error:
            raise BadInput(f"{where}:{number}: {line.strip()!r}: {error}") from None
    close()
    return found


def _turn(number: int, rest: str) -> TurnLine:
    pieces = _PAUSE.split(rest)
    parts = tuple(piece.strip() for piece in pieces[0::2])
    pauses = tuple(float(piece) for piece in pieces[1::2])
    if not all(parts):
        raise ValueError("words are needed on both sides of a pause")
    if any(not 0.2 <= pause <= 5.0 for pause in pauses):
        raise ValueError("a pause of 0.2 to 5 s is needed")
    return TurnLine(number, parts, pauses)


def _overlap(number: int, kind: Kind, rest: str) -> OverlapLine:
    at, _, text = rest.partition(" ")
    level = 0.0
    if kind == "side_talk":
        decibels, _, text = text.partition(" ")
        level = float(decibels)
    if not text or (kind == "noise" and text not in NOISES):
        raise ValueError(f"words are needed, or one of {', '.join(NOISES)}")
    return OverlapLine(number, kind, float(at), text, level)


def read(path: Path = SCRIPT) -> list[Conversation]:
    """The conversations of a script file."""
    return parse(path.read_text(encoding="utf-8"), path.name)
