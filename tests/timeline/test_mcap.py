"""Session files: what MCAP tools see, that every record comes back exactly, and every way in which a file can be wrong."""

import json
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from mcap.reader import make_reader

from flows.redact import Pseudonyms
from flows.replay import prove, sessions_of
from flows.session_files import Wishes, export, open_file, sessions_on
from flows.session_import import import_file
from infra.timeline import open_timeline
from infra.timeline.mcap import McapTimeline
from infra.timeline.port import Place
from schemas.errors import BadInput, TimelineError
from schemas.record import Lane, Record
from tests.replay.sessions import memory, talk
from tests.support.events import odd_decisions, odd_windows
from tests.support.sources import ROOT

pytestmark = pytest.mark.timeline

NAMES = ["a/b c", "session-é", "s3"]
ODD = [
    Record(
        "s3",
        (("ce_type", b"venus.from.the.future.v9"), ("content-type", b"application/json")),
        b'{"x": 1.0 }',
    ),
    Record("s3", (("ce_type", b"acme.blob"), ("ce_id", b"\xff\x00")), b"\x00\x01raw"),
    Record("s3", (("twice", b"1"), ("twice", b"2")), b""),
    Record("s3", (("ce_type", b"acme.text"), ("note", b',"data":')), b'{"data":",\\"data\\":"}'),
    Record("s3", (("ce_type", b"acme.text"), ("data", b"x")), b'{"data":1}'),
    Record("s3", (("ce_type", b"acme.text"), ("ce_mediatime", b"9" * 5000)), b"{}"),
]


@pytest.fixture(scope="module")
def recorded():
    timeline = memory(*(talk(name, 12).close() for name in NAMES), partitions=4)
    timeline.append([*ODD, *(r for r in odd_windows("s3") if r.key == "s3")])
    timeline.append(ODD, Lane.MEDIA)
    return timeline


def all_of(timeline, lane: Lane):
    return [r for p in range(timeline.partitions) for r in timeline.scan(lane, p)]


def test_every_record_comes_back_exactly(recorded, tmp_path: Path) -> None:
    export(recorded, tmp_path / "x.mcap", Wishes())
    with McapTimeline(tmp_path / "x.mcap") as file:
        for lane in Lane:
            assert all_of(file, lane) == all_of(recorded, lane)
            assert file.end(lane) == recorded.end(lane)
        assert [file.partition_of(n) for n in NAMES] == [recorded.partition_of(n) for n in NAMES]
        middle = file.end()[file.partition_of("s3")] // 2
        p = file.partition_of("s3")
        assert list(file.scan(Lane.TIMELINE, p, middle, "s3")) == list(
            recorded.scan(Lane.TIMELINE, p, middle, "s3")
        )


@pytest.mark.parametrize("suffix", ["mcap", "jsonl", "parquet"])
def test_an_import_replays_identically(recorded, tmp_path: Path, suffix: str) -> None:
    export(recorded, tmp_path / f"x.{suffix}", Wishes())
    with open_timeline(f"sqlite:///{tmp_path}/log.db") as log:
        names, _ = import_file(tmp_path / f"x.{suffix}", log)
        assert sorted(names) == sorted(NAMES)
        there, here = prove(recorded), prove(log)
        for name in NAMES:
            assert here[name].same
            assert here[name].digest == there[name].digest
            for lane in Lane:
                kept = [r[4:] for r in all_of(log, lane) if r.key == name]
                assert kept == [r[4:] for r in all_of(recorded, lane) if r.key == name]
        with pytest.raises(BadInput, match="already"):
            import_file(tmp_path / f"x.{suffix}", log)


def test_what_mcap_tools_see(recorded, tmp_path: Path) -> None:
    export(recorded, tmp_path / "x.mcap", Wishes(sessions=("a/b c",)))
    with (tmp_path / "x.mcap").open("rb") as f:
        reader = make_reader(f, validate_crcs=True)
        summary = reader.get_summary()
        topics = {c.topic: (c, summary.schemas.get(c.schema_id)) for c in summary.channels.values()}
        channel, schema = topics["venus.turn.ended.v1"]
        assert (channel.message_encoding, schema.encoding) == ("json", "jsonschema")
        assert "reason" in json.loads(schema.data)["properties"]["data"]["properties"]
        audio, schema = topics["venus.media.audio.v1"]
        assert (audio.message_encoding, schema.name) == ("protobuf", "foxglove.RawAudio")
        seen = 0
        for _, _, message in reader.iter_messages(topics=["venus.turn.ended.v1"]):
            body = json.loads(message.data)
            assert body["session"] == "a/b c"
            assert message.sequence == body["offset"]
            assert message.publish_time == int(body["headers"]["ce_mediatime"]) * 1000
            seen += 1
        assert seen
        sound = next(m for _, c, m in reader.iter_messages(topics=[audio.topic]))
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    raw = message_factory.GetMessageClass(pool.FindMessageTypeByName("foxglove.RawAudio"))
    parsed = raw.FromString(sound.data)
    assert (parsed.format, parsed.sample_rate, parsed.number_of_channels) == ("pcm-s16", 16000, 1)
    assert len(parsed.data) == 3200
    assert json.loads(parsed.venus)["session"] == "a/b c"


