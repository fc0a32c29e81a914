"""What the port promises, asked of every timeline alike. `memory://` is the reference."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.clock import monotonic_s, wall_us
from infra.timeline import Place, Timeline, open_timeline
from schemas.errors import BadInput, TimelineError
from schemas.record import Headers, Lane, Record, StoredRecord
from tests.timeline.helpers import (
    by_key,
    join,
    numbered,
    places,
    plain,
    start_writer,
    take,
)

pytestmark = pytest.mark.timeline

LANES = list(Lane)


@pytest.fixture
def timeline(log_url: str) -> Iterator[Timeline]:
    opened = open_timeline(log_url)
    yield opened
    opened.close()


def test_a_new_log_is_empty(timeline: Timeline) -> None:
    for lane in LANES:
        assert timeline.end(lane) == dict.fromkeys(range(timeline.partitions), 0)
        assert list(timeline.scan(lane, 0)) == []
    assert timeline.reader(places(timeline, *LANES)).poll(0) == []


def test_a_batch_is_read_back_in_order_with_rising_offsets(timeline: Timeline) -> None:
    records = numbered("s", 100)
    before = wall_us()
    positions = timeline.append(records)
    partition = timeline.partition_of("s")
    stored = list(timeline.scan(Lane.TIMELINE, partition))
    assert plain(stored) == records
    assert [(r.partition, r.offset) for r in stored] == positions
    assert all(a.offset < b.offset for a, b in pairwise(positions))
    assert timeline.end()[partition] == positions[-1].offset + 1
    # Kafka keeps milliseconds.
    assert all(before - 1000 <= r.appended_us <= wall_us() + 1000 for r in stored)


def test_an_empty_batch_stores_nothing(timeline: Timeline) -> None:
    assert timeline.append([]) == []
    assert set(timeline.end().values()) == {0}


def test_batches_follow_one_another(timeline: Timeline) -> None:
    first, second = timeline.append(numbered("s", 3)), timeline.append(numbered("s", 3, start=3))
    assert first[-1].offset < second[0].offset
    assert plain(list(timeline.scan(Lane.TIMELINE, first[0].partition))) == numbered("s", 6)


def test_positions_come_in_the_order_of_the_records_over_many_partitions(
    timeline: Timeline,
) -> None:
    records = [numbered(f"s{n % 17}", 1, start=n)[0] for n in range(120)]
    positions = timeline.append(records)
    assert [p.partition for p in positions] == [timeline.partition_of(r.key) for r in records]
    assert len({p.partition for p in positions}) == timeline.partitions
    stored = {
        (r.partition, r.offset): r
        for p in range(timeline.partitions)
        for r in timeline.scan(Lane.TIMELINE, p)
    }
    assert plain([stored[position] for position in positions]) == records


def test_big_values_come_back_whole(timeline: Timeline) -> None:
    records = [Record("big", (), bytes([n]) * 900_000) for n in range(3)]
    timeline.append(records, Lane.MEDIA)
    reader = timeline.reader(places(timeline, Lane.MEDIA))
    assert plain(take(reader, 3)) == records


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("a", b""),),
        (("a", b""), ("b", b"")),
        (("a", b"1"), ("a", b"2"), ("a", b"1")),
        (("größe", "日本".encode()), ("x", bytes(range(256)))),
        (("", b"no name"), ("b", b"\0")),
        (("nul\0name", b"1"),),
        (("a", b"\0\0"), ("b", b"")),
    ],
)
def test_headers_are_any_bytes_in_order(timeline: Timeline, headers: Headers) -> None:
    timeline.append([Record("h", headers, b"v")])
    (stored,) = timeline.scan(Lane.TIMELINE, timeline.partition_of("h"))
    assert stored.headers == headers


@pytest.mark.parametrize("key", ["", "ключ", "a/b?c#d e", "x" * 1000])
def test_keys_are_any_text(timeline: Timeline, key: str) -> None:
    timeline.append([Record(key, (), b"")])
    (stored,) = timeline.scan(Lane.TIMELINE, timeline.partition_of(key), session=key)
    assert (stored.key, stored.value) == (key, b"")


def test_a_key_that_is_no_text_is_refused_before_anything_is_stored(timeline: Timeline) -> None:
    with pytest.raises(BadInput, match="record 1 of the batch"):
        timeline.append([Record("good", (), b""), Record("\ud800", (), b"")])
    assert set(timeline.end().values()) == {0}


def test_the_lanes_are_apart_and_one_reader_reads_both(timeline: Timeline) -> None:
    timeline.append(numbered("s", 5))
    timeline.append(numbered("s", 7, start=100), Lane.MEDIA)
    found = take(timeline.reader(places(timeline, *LANES)), 12)
    assert plain([r for r in found if r.lane is Lane.TIMELINE]) == numbered("s", 5)
    assert plain([r for r in found if r.lane is Lane.MEDIA]) == numbered("s", 7, start=100)


def test_scan_takes_one_session_from_a_start(timeline: Timeline) -> None:
    a, b = numbered("a", 10), numbered("b", 10)
    mixed = [record for pair in zip(a, b, strict=True) for record in pair]
    positions = timeline.append(mixed)
    partition = timeline.partition_of("a")
    assert plain(list(timeline.scan(Lane.TIMELINE, partition, session="a"))) == a
    start = positions[10].offset  # the sixth of a
    assert plain(list(timeline.scan(Lane.TIMELINE, partition, start, "a"))) == a[5:]
    assert list(timeline.scan(Lane.TIMELINE, partition, session="nobody")) == []
    end = timeline.end()[partition]
    assert list(timeline.scan(Lane.TIMELINE, partition, end)) == []


def test_scan_stops_at_the_end_as_it_was(timeline: Timeline) -> None:
    partition = timeline.append(numbered("s", 5))[0].partition
    scan = timeline.scan(Lane.TIMELINE, partition)
    timeline.append(numbered("s", 5, start=5))
    assert plain(list(scan)) == numbered("s", 5)


def test_a_reader_wakes_on_an_append(timeline: Timeline) -> None:
    reader = timeline.reader(places(timeline))
    assert reader.poll(0.01) == []
    writer = Thread(target=lambda: timeline.append(numbered("s", 1)))
    started = monotonic_s()
    writer.start()
    assert plain(reader.poll(20)) == numbered("s", 1)
    assert monotonic_s() - started < 5
    writer.join()


def test_a_reader_without_news_returns_after_its_timeout(timeline: Timeline) -> None:
    reader = timeline.reader(places(timeline))
    started = monotonic_s()
    assert reader.poll(0.2) == []
    assert 0.15 < monotonic_s() - started < 2


def test_max_records_bounds_a_poll_and_nothing_is_skipped(timeline: Timeline) -> None:
    timeline.append(numbered("s", 25))
    timeline.append(numbered("s", 25), Lane.MEDIA)
    reader = timeline.reader(places(timeline, *LANES))
    found: list[StoredRecord] = []
    while len(found) < 50:
        some = reader.poll(10, max_records=7)
        assert 1 <= len(some) <= 7
        found += some
    assert plain([r for r in found if r.lane is Lane.TIMELINE]) == numbered("s", 25)
    assert plain([r for r in found if r.lane is Lane.MEDIA]) == numbered("s", 25)


def test_a_reader_goes_on_where_another_stopped(timeline: Timeline) -> None:
    place = Place(Lane.TIMELINE, timeline.partition_of("s"))
    timeline.append(numbered("s", 10))
    first = timeline.reader({place: 0})
    head: list[StoredRecord] = []
    while len(head) < 4:
        head += first.poll(10, max_records=4 - len(head))
    position = first.position(place)
    first.close()
    rest = take(timeline.reader({place: position}), 6)
    assert plain(head + rest) == numbered("s", 10)


def test_a_start_beyond_the_end_is_an_error(timeline: Timeline) -> None:
    timeline.append(numbered("s", 2))
    with pytest.raises(TimelineError, match="ends at"):
        timeline.reader({Place(Lane.TIMELINE, 0): 1000})
    with pytest.raises(BadInput, match="no partition 99"):
        timeline.scan(Lane.TIMELINE, 99)
    with pytest.raises(BadInput, match="at least one place"):
        timeline.reader({})


def test_two_threads_that_write_do_not_mix_their_order(timeline: Timeline) -> None:
    def write(key: str) -> None:
        for n in range(0, 60, 3):
            timeline.append(numbered(key, 3, start=n))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ["a", "b"]))
    found = by_key(plain(take(timeline.reader(places(timeline)), 120)))
    assert found == {"a": numbered("a", 60), "b": numbered("b", 60)}


@pytest.mark.usefixtures("between_processes")
def test_a_reader_sees_each_record_of_four_processes_once(timeline: Timeline, log_url: str) -> None:
    keys = ["a", "b", "c", "d"]
    reader = timeline.reader(places(timeline))
    writers = [start_writer(log_url, key, batches=20, size=10) for key in keys]
    found = take(reader, 800, within_s=45)
    for writer in writers:
        join(writer)
    assert reader.poll(0.1) == []
    assert by_key(plain(found)) == {key: numbered(key, 200) for key in keys}
    assert len({(r.partition, r.offset) for r in found}) == 800


@pytest.mark.usefixtures("between_processes")
def test_a_log_is_there_when_it_is_opened_again(log_url: str) -> None:
    with open_timeline(log_url) as first:
        first.append(numbered("s", 3))
    with open_timeline(log_url, create=False) as second:
        assert plain(list(second.scan(Lane.TIMELINE, second.partition_of("s")))) == numbered("s", 3)


def test_a_log_that_does_not_exist_is_not_made_by_looking(log_url: str) -> None:
    for _ in range(2):
        with pytest.raises(TimelineError) as caught:
            open_timeline(log_url, create=False)
        assert "\n" not in str(caught.value) and log_url.split("?")[0] in str(caught.value)


def test_a_closed_timeline_says_so(timeline: Timeline) -> None:
    timeline.append(numbered("s", 1))
    reader = timeline.reader(places(timeline))
    timeline.close()
    timeline.close()
    for use in (
        lambda: timeline.append(numbered("s", 1)),
        lambda: timeline.end(),
        lambda: timeline.reader({Place(Lane.TIMELINE, 0): 0}),
        lambda: list(timeline.scan(Lane.TIMELINE, 0)),
        lambda: reader.poll(0),
    ):
        with pytest.raises(TimelineError, match="closed"):
            use()
    reader.close()
    reader.close()


def test_a_closed_reader_says_so(timeline: Timeline) -> None:
    reader = timeline.reader(places(timeline))
    reader.close()
    with pytest.raises(TimelineError, match="closed"):
        reader.poll(0)


_keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_headers = st.lists(st.tuples(_keys, st.binary(max_size=12)), max_size=5).map(tuple)
_records = st.builds(Record, _keys, _headers, st.binary(max_size=40))
_batches = st.lists(st.tuples(st.sampled_from(LANES), st.lists(_records, max_size=8)), max_size=5)


def test_any_batches_are_read_back_as_they_were_appended(timeline: Timeline) -> None:
    reader = timeline.reader(places(timeline, *LANES))

    # One log for all examples: each reads on from where the one before it ended.
    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_batches)
    def check(batches: list[tuple[Lane, list[Record]]]) -> None:
        expected: dict[tuple[Lane, int, int], Record] = {}
        for lane, batch in batches:
            for record, position in zip(batch, timeline.append(batch, lane), strict=True):
                expected[lane, *position] = record
        found = take(reader, len(expected))
        assert {
            (r.lane, r.partition, r.offset): p for r, p in zip(found, plain(found), strict=True)
        } == expected
        for place in places(timeline, *LANES):
            offsets = [r.offset for r in found if Place(r.lane, r.partition) == place]
            assert offsets == sorted(offsets)

    check()
