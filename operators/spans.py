"""Delegate spans in a model's output: what is public, what is private, and what a span says. Pure and incremental.

    state     token                                        →
    -------   ------------------------------------------   ----------------------------------------------
    public    `<delegate>`                                 private (Opened)
    public    any other protocol token                     public; swallowed, a stray close too
    private   `</delegate>` or `<|turn_eos|>`              public (Captured)
    private   `<|speak|> <|chunk_eos|> <unit> </unit>`     private; skipped (spans cross units)
    private   `<delegate>`                                 bad (nested), swallowed up to its last close
    private   any other protocol token                     bad, swallowed
    bad       its last close, `<|turn_eos|>`               public (Malformed)
    private   the output is cut off                        Malformed (interrupted)

`muted` holds from the first private token to the turn's end: a duplex model's speech lags its text, so none of it is safe to play.
`Spans` is fed pieces and tokens; `TextSpans` finds them in text that may be cut anywhere, `IdSpans` in token ids (decoded text may
drop special tokens, so ids are what counts where there are ids).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

OPEN, CLOSE = "<delegate>", "</delegate>"
TURN_END = "<|turn_eos|>"
PROTOCOL_TOKENS = (
    "<|speak|>",
    "<|listen|>",
    TURN_END,
    "<|chunk_eos|>",
    "<unit>",
    "</unit>",
    "<image>",
    "</image>",
    OPEN,
    CLOSE,
    "<backend>",
    "</backend>",
)
_SKIPPED = frozenset({"<|speak|>", "<|chunk_eos|>", "<unit>", "</unit>"})
_TOKEN = re.compile("|".join(map(re.escape, PROTOCOL_TOKENS)))
_FIRST_LETTERS = frozenset(token[0] for token in PROTOCOL_TOKENS)
_LONGEST = max(map(len, PROTOCOL_TOKENS))

KEPT_PIECES = 16_000
"""Pieces (characters, ids) of a span that are kept; the rest of it is swallowed."""

P = TypeVar("P")
Fault = Literal["nested", "protocol_token", "interrupted"]


class Public(NamedTuple, Generic[P]):
    piece: P


class Opened(NamedTuple):
    """A span begins here."""


class Captured(NamedTuple, Generic[P]):
    content: tuple[P, ...]


class Malformed(NamedTuple, Generic[P]):
    reason: Fault
    content: tuple[P, ...]


Found = Public[P] | Opened | Captured[P] | Malformed[P]


class Spans(Generic[P]):
    """The machine of the table above, for pieces of any kind."""

    __slots__ = ("_content", "_depth", "_fault", "muted")

    def __init__(self) -> None:
        self._depth = 0
        self._fault: Fault | None = None
        self._content: list[P] = []
        self.muted = False

    @property
    def private(self) -> bool:
        return self._depth > 0

    def piece(self, piece: P) -> list[Found[P]]:
        if not self._depth:
            return [Public(piece)]
        if len(self._content) < KEPT_PIECES:
            self._content.append(piece)
        return []

    def token(self, token: str) -> list[Found[P]]:
        if token == TURN_END:
            found = self._close() if self._depth else []
            self.muted = False
            return found
        if not self._depth:
            if token != OPEN:
                return []
            self._depth, self.muted = 1, True
            return [Opened()]
        if token == OPEN:
            self._depth += 1
            self._fault = self._fault or "nested"
        elif token == CLOSE:
            self._depth -= 1
            return [] if self._depth else self._close()
        elif token not in _SKIPPED:
            self._fault = self._fault or "protocol_token"
        return []

    def cut(self) -> list[Found[P]]:
        """The output ends here without the end of its turn: an open span is interrupted."""
        if not self._depth:
            return []
        self._fault = self._fault or "interrupted"
        return self._close()

    def _close(self) -> list[Found[P]]:
        content, fault = tuple(self._content), self._fault
        self._content, self._fault, self._depth = [], None, 0
        return [Captured(content) if fault is None else Malformed(fault, content)]


class TextSpans:
    """Spans in text that comes in pieces cut anywhere, inside a tag too."""

    __slots__ = ("_held", "_spans")

    def __init__(self) -> None:
        self._held = ""
        self._spans: Spans[str] = Spans()

    @property
    def private(self) -> bool:
        return self._spans.private

    def feed(self, text: str) -> list[Found[str]]:
        """What the text settles. Characters that may begin a token wait for the next piece."""
        text = self._held + text
        found: list[Found[str]] = []
        at = 0
        for token in _TOKEN.finditer(text):
            found += self._pieces(text[at : token.start()])
            found += self._spans.token(token.group())
            at = token.end()
        hold = _beginning_of_token(text, at)
        found += self._pieces(text[at:hold])
        self._held = text[hold:]
        return found

    def public(self, text: str) -> str:
        """Only what may be shown and spoken of the next piece."""
        return public_text(self.feed(text))

    def end(self, whole: bool) -> list[Found[str]]:
        """The output is over; `whole`: by its own end, which closes an open span, else it was cut off."""
        held, self._held = self._held, ""
        found = self._pieces(held)
        return found + (self._spans.token(TURN_END) if whole else self._spans.cut())

    def _pieces(self, text: str) -> list[Found[str]]:
        if not self._spans.private:
            return [Public(text)] if text else []
        found: list[Found[str]] = []
        for character in text:
            found += self._spans.piece(character)
        return found


class IdSpans:
    """Spans in token ids. `protocol` maps the ids of the twelve protocol tokens to their names."""

    __slots__ = ("_protocol", "_spans")

    def __init__(self, protocol: Mapping[int, str]) -> None:
        self._protocol = dict(protocol)
        self._spans: Spans[int] = Spans()

    @property
    def muted(self) -> bool:
        return self._spans.muted

    def feed(self, ids: Iterable[int]) -> list[Found[int]]:
        found: list[Found[int]] = []
        for id_ in ids:
            token = self._protocol.get(id_)
            found += self._spans.piece(id_) if token is None else self._spans.token(token)
        return found

    def cut(self) -> list[Found[int]]:
        return self._spans.cut()


def public_text(found: Iterable[Found[str]]) -> str:
    return "".join(f.piece for f in found if isinstance(f, Public))


def _beginning_of_token(text: str, start: int) -> int:
    """Where the end of `text` could be the beginning of a token."""
    for at in range(max(start, len(text) - _LONGEST + 1), len(text)):
        if text[at] not in _FIRST_LETTERS:
            continue
        rest = text[at:]
        if any(token.startswith(rest) for token in PROTOCOL_TOKENS):
            return at
    return len(text)


def without_tokens(text: str) -> str:
    """The text without protocol tokens, however they were nested to survive one removal."""
    while True:
        shorter = _TOKEN.sub("", text)
        if shorter == text:
            return text
        text = shorter