def test_a_file_that_another_tool_rearranged(recorded, tmp_path: Path) -> None:
    from mcap.writer import Writer

    export(recorded, tmp_path / "x.mcap", Wishes())
    with (tmp_path / "x.mcap").open("rb") as f, (tmp_path / "y.mcap").open("wb") as g:
        reader, writer, ids = make_reader(f), Writer(g), {}
        writer.start(library="another tool")
        for m in reader.iter_metadata():
            writer.add_metadata(m.name, m.metadata)
        for schema, channel, message in reversed(list(reader.iter_messages())):
            if channel.id not in ids:
                s = (
                    writer.register_schema(schema.name, schema.encoding, schema.data)
                    if schema
                    else 0
                )
                ids[channel.id] = writer.register_channel(
                    channel.topic, channel.message_encoding, s, channel.metadata
                )
            writer.add_message(
                ids[channel.id],
                message.log_time,
                message.data,
                message.publish_time,
                message.sequence,
            )
        writer.finish()
    with McapTimeline(tmp_path / "y.mcap") as file:
        assert all_of(file, Lane.TIMELINE) == all_of(recorded, Lane.TIMELINE)


def test_a_reader_follows_to_the_end(recorded, tmp_path: Path) -> None:
    export(recorded, tmp_path / "x.mcap", Wishes())
    with McapTimeline(tmp_path / "x.mcap") as file:
        p = file.partition_of("s3")
        reader, found = file.reader({Place(Lane.TIMELINE, p): 3}), []
        while batch := reader.poll(0, 7):
            found += batch
        assert [r.offset for r in found] == list(range(3, file.end()[p]))
        assert reader.position(Place(Lane.TIMELINE, p)) == file.end()[p]
        with pytest.raises(TimelineError, match="file to read"):
            file.append([])


def test_a_folder_holds_one_file_for_each_session(recorded, tmp_path: Path) -> None:
    written = export(recorded, tmp_path / "out", Wishes(media=False))
    assert len(written) == len(NAMES)
    for one in written:
        with open_file(one.path) as file:
            assert len(sessions_on(file)) == 1
            assert not all_of(file, Lane.MEDIA)
            assert all(p.same for p in prove(file).values())


def test_redacted_files_still_prove_and_hold_no_word(tmp_path: Path) -> None:
    session = talk(
        "s",
        30,
        reply="Xylophone music, all day long? Yes: xylophones, <b>marimbas</b> and 42 bells.",
    )
    timeline = memory(session.close())
    (one,) = export(timeline, tmp_path / "x.jsonl", Wishes(redact_media=True, redact_text=True))
    text = (tmp_path / "x.jsonl").read_text()
    for word in ("ylophone", "Paris", "weather", "marimba", "tomorrow"):
        assert word.lower() not in text.lower()
    assert "mhm" in text and "stop" in text
    assert '"cannot_rerun":"backchannel,endpoint,generate,speak,transcript,vad,work"' in text
    assert one.changed == 0
    with open_file(one.path) as file:
        found = prove(file)["s"]
        assert found.same and found.decisions == prove(timeline)["s"].decisions
        audio = [r for r in all_of(file, Lane.MEDIA) if any(r.value)]
        assert not audio
        assert len(all_of(file, Lane.MEDIA)) == len(all_of(timeline, Lane.MEDIA))


def test_pseudonyms_keep_lengths_and_equality() -> None:
    names = Pseudonyms()
    names.keep = frozenset({"stop"})
    other = names.text("Stop, Paris paris 12! 天气")
    assert other.startswith("Stop, ") and len(other) == len("Stop, Paris paris 12! 天气")
    assert other[6:11].lower() == other[12:17] and other[6].isupper() and other[6:11] != "Paris"
    assert Pseudonyms().text("Paris") != names.text("Paris") or Pseudonyms().text(
        "Paris"
    ) != names.text("Paris")


def damaged(data: bytes) -> dict[str, tuple[bytes, str]]:
    middle = len(data) // 3
    return {
        "empty": (b"", "not an MCAP file"),
        "foreign": (b"RIFF....WAVE" * 9, "not an MCAP file"),
        "truncated": (data[:-100], "truncated"),
        "header only": (data[:30], "truncated"),
        "hole": (data[:middle] + bytes(2000) + data[middle + 2000 :], "damaged|not a readable"),
        "newer": (
            data.replace(
                b"\x06\x00\x00\x00format\x01\x00\x00\x001",
                b"\x06\x00\x00\x00format\x01\x00\x00\x009",
            ),
            "newer venus",
        ),
    }


