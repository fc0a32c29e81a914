"""The inference flow: the model calls that the log asks for.

    timeline + media lane + finished outcomes ─► one step (`InferenceStep`) ─► timeline

Rules:
- The step never waits: it hands requests to `EffectRunner` and takes what came of them from its
  outbox (`extra`). Which outcomes a request gets is decided by `EffectDesk` alone, in the step.
- Media is not looked at before a request names samples (`AudioStore`).
- A start scans the timeline: requests that never began are taken up, the others end
  (`EffectDesk.resume`), and the media of the sessions that are open is read again.

One worker a process: the loop does the concurrency, and a request's outcomes keep their order on
one path only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event as StopFlag

from flows.audio_store import AudioStore
from flows.effect_flow import Item, build_effect_flow, run_effect_flow
from flows.effect_runner import EffectRunner
from flows.effects import Effect, EffectDesk, Produced, wire_type_of
from flows.model_effects import InferenceSettings, model_effects
from flows.settings import opener
from infra.timeline import Place, Timeline
from infra.triton.client import ModelClient
from schemas.cloudevents import decode, wire_type
from schemas.errors import BadRecord
from schemas.record import Lane, Record, StoredRecord

SOURCE = "inference"

_OPENED = wire_type("session.opened").encode()
_CONFIGURED = wire_type("session.configured").encode()
_CLOSED = wire_type("session.closed").encode()
_ENDED = wire_type("session.ended").encode()

LANES = (Lane.TIMELINE, Lane.MEDIA)


class InferenceStep:
    """The flow without Bytewax: records and results in, outcomes out."""

    def __init__(self, effects: Callable[[AudioStore], Mapping[str, Effect]]) -> None:
        self.runner = EffectRunner("inference")
        self.audio = AudioStore(self.runner.loop)
        # A client of asyncio belongs to the loop that it is opened on.
        made = self.runner.call(self._on_loop(effects))
        self._behind: dict[int, int] = {}
        """Partitions whose media is still read again → the offset up to which."""
        self.desk = EffectDesk(made, self.runner, SOURCE)

    async def _on_loop(
        self, effects: Callable[[AudioStore], Mapping[str, Effect]]
    ) -> Mapping[str, Effect]:
        return effects(self.audio)

    def start(
        self, timeline: Timeline, partitions: Sequence[int]
    ) -> tuple[dict[Place, int], list[Record]]:
        """Take up what the log holds: where to read on, and the outcomes of requests that cannot go
        on.
        """
        offsets: dict[Place, int] = {}
        self.audio.caught_up.clear()
        # Before the scan: a session that the scan does not know has all its media after these ends.
        media_ends = timeline.end(Lane.MEDIA)
        for partition in partitions:
            following, live = self._scan(timeline, partition)
            offsets[Place(Lane.TIMELINE, partition)] = following
            media = self._media_start(timeline, partition, live, media_ends[partition])
            offsets[Place(Lane.MEDIA, partition)] = media
            if media < media_ends[partition]:
                self._behind[partition] = media_ends[partition]
        self._catch_up()
        return offsets, self.desk.resume()

    def extra(self) -> list[Produced]:
        """What the effects have produced since."""
        return self.runner.drain()

    def __call__(self, items: Sequence[Item]) -> list[Record]:
        out: list[Record] = []
        for item in items:
            if isinstance(item, Produced):
                out += self.desk.take(item)
            elif isinstance(item, Record):
                out.append(item)
            elif item.lane is Lane.MEDIA:
                self.audio.add(item)
                if self._behind:
                    self._catch_up(item)
            else:
                out += self.desk.read(item)
                self._follow(item)
        return out

    def close(self) -> None:
        self.runner.close()

    def _catch_up(self, read: StoredRecord | None = None) -> None:
        """Note how far the media lane was read; requests for audio wait until it is all."""
        if read is not None and read.offset + 1 >= self._behind.get(read.partition, 0):
            self._behind.pop(read.partition, None)
        if not self._behind:
            self.runner.loop.call_soon_threadsafe(self.audio.caught_up.set)

    def _scan(self, timeline: Timeline, partition: int) -> tuple[int, set[str]]:
        """The offset after the timeline lane's end, and the sessions that are open there."""
        following = 0
        live: set[str] = set()

        def records() -> Iterator[StoredRecord]:
            nonlocal following
            for record in timeline.scan(Lane.TIMELINE, partition):
                following = record.offset + 1
                change = self._follow(record)
                if change is not None:
                    (live.add if change else live.discard)(record.key or "")
                yield record

        self.desk.restore(records())
        return following, live

    @staticmethod
    def _media_start(timeline: Timeline, partition: int, live: set[str], end: int) -> int:
        if not live:
            return end
        for record in timeline.scan(Lane.MEDIA, partition):
            if record.offset >= end or record.key in live:
                return min(record.offset, end)
        return end

    def _follow(self, record: StoredRecord) -> bool | None:
        """Tell the audio store of sessions that come (True) and go (False)."""
        wire = wire_type_of(record.headers)
        if wire == _ENDED and record.key:
            self.audio.ended(record.key)
            return False
        if wire == _CLOSED and record.key:
            self.audio.closed(record.key)
        if wire == _OPENED:
            return True
        if wire == _CONFIGURED:
            try:
                event = decode(record)
            except BadRecord:
                return None
            self.audio.configured(event.session, event.data.channel)
            return True
        return None


def run_inference(
    timeline_url: str,
    triton_url: str,
    *,
    stop: StopFlag | None = None,
    settings: InferenceSettings | None = None,
    pace_s: float | None = None,
) -> None:
    """Run the flow until `stop` is set."""
    clients: list[ModelClient] = []

    def effects(audio: AudioStore) -> Mapping[str, Effect]:
        clients.append(ModelClient(triton_url))
        return model_effects(clients[0], audio, settings or InferenceSettings())

    step = InferenceStep(effects)
    open_here = opener(timeline_url)
    try:
        run_effect_flow(
            build_effect_flow("inference", LANES, open_here, step, stop or StopFlag(), pace_s)
        )
    finally:
        try:
            step.runner.call(clients[0].close())
        finally:
            step.close()
