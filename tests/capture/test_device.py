"""The capture device on a whole session: paced and as fast as possible, answered, interrupted, stopped, restarted."""

import random
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from flows import capture
from flows.capture import Device, DeviceOptions
from infra.capture.audiofile import AudioFile
from infra.clock import monotonic_s, sleep_s
from infra.timeline import Timeline, open_timeline
from operators.fold import Applied
from schemas.envelope import Event
from schemas.errors import BadInput, TimelineError, TimelineUnavailable, VenusError
from schemas.record import Lane
from tests.capture.runtime import REPLY, Runtime, decisions, logged
from tests.support.failing import POISON, Poisoned, with_operator

pytestmark = pytest.mark.flow

RATE = 16_000
QUESTION = ((0.5, False), (1.0, True), (1.0, False))
INTERRUPTING = ((0.5, False), (1.0, True), (3.0, False), (1.5, True), (0.5, False))
"""Seconds of quiet and of speech: the second speech falls into the answer to the first."""
MURMURING = ((0.5, False), (1.0, True), (3.0, False), (0.35, True), (0.5, False))


def recording(path: Path, parts: tuple[tuple[float, bool], ...], rate: int = RATE) -> Path:
    """A file with loud noise where somebody speaks."""
    rng = np.random.default_rng(7)
    sound = [rng.standard_normal(round(s * rate)) * (3000 if loud else 10) for s, loud in parts]
    soundfile.write(path, np.concatenate(sound).astype(np.int16), rate)
    return path


def play(
    timeline: Timeline,
    path: Path,
    session: str = "s",
    stop: Callable[[], bool] = lambda: False,
    on_applied: Callable[[Applied], None] = lambda _: None,
    **options: Any,
) -> Device:
    with AudioFile(path) as audio:
        device = Device(timeline, session, audio, DeviceOptions(**options), on_applied)
        try:
            device.run(stop)
        finally:
            if device.fold.ended:
                logged_end(timeline, session)
    return device


def logged_end(timeline: Timeline, session: str) -> None:
    """Wait for the end in the log: a device, which folds the same records, may be done before it is written."""
    until = monotonic_s() + 30
    while not of(timeline, "session.ended", session=session):
        assert monotonic_s() < until, "the end of the session was never written"
        sleep_s(0.01)


def of(timeline: Timeline, *types: str, session: str = "s") -> list[Event]:
    return [e for e in logged(timeline, session) if e.type in types]


def conversation(
    path: Path, seed: int | None, parts: Any = QUESTION, **options: Any
) -> tuple[list[Any], list[Any], int | None, int]:
    """An asap run: decisions, acknowledgements, the close's media time, and the samples sent."""
    rng = random.Random(seed)
    slow = (lambda _: rng.random() * 0.15) if seed is not None else (lambda _: 0.0)
    said = {2: "no, that is not what I meant"} if parts is INTERRUPTING else {2: "mhm"}
    with open_timeline("memory://") as timeline:
        with Runtime(timeline, delay=slow, hears=lambda n: said.get(n, "what is this")):
            play(timeline, recording(path, parts), speed=None, **options)
        acks = [(e.mediatime, e.data) for e in of(timeline, "playback.ack")]
        (closed,) = of(timeline, "session.closed")
        samples = sum(e.data.samples for e in logged(timeline, "s", Lane.MEDIA))
        return decisions(timeline, "s"), acks, closed.mediatime, samples


@pytest.mark.parametrize("parts", [QUESTION, INTERRUPTING, MURMURING])
def test_asap_sessions_depend_neither_on_the_machine_nor_on_the_chunks(
    tmp_path: Path, parts: Any
) -> None:
    reference = conversation(tmp_path / "a.wav", None, parts)
    types = [t for t, _, _ in reference[0]]
    assert types[-1] == "session.ended" and "response.started" in types
    assert ("response.cancelled" in types) == (parts is INTERRUPTING)
    assert ("floor.resumed" in types) == (parts is MURMURING)
    for seed, chunk_ms in ((1, 100.0), (2, 21.3), (3, 1000.0), (4, 0.0)):
        again = conversation(tmp_path / "a.wav", seed, parts, chunk_ms=chunk_ms)
        assert again == reference, f"differs at chunks of {chunk_ms} ms"