@pytest.mark.parametrize("what", ["empty", "foreign", "truncated", "header only", "hole", "newer"])
def test_a_damaged_file_is_one_clear_line(recorded, tmp_path: Path, what: str) -> None:
    export(recorded, tmp_path / "x.mcap", Wishes())
    data, message = damaged((tmp_path / "x.mcap").read_bytes())[what]
    (tmp_path / "y.mcap").write_bytes(data)
    with (
        pytest.raises((BadInput, TimelineError), match=message) as caught,
        open_timeline(f"mcap:///{tmp_path}/y.mcap") as file,
    ):
        all_of(file, Lane.TIMELINE), all_of(file, Lane.MEDIA)
    assert "\n" not in str(caught.value)


def test_foreign_mcap(tmp_path: Path) -> None:
    from mcap.writer import Writer

    with (tmp_path / "y.mcap").open("wb") as f:
        writer = Writer(f)
        writer.start()
        writer.finish()
    with pytest.raises(BadInput, match="not a session file of venus"):
        McapTimeline(tmp_path / "y.mcap")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.jsonl", b'{"a":1}\n', "not a session file"),
        ("x.jsonl", b'{"venus":"session file","format":9,"partitions":1}\n', "newer"),
        (
            "x.jsonl",
            b'{"venus":"session file","format":1,"partitions":1}\n{"lane":"ti',
            "cut short",
        ),
        ("x.parquet", b"PAR1nope", "Parquet"),
        ("x.txt", b"", "there are"),
    ],
)
def test_other_files_that_cannot_be_read(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=message) as caught:
        open_file(tmp_path / name).close()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_export_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    with open_timeline(f"sqlite:///{tmp_path}/log.db") as log:
        source = memory(talk("s", 120).close())
        export(source, tmp_path / "in.mcap", Wishes())
        import_file(tmp_path / "in.mcap", log)
    out = tmp_path / "out"
    out.mkdir()
    # Slowed down inside, so that the signal meets it half-way on any machine.
    code = (
        "import sys, time; from infra.timeline import mcap_write as m; add = m.McapSink.add\n"
        "def slow(self, record):\n"
        "    add(self, record); n = self.__dict__.setdefault('n', 0); self.n += 1\n"
        "    if self.n == 500: print('half-way', flush=True); time.sleep(60)\n"
        "m.McapSink.add = slow\n"
        "from flows.cli import main\n"
        f"main(['export', '--timeline', 'sqlite:///{tmp_path}/log.db', '--to', '{out}/x.mcap'])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"half-way\n"
    process.send_signal(sent)
    assert process.wait(20) != 0
    assert list(out.iterdir()) == []
    process.stdout.close()


def test_lengths_are_as_the_module_says() -> None:
    assert struct.calcsize("<HIQQ") == 22 and struct.calcsize("<QQQII") == 32


def test_events_are_those_of_the_records(tmp_path: Path) -> None:
    recorded = memory(*(talk(name, 2).close() for name in NAMES), partitions=4)
    recorded.append([*ODD, *odd_windows("s3"), *odd_decisions("s3")])
    export(recorded, tmp_path / "x.mcap", Wishes())
    with McapTimeline(tmp_path / "x.mcap") as file:
        for session in (None, "s3"):
            slow = [
                e
                for _, e in sessions_of(
                    r for r in all_of(file, Lane.TIMELINE) if session in (None, r.key)
                )
            ]
            assert [*chain.from_iterable(file.event_chunks(Lane.TIMELINE, session))] == slow


def test_an_import_into_any_log_replays_identically(recorded, log_url: str, tmp_path: Path) -> None:
    """Over memory, SQLite and Kafka."""
    export(recorded, tmp_path / "x.mcap", Wishes())
    before = prove(recorded)
    with open_timeline(log_url) as log:
        import_file(tmp_path / "x.mcap", log)
        after = prove(log)
        assert {n: (p.same, p.digest) for n, p in after.items()} == {
            n: (True, p.digest) for n, p in before.items()
        }
        export(log, tmp_path / "y.mcap", Wishes())
    with McapTimeline(tmp_path / "y.mcap") as again:
        for lane in Lane:
            for name in NAMES:
                kept = [r[4:] for r in again.scan(lane, again.partition_of(name), 0, name)]
                assert kept == [
                    r[4:] for r in recorded.scan(lane, recorded.partition_of(name), 0, name)
                ]


def test_a_misspelt_extension_is_no_folder(recorded, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there are \.mcap"):
        export(recorded, tmp_path / "x.mcpa", Wishes())
    with pytest.raises(BadInput, match="no session 'nobody'"):
        export(recorded, tmp_path / "x.mcap", Wishes(sessions=("nobody",)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wishes", [Wishes(redact_media=True), Wishes(redact_text=True), Wishes(media=False)]
)
def test_sound_is_never_taken_for_redacted(recorded, tmp_path: Path, wishes: Wishes) -> None:
    with pytest.raises(BadInput, match="a wav is nothing but what was said"):
        export(recorded, tmp_path / "x.wav", replace(wishes, sessions=("s3",)))
    assert not list(tmp_path.iterdir())
