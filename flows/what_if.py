"""What would have happened under another policy: the recorded decisions beside those that follow with it.

`flows.counterfactual` gives the decisions; here the two sides are aligned: within an operator and type, by the nearest media time, not by
ids, since a changed decision has another id. The recorded user goes on as recorded. That holds until the first changed decision that
the user could have noticed (the assistant begins, pauses, goes on or stops); what follows is marked as no longer to be trusted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from flows.counterfactual import take_apart, under
from flows.live_view import clock
from flows.looking import essence, shown
from flows.replay import all_records, sessions_of
from infra.timeline.port import Timeline
from schemas.envelope import Event
from schemas.errors import BadInput

PERCEIVED = frozenset(
    {"response.started", "response.cancelled", "response.failed", "floor.paused", "floor.resumed"}
)
"""Decisions that a user hears the effect of."""

NAMES = frozenset(
    {
        "turn",
        "response",
        "overlap",
        "request",
        "work",
        "works",
        "delegate",
        "delivery",
        "epoch",
        "corrects",
        "continues",
    }
)
"""Fields that name things by their count: one more response renames all after it, which is no change of theirs."""

REACH_US = 5_000_000
"""Farther apart, two decisions are two events, not one that moved."""

CELLS = 4_000_000
SHOWN = 28
"""Rows of a comparison: with what is above and below them, it fits a screen of 40 lines."""
SHORT = 40
"""Characters of a value."""

State = Literal["same", "moved", "changed", "gone", "new"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A decision as recorded and as it would be; either is None where it has no counterpart."""

    recorded: Event | None
    derived: Event | None
    state: State
    fields: tuple[tuple[str, Any, Any], ...] = ()
    """(field, recorded value, derived value)."""

    @property
    def at(self) -> int:
        """Where both timelines part, if they do here."""
        return min(e.mediatime or 0 for e in (self.recorded, self.derived) if e is not None)

    @property
    def either(self) -> Event:
        event = self.derived if self.derived is not None else self.recorded
        assert event is not None
        return event

    @property
    def operator(self) -> str:
        return self.either.source.rpartition("/")[2]