def test_an_answer_is_played_and_acknowledged_to_its_end(tmp_path: Path) -> None:
    decided, acks, closed, samples = conversation(tmp_path / "a.wav", None)
    ended = [d for t, _, d in decided if t == "response.ended"]
    assert [e.heard_text for e in ended] == [REPLY]
    played = [a.played_us for _, a in acks]
    assert played == sorted(played) and played[-1] == ended[0].heard_us
    assert acks[-1][1].state == "drained"
    assert closed == samples * 1_000_000 // RATE


def test_c1_d1_nothing_is_played_after_an_interruption(tmp_path: Path) -> None:
    decided, acks, _, _ = conversation(tmp_path / "a.wav", None, INTERRUPTING)
    ((at, cancelled),) = [(m, d) for t, m, d in decided if t == "response.cancelled"]
    of_it = [(m, a) for m, a in acks if a.response == cancelled.response]
    assert of_it[-1][1].state == "cut" and of_it[-1][0] <= at
    assert all(a.played_us <= of_it[-1][1].played_us for _, a in of_it)
    assert cancelled.heard_us <= of_it[-1][1].played_us + 1
    assert REPLY.startswith(cancelled.heard_text) and len(cancelled.heard_text) < len(REPLY)


def test_c11_a_response_begins_to_play_once_though_it_was_paused(tmp_path: Path) -> None:
    decided, acks, _, _ = conversation(tmp_path / "a.wav", None, MURMURING)
    assert [t for t, _, _ in decided].count("response.started") == 1
    states = [a.state for _, a in acks]
    assert states.count("paused") == 1
    held = next(a.played_us for _, a in acks if a.state == "paused")
    assert [a.played_us for _, a in acks].count(held) == 2, "it did not go on at the very sample"
    assert sum(a.played_us == 0 for _, a in acks) == 1


def test_a_paced_session_is_answered_while_the_clock_runs(tmp_path: Path) -> None:
    seen: list[Applied] = []
    with open_timeline("memory://") as timeline, Runtime(timeline, speed=20):
        play(timeline, recording(tmp_path / "a.wav", QUESTION), speed=20.0, on_applied=seen.append)
        types = [e.type for e in logged(timeline, "s")]
        assert types[0] == "session.opened" and "session.ended" in types
        (opened,) = of(timeline, "session.opened")
        assert opened.data.pacing == "live" and opened.data.playback == "acknowledged"
        acks = of(timeline, "playback.ack")
        played = [a.data.played_us for a in acks]
        assert played == sorted(played) and acks[-1].data.state == "drained"
        (ended,) = of(timeline, "response.ended")
        assert ended.data.heard_text == REPLY
        sequences = [e.sequence for e in logged(timeline, "s", Lane.MEDIA)]
        assert sequences == list(range(len(sequences)))
    assert {e.type for a in seen for e in (a.input, *a.decisions)} >= {
        "turn.ended",
        "session.ended",
    }


@pytest.mark.parametrize("speed", [None, 5.0])
def test_a_stopped_device_closes_its_session(tmp_path: Path, speed: float | None) -> None:
    """What Ctrl-C does, here once something has been heard."""
    stop = threading.Event()
    parts = ((0.5, False), (60.0, True))
    with open_timeline("memory://") as timeline, Runtime(timeline, speed=speed or 1):
        on = lambda a: stop.set() if a.input.type == "perception.window" else None  # noqa: E731
        play(
            timeline,
            recording(tmp_path / "a.wav", parts),
            stop=stop.is_set,
            speed=speed,
            on_applied=on,
        )
        assert len(of(timeline, "session.closed")) == 1
        assert len(of(timeline, "session.ended")) == 1


