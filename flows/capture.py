"""A capture device that plays a file to the assistant and hears its answers.

    file ──► media lane            timeline ──► shared fold ──► virtual loudspeaker ──► playback.ack

The device follows its session through the shared fold, like every reader. Paced (`live`), its clock is the number of samples it has sent;
as fast as possible (`asap`), its clock is the media time that the fold has applied: the fold stops at the next acknowledgement that is due,
the device gives it with that very time, and the fold goes on. After the file the microphone goes on in silence until nothing is open and
`tail` has passed; in an asap session all of that is counted in applied media time, so that its end does not depend on the machine.

A device that starts on a session that is open joins it and takes the place of the one before (`flows.succession`): its media goes on
behind what that one has sent, and that one, if it is still there, leaves. Whatever else ends the device, it tries to close its session;
one that was killed leaves that to a successor, or to `session.abandoned_after`.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flows.succession import Succession, media_end_us
from infra.capture.audiofile import AudioFile
from infra.capture.loudspeaker import Loudspeaker
from infra.capture.room import Echo, Room
from infra.clock import monotonic_s, sleep_s, wall_us
from infra.timeline.port import Place, Timeline
from operators.fold import Applied, SessionFold
from operators.lifecycle import Lifecycle
from operators.playout import Ack
from schemas.base import Data
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.errors import BadInput, BadRecord, TimelineUnavailable, VenusError
from schemas.ids import observation_id
from schemas.media import PlaybackAck
from schemas.policy import Pacing
from schemas.record import Lane, Record, StoredRecord
from schemas.session import DeviceJoined, Playback, SessionClosed, SessionOpened

S = 1_000_000
LEAD_US = S
"""asap: silence is sent this far ahead of what has been applied."""
FILE_LEAD_US = 60 * S
"""asap: the file is sent at most this far ahead."""
SILENCE_MS = 100
BEHIND_S = 0.02
"""Longest wait for records, so that acknowledgements are not late."""
HEARTBEAT_S = 4.0
"""asap: so often a device that waits for an answer says its last word again (a repeat, which changes nothing), lest it be missed."""
RETRY_S = 0.2
CONFIGURED_WITHIN_S = 15.0


@dataclass(slots=True)
class DeviceOptions:
    """How the device behaves. Times in seconds of media time unless said otherwise."""

    speed: float | None = 1.0
    """None: as fast as possible."""
    chunk_ms: float = 100.0
    playback: Playback = "acknowledged"
    policy: dict[str, Any] = field(default_factory=dict)
    language: str = "en"
    tail: float = 2.0
    max_wait: float = 30.0
    configured_within_s: float = field(default_factory=lambda: CONFIGURED_WITHIN_S)
    """Wall time; beyond it nobody serves the timeline."""
    ended_within_s: float = 60.0
    """Wall time without anything new after the close."""
    answered_within_s: float = 180.0
    """asap: wall time for which the session may stand still."""
    reachable_within_s: float = 30.0
    """Wall time for which the timeline may be away."""
    echo: Echo | None = None
    """How the loudspeaker is heard by the microphone; not at all by default. In a live session only."""

    @property
    def pacing(self) -> Pacing:
        return "asap" if self.speed is None else "live"


class Device:
    """One run of the device on a session. `on_applied` sees what happens in causal order."""

    def __init__(
        self,
        timeline: Timeline,
        session: str,
        audio: AudioFile,
        options: DeviceOptions,
        on_applied: Callable[[Applied], None] = lambda _: None,
    ) -> None:
        self.timeline, self.session, self.audio, self.options = timeline, session, audio, options
        self._on_applied = on_applied
        self.fold = SessionFold(session)
        self._open = Lifecycle().initial(session)
        if options.echo is not None and options.speed is None:
            raise BadInput(
                "--echo with --speed max: sound is sent before it is decided what is played"
            )
        self._room = None if options.echo is None else Room(options.echo, audio.rate)
        self._loudspeaker = Loudspeaker(self._room)
        # New at every start, so that the numbers of a restarted device are not taken for repeats (law 4).
        self._source = f"capture/{wall_us():x}"
        self._succession = Succession(self._source)
        self._sequence = {Lane.TIMELINE: 0, Lane.MEDIA: 0}
        self._sent = 0
        """Samples per channel that have been sent."""
        self._file_end_us: int | None = None
        self._idle_since = 0
        self._close_at: int | None = None
        self._begun = 0.0
        self._offset = 0
        """Where this device's clock stands in the session's, for one that joins later."""
        self._said: Record | None = None
        """The last record for the timeline lane, and when a record was last appended."""
        self._said_s = 0.0
        self._closed = False
        self._progress = (0, 0)
        self._progress_s = 0.0

    # --- the session's side

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Play the file and stay until the session has ended.

        Raises:
            BadInput: the session is over already; or the file is damaged (after what could be read was played).
            VenusError: nobody serves the timeline; or the session has ended over a fault of the program.
        """
        place = Place(Lane.TIMELINE, self.timeline.partition_of(self.session))
        start = self.timeline.end()[place.partition]
        for record in self.timeline.scan(place.lane, place.partition, 0, self.session):
            if record.offset < start:
                self._take(record)
        if self.fold.ended or self._open.closed_at is not None:
            raise BadInput(f"session {self.session!r} is over already; choose another --session")
        opened = self.fold.opened
        if opened is not None and opened.data.pacing != self.options.pacing:
            asap = opened.data.pacing == "asap"
            raise BadInput(
                f"session {self.session!r} is open and paced {opened.data.pacing}; "
                f"join it with --speed {'max' if asap else '1'}, or choose another --session"
            )
        self._reader = self.timeline.reader({place: start})
        try:
            self._hello(stop)
            damage = self._play(lambda: stop() or self.fold.ended)
            self._goodbye()
        except BaseException:
            self._abandon()
            raise
        finally:
            self._reader.close()
        if damage is not None:
            raise damage
        fault = self.fold.fault
        if fault is not None:
            raise VenusError(
                f"session {self.session} has ended: operator {fault.operator} failed ({type(fault.__cause__).__name__}), "
                f"a fault of the program; `venus replay --session {self.session}` shows where"
            )

    def _hello(self, stop: Callable[[], bool]) -> None:
        options = self.options
        joins = self.fold.opened is not None
        if joins:
            self._offset = media_end_us(self.timeline, self.session, self.fold.now)
            self._observe(DeviceJoined(device="file", playback=options.playback), self._offset)
        else:
            opened = SessionOpened(
                device="file",
                pacing=options.pacing,
                playback=options.playback,
                language=options.language,
                policy=options.policy,
            )
            self._observe(opened, 0)
        until = monotonic_s() + options.configured_within_s
        while self.fold.config is None and not stop():
            if monotonic_s() > until:
                raise VenusError(
                    f"nobody answers on {self.timeline.url}: "
                    f"is `venus run --timeline {self.timeline.url}` running?"
                )
            self._listen(0.1)
        self._begun = monotonic_s()
        if joins and options.pacing == "live":
            self._loudspeaker.take_over(self._clock)

    def _abandon(self) -> None:
        """Close the session if the timeline still takes it, whatever went wrong."""
        if self._succession.replaced:
            return  # it is the other's to close
        if self._said is not None and self._open.closed_at is None and not self._closed:
            with contextlib.suppress(VenusError):
                self._close()

    def _play(self, stop: Callable[[], bool]) -> BadInput | None:
        damage: BadInput | None = None
        try:
            for pcm in self.audio.chunks(self.options.chunk_ms):
                self._wait_turn(pcm, stop)
                if stop():
                    break
                self._send(pcm)
        except BadInput as error:
            damage = error
        if self._file_end_us is None:
            self._file_end_us = self.sent_us
        silence = Pcm(
            self.audio.rate,
            self.audio.channels,
            bytes(2 * self.audio.channels * self._silence_samples),
        )
        longest = self._file_end_us + round(self.options.max_wait * S)
        while self._close_at is None and not stop():
            if self.options.speed is not None and self.sent_us >= longest:
                break  # even if nobody listens
            self._wait_turn(silence, stop)
            if self._close_at is None:
                self._send(silence)
        if self.options.pacing == "asap" and self._close_at is not None:
            while self.sent_us < self._close_at + LEAD_US:
                self._send(silence)
        return damage

    def _close(self) -> None:
        self._closed = True
        self._observe(SessionClosed(), self.sent_us)

    def _goodbye(self) -> None:
        if not self.fold.ended:
            self._close()
        last, quiet = self.fold.held, monotonic_s()
        while not self.fold.ended:
            if self._listen(0.1) or self.fold.held != last:
                last, quiet = self.fold.held, monotonic_s()
            if monotonic_s() - quiet > self.options.ended_within_s:
                raise VenusError(
                    f"session {self.session} was closed but does not end; is `venus run` still running?"
                )

    # --- sound out

    @property
    def _silence_samples(self) -> int:
        return self.audio.rate * SILENCE_MS // 1000

    @property
    def sent_us(self) -> int:
        """Media time of the end of what has been sent."""
        return self._offset + self._sent * S // self.audio.rate

    def _send(self, pcm: Pcm) -> None:
        if self._room is not None:
            self._loudspeaker.sound(self._clock)
            pcm = self._room.mix(pcm, self.sent_us)
        self._append("media.audio", pcm, self.sent_us, Lane.MEDIA)
        self._sent += pcm.samples

    def _wait_turn(self, pcm: Pcm, stop: Callable[[], bool]) -> None:
        """Follow the session until the next piece of sound may be sent."""
        if self.options.speed is None:
            lead = FILE_LEAD_US if self._file_end_us is None else LEAD_US
            self._listen(0.0)
            self._progress_s = monotonic_s()
            while self.sent_us >= self.fold.now + lead and self._close_at is None and not stop():
                self._listen(0.05)
                self._check_progress()
            return
        sent_us = self.sent_us - self._offset
        due = self._begun + (sent_us + pcm.duration_us) / S / self.options.speed
        while (left := due - monotonic_s()) > 0 and not stop():
            self._listen(min(left, BEHIND_S))
        self._listen(0.0)

    def _check_progress(self) -> None:
        """Show that the device is there while it waits, and notice when nobody will ever answer."""
        now = monotonic_s()
        progress = (self.fold.now, self.fold.held)
        if progress != self._progress:
            self._progress, self._progress_s = progress, now
        if now - self._progress_s > self.options.answered_within_s:
            kinds = sorted({request.kind for request in self.fold.requests.values()})
            raise VenusError(
                f"session {self.session} stands still at {self.fold.now / S:.1f} s: nobody has answered "
                f"{' and '.join(kinds) or 'its media'}; are all flows of `venus run` running?"
            )
        if now - self._said_s > HEARTBEAT_S and self._said is not None:
            self._store(self._said, Lane.TIMELINE)

    # --- what happens

    @property
    def _clock(self) -> int:
        """The loudspeaker's media time."""
        if self.options.speed is None:
            return self.fold.now
        return self._offset + round((monotonic_s() - self._begun) * self.options.speed * S)

    def _listen(self, timeout_s: float) -> int:
        """Take what has been appended and acknowledge what is due; returns the number of records."""
        records = self._reader.poll(timeout_s)
        for record in records:
            if record.key == self.session:
                self._take(record)
        self._acknowledge()
        return len(records)

    def _take(self, record: StoredRecord) -> None:
        try:
            event = decode(record)
        except BadRecord:
            return
        self._succession.follow(event)
        # Of a session that is over, everything is late.
        if self._succession.replaced and not self._closed and not self.fold.ended:
            raise VenusError(
                f"another device has taken over session {self.session!r} at {self.sent_us / S:.1f} s; "
                "this one has left it (a session of its own needs another --session)"
            )
        for applied in self.fold.feed(event):
            if applied.fate == "applied":
                for seen in (applied.input, *applied.decisions):
                    self._see(seen)
            self._on_applied(applied)

    def _see(self, event: Event) -> None:
        at = event.mediatime if event.mediatime is not None else self.fold.now
        # Before it begins, a device sees what was there before it, which happened when the log says.
        own_clock = self.options.speed is not None and self._begun > 0.0
        if event.type != "playback.ack":
            self._loudspeaker.follow(event, self._clock if own_clock else at)
        elif not event.source.startswith(self._source):
            data = event.data
            self._loudspeaker.acknowledge(data.response, Ack(at, data.played_us, data.state))
        Lifecycle().step(self._open, event, at)
        if self._open.open:
            self._idle_since = at
        if (
            event.type == "perception.window"
            and self._file_end_us is not None
            and self._close_at is None
        ):
            tail, longest = round(self.options.tail * S), round(self.options.max_wait * S)
            quiet = not self._open.open and at >= max(self._idle_since, self._file_end_us) + tail
            if quiet or at >= self._file_end_us + longest:
                self._close_at = at

    def _acknowledge(self) -> None:
        if self.options.playback != "acknowledged" or self._begun == 0.0 or self.fold.ended:
            return
        if self.options.speed is not None:
            for response, ack in self._loudspeaker.due(self._clock):
                self._observe(
                    PlaybackAck(response=response, played_us=ack.played_us, state=ack.state),
                    ack.at_us,
                )
            return
        following = self._loudspeaker.next_ack()
        # Nothing that is still to come may change it: the fold waits for this very acknowledgement.
        if following is not None and self.fold.next_due() == following[1].at_us:
            response, ack = following
            self._loudspeaker.acknowledge(response, ack)
            self._observe(
                PlaybackAck(response=response, played_us=ack.played_us, state=ack.state), ack.at_us
            )

    # --- records

    def _observe(self, data: Data, at_us: int | None) -> None:
        self._append(data.TYPE, data, at_us, Lane.TIMELINE)

    def _append(self, type_: str, data: Any, at_us: int | None, lane: Lane) -> None:
        sequence = self._sequence[lane]
        self._sequence[lane] += 1
        source = f"{self._source}/{lane.value}"
        id_ = observation_id(self.session, source, sequence, type_)
        event = Event(type_, self.session, id_, source, data, at_us, sequence=sequence)
        record = encode(event)
        if lane is Lane.TIMELINE:
            self._said = record
        self._store(record, lane)

    def _store(self, record: Record, lane: Lane) -> None:
        until = monotonic_s() + self.options.reachable_within_s
        while True:
            try:
                self.timeline.append([record], lane)
                break
            except TimelineUnavailable:
                # It may have been stored all the same; a repeat is dropped by its number.
                if monotonic_s() > until:
                    raise
                sleep_s(RETRY_S)
        self._said_s = monotonic_s()
