"""What only the SQLite timeline does: its file, many writers, kill -9, and each way the file can fail."""

import os
import signal
import sqlite3
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.replay import sessions_of
from infra.clock import monotonic_s
from infra.timeline import Place, open_timeline, sqlite_file
from schemas.cloudevents import encode
from schemas.errors import BadInput, TimelineError, TimelineUnavailable
from schemas.record import Lane, Record
from schemas.registry import MODELS
from tests.support.events import events, odd_decisions, odd_windows
from tests.timeline.helpers import by_key, join, numbered, places, plain, start_writer, take

pytestmark = pytest.mark.timeline


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


def _one_line(error: pytest.ExceptionInfo[Exception], path: Path) -> str:
    line = str(error.value)
    assert "\n" not in line and str(path) in line
    return line


def test_offsets_start_at_0_and_have_no_holes(url: str) -> None:
    with open_timeline(url) as timeline:
        positions = timeline.append(numbered("s", 3)) + timeline.append(numbered("t", 2))
    assert [p.offset for p in positions] == [0, 1, 2, 3, 4]


def test_twenty_processes_that_write_at_once_all_succeed(url: str) -> None:
    writers = [start_writer(url, f"s{n}", batches=10, size=3) for n in range(20)]
    for writer in writers:
        join(writer)
    with open_timeline(url, create=False) as timeline:
        stored = list(timeline.scan(Lane.TIMELINE, 0))
    assert [r.offset for r in stored] == list(range(600))
    assert by_key(plain(stored)) == {f"s{n}": numbered(f"s{n}", 30) for n in range(20)}


def test_kill_9_of_a_writer_loses_and_tears_nothing(url: str) -> None:
    with open_timeline(url) as timeline:
        writer = start_writer(url, "s", batches=100_000, size=7)
        take_some = timeline.reader(places(timeline))
        seen = take_some.poll(20)
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        stored = list(timeline.scan(Lane.TIMELINE, 0))
        assert len(stored) >= len(seen) > 0 and len(stored) % 7 == 0
        assert plain(stored) == numbered("s", len(stored))
        timeline.append(numbered("t", 1))


def test_a_full_disk_is_one_line_and_stores_nothing_of_the_batch(url: str, path: Path) -> None:
    with open_timeline(url) as timeline:
        timeline.append(numbered("s", 1))
        # The same error as a full disk gives, at a size that we set.
        timeline._db.execute("PRAGMA max_page_count=20")  # type: ignore[attr-defined]
        with pytest.raises(TimelineError, match="full") as caught:
            timeline.append([*numbered("s", 1, start=1), Record("s", (), b"x" * 500_000)])
        assert not caught.value.retryable
        _one_line(caught, path)
        timeline.append(numbered("s", 1, start=1))
        assert plain(list(timeline.scan(Lane.TIMELINE, 0))) == numbered("s", 2)


def test_a_file_that_another_process_keeps_locked_is_retryable(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LOCK_WAIT_S", 0.2)
    with open_timeline(url) as timeline:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimelineUnavailable, match="locked") as caught:
            timeline.append(numbered("s", 1))
        assert caught.value.retryable
        _one_line(caught, path)
        other.execute("ROLLBACK")
        other.close()
        assert timeline.append(numbered("s", 1))[0].offset == 0