@pytest.mark.parametrize("speed", [None, 5.0])
def test_a_session_that_a_fault_ends_is_left_with_a_line(
    tmp_path: Path,
    speed: float | None,
    monkeypatch: pytest.MonkeyPatch,
    failing_operators: None,
) -> None:
    with_operator(monkeypatch, Poisoned)
    path = recording(tmp_path / "a.wav", (*QUESTION, (60.0, False)))
    with open_timeline("memory://") as timeline:
        with (
            Runtime(timeline, hears=lambda _: POISON, speed=speed or 1),
            pytest.raises(VenusError, match=r"operator capture failed \(ZeroDivisionError\)"),
        ):
            play(timeline, path, speed=speed)
        assert [e.data.reason for e in of(timeline, "session.ended")] == ["fault"]
        assert of(timeline, "session.closed") == []
        sent = sum(e.data.samples for e in logged(timeline, "s", Lane.MEDIA))
        assert speed is None or sent < 30 * RATE, "it went on into a session that is over"


class Dying:
    """A timeline that breaks for whoever uses it when told: to the log, a device that was killed."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline, self.broken = timeline, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timeline, name)

    def append(self, *arguments: Any) -> Any:
        if self.broken:
            raise TimelineError("the device was killed")
        return self._timeline.append(*arguments)


@pytest.mark.parametrize("speed", [None, 10.0])
def test_a_restarted_device_joins_its_session_and_goes_on(
    tmp_path: Path, speed: float | None
) -> None:
    path = recording(tmp_path / "a.wav", QUESTION)
    with open_timeline("memory://") as timeline, Runtime(timeline, speed=speed or 1.0):
        dying = Dying(timeline)

        def kill(applied: Applied) -> None:
            state = getattr(applied.input.data, "state", None)
            dying.broken |= state == "playing" and applied.input.data.played_us > 0

        with pytest.raises(TimelineError, match="killed"):
            play(dying, path, speed=speed, on_applied=kill)
        assert not of(timeline, "session.closed", "session.ended")
        before = [a.data.played_us for a in of(timeline, "playback.ack")]
        second = recording(tmp_path / "b.wav", ((7.0, False), *QUESTION))
        play(timeline, second, speed=speed)
        types = [e.type for e in logged(timeline, "s")]
        assert types.count("session.opened") >= 1 and types.count("device.joined") == 1
        assert types.count("session.closed") == types.count("session.ended") == 1
        acks = of(timeline, "playback.ack")
        first = [a.data.played_us for a in acks if a.data.response == acks[0].data.response]
        assert first[: len(before)] == before and first == sorted(first)
        assert len(first) > len(before) and first[len(before)] >= before[-1]
        assert acks[-1].data.state == "drained"
        assert len(of(timeline, "turn.ended")) == 2 and len(of(timeline, "response.ended")) == 2
        assert not of(timeline, "event.rejected")
        media = [
            (e.source, e.mediatime or 0, e.data.duration_us)
            for e in logged(timeline, "s", Lane.MEDIA)
        ]
        assert len({source for source, _, _ in media}) == 2
        for (_, at, us), (_, then, _) in pairwise(media):
            assert then >= at + us, "the new device's media lies in the old one's"


@pytest.mark.parametrize("speed", [None, 10.0])
def test_a_device_that_is_replaced_leaves_and_says_so(tmp_path: Path, speed: float | None) -> None:
    path = recording(tmp_path / "a.wav", ((0.5, False), (60.0, True)))
    second = recording(tmp_path / "b.wav", ((0.5, False),))
    with open_timeline("memory://") as timeline, Runtime(timeline, speed=speed or 1.0):
        started = threading.Event()
        other = threading.Thread(target=play, args=(timeline, second), kwargs={"speed": speed})

        def join(applied: Applied) -> None:
            if applied.input.type == "perception.window" and not started.is_set():
                started.set()
                other.start()

        with pytest.raises(
            VenusError, match=r"another device has taken over session 's' at \d"
        ) as e:
            play(timeline, path, speed=speed, on_applied=join)
        assert not isinstance(e.value, BadInput) and "\n" not in str(e.value)
        other.join(30)
        assert not other.is_alive()
        (closed,) = of(timeline, "session.closed")
        (joined,) = of(timeline, "device.joined")
        assert closed.source == joined.source, "the one that left has closed the other's session"
        assert len(of(timeline, "session.ended")) == 1


def test_a_session_that_is_over_or_paced_otherwise_is_refused(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", ((0.3, False),))
    with open_timeline("memory://") as timeline, Runtime(timeline):
        play(timeline, path, speed=None, tail=0.0)
        with pytest.raises(BadInput, match="is over already"):
            play(timeline, path, speed=None)
        dying = Dying(timeline)
        with pytest.raises(TimelineError):
            play(dying, path, "t", speed=None, on_applied=lambda _: setattr(dying, "broken", True))
        with pytest.raises(BadInput, match="paced asap; join it with --speed max"):
            play(timeline, path, "t", speed=1.0)
        assert not of(timeline, "session.closed", session="t")


def test_an_answer_that_takes_long_changes_nothing_in_an_asap_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that waits is not one that is gone: no tick moves time on before its acknowledgement."""
    monkeypatch.setattr(capture, "HEARTBEAT_S", 0.05)
    reference = conversation(tmp_path / "a.wav", None)
    with open_timeline("memory://") as timeline:
        # The runtime's clock runs twenty times faster: each answer takes 24 s, more than twice what makes ticks come.
        with Runtime(timeline, delay=lambda _: 1.2, hears=lambda _: "what is this", speed=20):
            play(timeline, recording(tmp_path / "a.wav", QUESTION), speed=None)
        (closed,) = of(timeline, "session.closed")
        ticks = [
            e for e in of(timeline, "clock.tick") if (e.mediatime or 0) < (closed.mediatime or 0)
        ]
        assert not ticks and decisions(timeline, "s") == reference[0]


