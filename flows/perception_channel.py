"""One channel of a session in perception: what its media became, in order, until it can be appended.

Theory of operation: records become pieces (`operators.window`), pieces become *work*: windows that wait
for the voice activity model, and notes (epochs, gaps) that keep their place between them. Work waits, bounded,
until its session is configured; then windows are taken one a round.

Media time: an epoch's base is the device's media time of its first sample, or the channel's own position
where the device gave none. A source that starts below the session's media time is moved up, and the
offset is noted (law 6). A restart takes the bases from the log.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from operators.window import (
    ChannelAssembler,
    EpochStarted,
    Gap,
    Rejected,
    Samples,
    VadResets,
    Window,
    Windower,
    samples_to_us,
)
from schemas.base import WINDOW_SAMPLES, WINDOW_US
from schemas.envelope import Event
from schemas.perception import PerceptionFormatChanged, PerceptionGap

CONTEXT = 64
STATE = (2, 128)

WAITING_WINDOWS = 30_000_000 // WINDOW_US
"""Windows that wait for `session.opened`: 30 s, about 1 MB."""
WAITING_NOTES = 256
CHANNEL_LAG_US = 2_000_000
"""A further channel's clock may be this far behind the others: devices take turns by the chunk."""

Place = tuple[int, int]
"""(epoch, sample) of a channel; they compare in the order of the media."""


class Pending(NamedTuple):
    """A window that waits for the model. `logged`: its outcome is in the log; only the state is needed."""

    window: Window
    start_us: int
    logged: bool


class Note(NamedTuple):
    """An outcome that needs no model. The channel's name is filled in when it is appended."""

    kind: Literal["format", "gap"]
    fields: dict[str, Any]
    at_us: int
    cause: str | None

    def data(self, channel: str) -> PerceptionFormatChanged | PerceptionGap:
        model = PerceptionFormatChanged if self.kind == "format" else PerceptionGap
        return model(channel=channel, **self.fields)

    def place(self, channel: str) -> tuple[str | int, ...]:
        """What its id is derived from."""
        if self.kind == "format":
            return (channel, self.fields["epoch"])
        return (channel, self.fields["epoch"], self.fields["first_sample"], self.fields["reason"])


@dataclass(slots=True)
class ChannelHistory:
    """What the log holds of a channel when the flow starts."""

    last: Place = (-1, -1)
    """The last window that was appended, or dropped for good."""
    reset: Place = (-1, -1)
    """The last window before which the model's state was reset."""
    failed: bool = False
    """The model did not answer the last window, so the next one is reset."""
    bases: dict[int, int] = field(default_factory=dict)
    """Epoch → media time of its first sample."""

    @property
    def resume(self) -> Place:
        """The first window that the model has to hear again."""
        return (self.last[0], self.last[1] + 1) if self.failed else self.reset


class Channel:
    """See the module. `name` is None for media that names no channel: the session's own."""

    __slots__ = (
        "_assembler",
        "_base_us",
        "_end_us",
        "_history",
        "_offset_us",
        "_windower",
        "context",
        "name",
        "resets",
        "state",
        "windows",
        "work",
    )

    def __init__(self, name: str | None, history: ChannelHistory | None = None) -> None:
        self.name = name
        self._assembler, self._windower = ChannelAssembler(), Windower()
        self._history = history
        self._base_us = self._offset_us = self._end_us = 0
        self.work: deque[Pending | Note] = deque()
        self.windows = 0
        """How many windows there are in `work`."""
        self.resets = VadResets()
        self.context: NDArray[np.float32] = np.zeros(CONTEXT, np.float32)
        self.state: NDArray[np.float32] = np.zeros(STATE, np.float32)

    @property
    def end_us(self) -> int:
        """The media time up to which samples have been assembled."""
        return self._end_us

    def feed(self, event: Event, reached_us: int, others: bool) -> Rejected | None:
        """A `media.audio`. `reached_us` is the session's media time, `others`: it has other channels' media."""
        rejected = None
        for piece in self._assembler.feed(
            event.source, event.id, event.sequence, event.mediatime, event.data
        ):
            if type(piece) is Samples:
                self._samples(piece)
            elif type(piece) is EpochStarted:
                self._begin(piece, reached_us, others, event.id)
            elif type(piece) is Gap:
                at_us = self._base_us + samples_to_us(piece.first_sample)
                self.work.append(Note("gap", piece._asdict(), at_us, event.id))
            elif type(piece) is Rejected:
                rejected = piece
        return rejected

    def finish(self) -> None:
        """The session's media has ended: the filter's tail, and the last window padded."""
        for piece in self._assembler.flush():
            if type(piece) is Samples:
                self._samples(piece)
        self._add(self._windower.finish())

    def keep_waiting(self) -> None:
        """Hold what waits for the session's opening within bounds; note what is dropped."""
        while self.windows > WAITING_WINDOWS:
            self._drop_oldest()
        while len(self.work) - self.windows > WAITING_NOTES:
            note = next(item for item in self.work if type(item) is Note)
            self.work.remove(note)

    def _samples(self, piece: Samples) -> None:
        self._end_us = self._base_us + samples_to_us(piece.first_sample + len(piece.samples))
        self._add(self._windower.feed(piece))

    def _add(self, windows: list[Window]) -> None:
        history = self._history
        for window in windows:
            logged = False
            if history is not None:
                place = (window.epoch, window.first_sample)
                if place <= history.last:
                    if place < history.resume:
                        continue
                    logged = True
                else:
                    self._history = history = None
            start_us = self._base_us + samples_to_us(window.first_sample)
            self.work.append(Pending(window, start_us, logged))
            self.windows += 1

    def _begin(self, piece: EpochStarted, reached_us: int, others: bool, cause: str) -> None:
        self._add(self._windower.finish())
        began = piece.reason in ("first", "source")
        device_us = piece.device_us
        known = self._history.bases.get(piece.epoch) if self._history is not None else None
        if known is not None:
            base = known
        elif not began:
            base = self._end_us
            if device_us is not None:
                base = max(base, device_us + self._offset_us)
        elif device_us is None:
            base = max(self._end_us, reached_us)
        else:
            joins = piece.reason == "first" and others
            lowest = reached_us - CHANNEL_LAG_US if joins else reached_us
            base = device_us if device_us >= lowest else reached_us
        self._base_us = self._end_us = base
        fields = piece._asdict()
        del fields["device_us"], fields["reason"]
        self.work.append(Note("format", fields, base, cause))
        if began:
            self._offset_us = 0 if device_us is None else base - device_us
            if self._offset_us:
                moved = Gap(piece.epoch, 0, "lost", 0, False)._asdict()
                moved |= {"reason": "device_restarted", "offset_us": self._offset_us}
                self.work.append(Note("gap", moved, base, cause))

    def _drop_oldest(self) -> None:
        """Drop the oldest window; one note stands for all that were dropped in a row."""
        at = next(i for i, item in enumerate(self.work) if type(item) is Pending)
        dropped = self.work[at]
        assert isinstance(dropped, Pending)
        epoch, first = dropped.window.epoch, dropped.window.first_sample
        missing = samples_to_us(WINDOW_SAMPLES)
        self.windows -= 1
        before = self.work[at - 1] if at else None
        if isinstance(before, Note) and (before.fields.get("reason"), before.fields["epoch"]) == (
            "buffer_full",
            epoch,
        ):
            before.fields["missing_us"] += missing
            del self.work[at]
            return
        gap = Gap(epoch, first, "lost", missing, False)._asdict() | {"reason": "buffer_full"}
        self.work[at] = Note("gap", gap, dropped.start_us, None)