@dataclass(slots=True)
class WhatIf:
    """Both sides of one session, in the order of media time."""

    session: str
    pairs: list[Pair] = field(default_factory=list)
    unanswered: list[Event] = field(default_factory=list)
    recorded: list[Event] = field(default_factory=list)
    derived: list[Event] = field(default_factory=list)
    configured: bool = True
    """Whether its policy could be read; without it there is nothing to compare."""

    @property
    def changed(self) -> list[Pair]:
        return [p for p in self.pairs if p.state != "same"]

    @property
    def trusted_until(self) -> int | None:
        """The media time of the first change that the user would have noticed."""
        return next((p.at for p in self.changed if p.either.type in PERCEIVED), None)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Type → how many there were, how many there would be; only where they differ."""
        a, b = Counter(e.type for e in self.recorded), Counter(e.type for e in self.derived)
        return {
            name: (a[name], b[name]) for name in sorted(a.keys() | b.keys()) if a[name] != b[name]
        }


def contents(event: Event) -> dict[str, Any]:
    """The data of a decision, flat (`messages.0.content`), without the names that only count."""
    found: dict[str, Any] = {}
    for name, value in shown(event).items():
        if name not in NAMES:
            _flatten(name, value, found)
    return found


def _flatten(name: str, value: Any, into: dict[str, Any]) -> None:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else None
    )
    if items is None:
        into[name] = value
        return
    for key, inner in items:
        _flatten(f"{name}.{key}", inner, into)


def compare(recorded: Event, derived: Event) -> Pair:
    a, b = contents(recorded), contents(derived)
    fields = tuple((k, a.get(k), b.get(k)) for k in {**a, **b} if a.get(k) != b.get(k))
    moved = recorded.mediatime != derived.mediatime
    state: State = "changed" if fields else "moved" if moved else "same"
    return Pair(recorded, derived, state, fields)


def align(recorded: Iterable[Event], derived: Iterable[Event]) -> list[Pair]:
    """Pair the decisions of both sides, in the order of media time."""
    groups: dict[tuple[str, str], tuple[list[Event], list[Event]]] = {}
    for side, events in enumerate((recorded, derived)):
        for event in events:
            groups.setdefault((event.source, event.type), ([], []))[side].append(event)
    pairs: list[Pair] = []
    for a, b in groups.values():
        for left, right in _nearest(a, b):
            if left is not None and right is not None:
                pairs.append(compare(left, right))
            else:
                pairs.append(Pair(left, right, "gone" if right is None else "new"))
    return sorted(pairs, key=lambda p: (p.at, p.either.mediatime or 0))


def _nearest(a: Sequence[Event], b: Sequence[Event]) -> list[tuple[Event | None, Event | None]]:
    """In-order pairs with the least sum of distances in time; what is left over costs half the reach."""
    if len(a) * len(b) > CELLS:
        both = min(len(a), len(b))
        rest: list[tuple[Event | None, Event | None]] = [(x, None) for x in a[both:]]
        return [*zip(a, b, strict=False), *rest, *((None, y) for y in b[both:])]
    alone = REACH_US // 2
    rows = [[j * alone for j in range(len(b) + 1)]]
    texts_a, texts_b = [contents(x) for x in a], [contents(y) for y in b]
    for i, x in enumerate(a):
        above, row = rows[-1], [(i + 1) * alone]
        for j, y in enumerate(b):
            apart = abs((x.mediatime or 0) - (y.mediatime or 0))
            unlike = 0 if texts_a[i] == texts_b[j] else 1000
            together = above[j] + apart + unlike if apart <= REACH_US else 1 << 60
            row.append(min(together, above[j + 1] + alone, row[j] + alone))
        rows.append(row)
    out: list[tuple[Event | None, Event | None]] = []
    i, j = len(a), len(b)
    while i or j:
        if i and rows[i][j] == rows[i - 1][j] + alone:
            i -= 1
            out.append((a[i], None))
        elif j and rows[i][j] == rows[i][j - 1] + alone:
            j -= 1
            out.append((None, b[j]))
        else:
            i, j = i - 1, j - 1
            out.append((a[i], b[j]))
    return out[::-1]


def what_if(timeline: Timeline, session: str | None, changes: dict[str, str]) -> list[WhatIf]:
    """Replay the sessions of a timeline under a changed policy.

    Raises:
        BadInput: no such session, no such policy key.
    """
    events: dict[str, list[Event]] = {}
    for name, event in sessions_of(all_records(timeline, session)):
        events.setdefault(name, []).append(event)
    if session is not None and not events:
        raise BadInput(
            f"no session {session!r} on {timeline.url}; `venus sessions` lists what is there"
        )
    if not events:
        raise BadInput(f"{timeline.url}: there is no session in it")
    return [what_if_one(name, found, changes) for name, found in events.items()]


def what_if_one(session: str, events: Iterable[Event], changes: dict[str, str]) -> WhatIf:
    """One session under a changed policy."""
    rec = take_apart(session, events)
    outcome = under(rec, lambda policy: policy.with_changes(dict(changes)))
    pairs = align(rec.decisions, outcome.decisions)
    return WhatIf(
        session, pairs, outcome.unanswered, rec.decisions, outcome.decisions, rec.configured
    )


# --- for people, and as JSON


def explain_what_if(result: WhatIf, console: Console, limit: int = SHOWN) -> None:
    """First divergence, both sides in rows, what changed downstream, and from where the recorded user cannot be trusted."""
    changed = result.changed
    states = Counter(p.state for p in changed)
    detail = ", ".join(f"{n} {state}" for state, n in states.items())
    console.print(
        Text(result.session, style="bold"),
        f": {len(changed)} of {len(result.pairs)} decisions change",
        f" ({detail})" if detail else "",
        sep="",
        markup=False,
    )
    if not changed:
        return
    first = changed[0]
    _wrapped(
        f"first divergence at {clock(first.at)}: operator {first.operator}, {_what(first)}", console
    )
    rows(result, console, limit)
    counts = result.counts()
    if counts:
        told = ", ".join(f"{name} {a} → {b}" for name, (a, b) in counts.items())
        _wrapped(f"in all: {told}", console)
    if result.unanswered:
        console.print(
            f"  {len(result.unanswered)} requests would have been made for which the recording has no answer"
        )


def rows(result: WhatIf, console: Console, limit: int) -> None:
    """Both sides of the first changes, and the line behind which the user would have noticed."""
    changed, told = result.changed, result.trusted_until
    width = max(30, min(76, (console.width - 8) // 2))
    for pair in changed[:limit]:
        if told is not None and pair.at >= told:
            line = "── from here on the user would have noticed; what the recording says they did next cannot be trusted"
            console.print(Text(f"  {line}"[: console.width], style="yellow"))
            told = None
        mark = {"moved": "~", "changed": "≠", "gone": "-", "new": "+"}[pair.state]
        row = Text(f"  {mark} ", style="bold")
        row.append(
            f"{_cell(pair.recorded, width):<{width}}", style="red" if pair.state == "gone" else ""
        )
        row.append(" │ ")
        row.append(_other(pair, width), style="green" if pair.state == "new" else "")
        console.print(row)
    if len(changed) > limit:
        rest = " (--json has them all)" if limit == SHOWN else ""
        console.print(f"  … and {len(changed) - limit} more{rest}")


def _wrapped(text: str, console: Console) -> None:
    lines = wrap(text, console.width, initial_indent="  ", subsequent_indent="    ")
    console.print(Text("\n".join(lines)))


def _what(pair: Pair) -> str:
    event = pair.either
    if pair.recorded is None or pair.derived is None:
        return f"{event.type} would {'be new' if pair.recorded is None else 'not come'}"
    parts = [_later(pair)] if pair.recorded.mediatime != pair.derived.mediatime else []
    parts += [_change(*change) for change in pair.fields[:3]]
    return f"{event.type} {', '.join(parts)}"


def _later(pair: Pair) -> str:
    assert pair.recorded is not None and pair.derived is not None
    later = ((pair.derived.mediatime or 0) - (pair.recorded.mediatime or 0)) / 1e6
    return f"{abs(later):.3f} s {'later' if later > 0 else 'earlier'}"


def _change(name: str, a: object, b: object, room: int = 2 * SHORT) -> str:
    if name.endswith("_us"):
        name, a, b = name.removesuffix("_us"), _seconds(a), _seconds(b)
    return f"{name}: {change(str(a), str(b), room)}"


def _seconds(us: object) -> object:
    return f"{us / 1e6:.3f} s" if isinstance(us, int) else us


def change(x: str, y: str, room: int = 2 * SHORT) -> str:
    """What changes, in about so many characters; of long texts the part from their first difference on."""
    most = max(8, room // 2)
    same = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), 0)
    skip = max(0, same - 8) if max(len(x), len(y)) > most else 0
    return f"{_short(x, skip, most)} → {_short(y, skip, most)}"


def _short(text: str, skip: int, most: int) -> str:
    text = ("…" if skip else "") + text[skip:]
    return text if len(text) <= most else text[: most - 1] + "…"


def _cell(event: Event | None, width: int) -> str:
    if event is None:
        return "—"
    return f"{clock(event.mediatime or 0):>7} {event.type:<19} {essence(event, width - 28)}"[:width]


def _other(pair: Pair, width: int) -> str:
    """The second cell: what is new as it is, else only what is not as recorded."""
    if pair.recorded is None or pair.derived is None:
        return _cell(pair.derived, width)
    parts = [f"{clock(pair.derived.mediatime or 0):>7}"]
    if pair.recorded.mediatime != pair.derived.mediatime:
        parts.append(_later(pair))
    if pair.fields:
        name, a, b = pair.fields[0]
        parts.append(_change(name, a, b, width - len(name) - 6 - len(" ".join(parts))))
    return " ".join(parts)[:width]


def what_if_json(result: WhatIf) -> dict[str, Any]:
    """One object a session."""
    return {
        "session": result.session,
        "decisions": len(result.pairs),
        "changed": [
            {
                "state": p.state,
                "operator": p.operator,
                "fields": [[n, a, b] for n, a, b in p.fields],
                "recorded": _row(p.recorded),
                "derived": _row(p.derived),
            }
            for p in result.changed
        ],
        "counts": {name: list(pair) for name, pair in result.counts().items()},
        "trusted_until_us": result.trusted_until,
        "unanswered": [_row(e) for e in result.unanswered],
    }


def _row(event: Event | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {"type": event.type, "mediatime": event.mediatime, "data": shown(event)}