def test_a_session_that_nobody_answers_is_closed_with_a_line(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", QUESTION)
    with open_timeline("memory://") as timeline, Runtime(timeline, delay=lambda _: 1e6):
        with pytest.raises(VenusError, match="nobody has answered endpoint"):
            play(timeline, path, speed=None, answered_within_s=0.5)
        assert len(of(timeline, "session.closed")) == 1


def test_a_log_that_is_away_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", QUESTION)
    with open_timeline("memory://") as timeline, Runtime(timeline):
        plain = timeline.append
        failures = iter([True, True] + [False] * 7 + [True])

        class Flaky(Dying):
            def append(self, *arguments: Any) -> Any:
                done = plain(*arguments) if next(failures, False) is False else None
                if done is None:
                    raise TimelineUnavailable("away")
                return done

        play(Flaky(timeline), path, speed=None)
        assert len(of(timeline, "response.ended")) == 1
        assert not of(timeline, "perception.gap", "event.rejected")


def test_without_acknowledgements_the_session_is_assumed_to_be_heard(tmp_path: Path) -> None:
    path = recording(tmp_path / "a.wav", QUESTION)
    with open_timeline("memory://") as timeline, Runtime(timeline):
        play(timeline, path, speed=None, playback="assumed")
        assert not of(timeline, "playback.ack")
        (ended,) = of(timeline, "response.ended")
        assert ended.data.heard_text == REPLY


def test_a_damaged_file_is_played_as_far_as_it_goes(tmp_path: Path) -> None:
    whole, cut = tmp_path / "a.flac", tmp_path / "cut.flac"
    recording(whole, ((0.5, False), (1.0, True), (4.0, False), (5.0, True)))
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    with open_timeline("memory://") as timeline, Runtime(timeline):
        with pytest.raises(BadInput, match="damaged or truncated after"):
            play(timeline, cut, speed=None)
        assert of(timeline, "turn.ended", "response.ended") and of(timeline, "session.ended")