def test_a_lock_that_is_let_go_is_waited_for(url: str, path: Path) -> None:
    with open_timeline(url) as timeline:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        begun = Event()

        def let_go() -> None:
            begun.wait(0.2)
            other.execute("COMMIT")

        helper = Thread(target=let_go)
        helper.start()
        assert timeline.append(numbered("s", 1))[0].offset == 0
        helper.join()
        other.close()


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("content", [b"no database at all, but some text\n" * 100, b"{}"])
def test_a_file_that_is_not_sqlite_is_refused_untouched(
    url: str, path: Path, content: bytes, create: bool
) -> None:
    path.write_bytes(content)
    with pytest.raises(BadInput, match="not an SQLite file") as caught:
        open_timeline(url, create)
    _one_line(caught, path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_untouched(url: str, path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="not a timeline"):
        open_timeline(url)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_timeline_only_when_asked(url: str, path: Path) -> None:
    path.touch()
    with pytest.raises(TimelineError, match="holds no timeline"):
        open_timeline(url, create=False)
    assert path.read_bytes() == b""
    open_timeline(url).close()
    open_timeline(url, create=False).close()


def test_a_layout_of_the_future_is_refused(url: str, path: Path) -> None:
    open_timeline(url).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(BadInput, match="layout version 99"):
        open_timeline(url)


def test_a_damaged_file_is_one_line(url: str, path: Path) -> None:
    with open_timeline(url) as timeline:
        timeline.append([Record("s", (), b"x" * 2000)] * 200)
    with path.open("r+b") as file:
        for page in range(8, 60):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    with open_timeline(url) as timeline, pytest.raises(TimelineError) as caught:
        list(timeline.scan(Lane.TIMELINE, 0))
    assert "damaged" in _one_line(caught, path)


@pytest.mark.parametrize("replace", [False, True])
def test_a_file_deleted_while_open_is_noticed_by_writer_and_reader(
    url: str, path: Path, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.timeline.sqlite._STILL_THERE_S", 0.05)
    with open_timeline(url) as timeline:
        timeline.append(numbered("s", 1))
        reader = timeline.reader({Place(Lane.TIMELINE, 0): 1})
        path.rename(path.with_suffix(".gone"))
        if replace:
            path.with_name("log.db-wal").unlink()
            open_timeline(url).close()
        says = "was replaced" if replace else "was deleted or moved"
        with pytest.raises(TimelineError, match=says):
            timeline.append(numbered("s", 1))
        with pytest.raises(TimelineError, match=says):
            reader.poll(10)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TimelineError, match="cannot make") as caught:
        open_timeline(f"sqlite:///{tmp_path}/file/log.db")
    assert "\n" not in str(caught.value)


def test_what_other_programs_put_in_is_read_without_failing(url: str, path: Path) -> None:
    with open_timeline(url) as timeline:
        with sqlite3.connect(path) as db:
            rows = [(None, b"", b"v"), ("k", b"\0broken", "text"), (b"\xff", "n\0\0", 7)]
            db.executemany(
                "INSERT INTO timeline (session, headers, value, appended_us) VALUES (?,?,?,1)", rows
            )
        db.close()
        stored = list(timeline.scan(Lane.TIMELINE, 0))
    assert [(r.key, r.headers, r.value) for r in stored] == [
        (None, (), b"v"),
        ("k", (), b"text"),
        (None, (("n", b""),), b"7"),
    ]


def test_a_waiting_reader_uses_next_to_no_cpu(url: str) -> None:
    import time

    with open_timeline(url) as timeline:
        reader = timeline.reader(places(timeline, *Lane))
        reader.poll(0.05)
        started, used = monotonic_s(), time.thread_time()
        reader.poll(1.0)
        assert (time.thread_time() - used) / (monotonic_s() - started) < 0.02


def test_where_there_is_no_inotify_a_reader_still_follows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.timeline.wal_watch.sys.platform", "other")
    with open_timeline(url) as timeline:
        reader = timeline.reader(places(timeline))
        writer = Thread(target=lambda: timeline.append(numbered("s", 1)))
        writer.start()
        assert plain(take(reader, 1)) == numbered("s", 1)
        writer.join()


def test_synchronous_full_forces_every_commit(url: str) -> None:
    with open_timeline(url + "?synchronous=full") as timeline:
        assert timeline._db.execute("PRAGMA synchronous").fetchone() == (2,)  # type: ignore[attr-defined]
        timeline.append(numbered("s", 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.sampled_from(sorted(MODELS)).flatmap(events), max_size=6), st.data())
def test_events_are_those_of_the_records(tmp_path: Path, found: list[Any], data: Any) -> None:
    """The fast way and `decode` of `scan` are one: also of what cannot be read and of what others put into the file."""
    path = tmp_path / f"{uuid4().hex}.db"
    with open_timeline(f"sqlite:///{path}") as timeline:
        good = [encode(event._replace(session=session)) for event in found for session in "st"]
        bad = [
            data.draw(st.sampled_from(good))._replace(**data.draw(st.sampled_from(SPOILT)))
            for _ in range(3 if good else 0)
        ]
        timeline.append(data.draw(st.permutations(good + bad)))
        timeline.append([*odd_windows("s"), *odd_decisions("s")])
        other = sqlite3.connect(path)
        end = timeline.end()[0]
        for row in (("s", b"no headers", b"{}"), (None, b"", b""), ("s", "text", "text")):
            other.execute("INSERT INTO timeline VALUES (?, ?, ?, ?, 0)", (end, *row))
            end += 1
        other.commit()
        other.close()
        for session in (None, "s"):
            slow = [e for _, e in sessions_of(timeline.scan(Lane.TIMELINE, 0, 0, session))]
            assert [*chain.from_iterable(timeline.event_chunks(Lane.TIMELINE, session))] == slow


SPOILT = (
    {"headers": ()},
    {"headers": (("ce_type", b"venus.unknown.v1"), ("ce_specversion", b"1.0"))},
    {"headers": (("ce_\0", b"\0"),)},
    {"value": b"{"},
    {"value": b""},
)
