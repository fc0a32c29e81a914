"""What only the Kafka timeline does: its topics and their settings, foreign records, limits, and a broker that dies."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from infra.clock import monotonic_s, wall_us
from infra.timeline import Place, Timeline, open_timeline
from infra.timeline import kafka as kafka_timeline
from schemas.errors import TimelineError, TimelineUnavailable
from schemas.record import Lane, Record, StoredRecord
from tests.support.kafka import Broker, kafka_home
from tests.timeline.helpers import numbered, places, plain, take

pytestmark = [pytest.mark.timeline, pytest.mark.kafka]


@pytest.fixture
def admin(kafka_broker: Broker) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=kafka_broker.server)
    yield client
    client.close()


def _make(admin: Any, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
    admin.create_topics({name: topic}, wait_for_metadata=True)


def _config(admin: Any, topic: str) -> dict[str, str]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    held = admin.describe_configs(asked, config_filter="all")["topic"][topic]
    return {key: value["value"] for key, value in held.items()}


def test_topics_are_made_with_settings_that_lose_nothing(kafka_broker: Broker, admin: Any) -> None:
    topic = kafka_broker.topic()
    with open_timeline(kafka_broker.url(topic)) as timeline:
        assert timeline.partitions == 8
        assert timeline.warnings() == []  # type: ignore[attr-defined]
    log, media = _config(admin, topic), _config(admin, topic + ".media")
    assert log["retention.ms"] == log["retention.bytes"] == media["retention.bytes"] == "-1"
    assert media["retention.ms"] == str(7 * 24 * 3600 * 1000)
    for config in (log, media):
        assert config["cleanup.policy"] == "delete"
        assert config["message.timestamp.type"] == "LogAppendTime"


def test_existing_topics_are_used_as_they_are_and_dangers_are_named(
    kafka_broker: Broker, admin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka_broker.topic()
    _make(admin, topic, 3, cleanup_policy="compact", retention_ms="1000", retention_bytes="5")
    before = _config(admin, topic)
    with open_timeline(kafka_broker.url(topic)) as timeline:
        assert timeline.partitions == 3
        warnings = timeline.warnings()  # type: ignore[attr-defined]
    for danger in (
        "cleanup.policy=compact",
        "retention.ms=1000",
        "retention.bytes=5",
        "CreateTime",
    ):
        assert sum(danger in line and topic in line for line in warnings) == 1
        assert danger in caplog.text
    assert _config(admin, topic) == before


def test_another_number_of_partitions_is_an_error(kafka_broker: Broker, admin: Any) -> None:
    topic = kafka_broker.topic()
    _make(admin, topic, 2)
    _make(admin, topic + ".media", 3)
    with pytest.raises(TimelineError, match=r"has 2 partitions and .*\.media has 3"):
        open_timeline(kafka_broker.url(topic))
    other = kafka_broker.topic()
    open_timeline(kafka_broker.url(other, "partitions=2")).close()
    with pytest.raises(TimelineError, match=r"has 2 partitions, not 8; write partitions=2"):
        open_timeline(kafka_broker.url(other, "partitions=8"))


def test_four_openers_at_once_agree(kafka_broker: Broker) -> None:
    url = kafka_broker.url(kafka_broker.topic(), "partitions=2")
    opened: list[Timeline] = []
    threads = [Thread(target=lambda: opened.append(open_timeline(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [timeline.partitions for timeline in opened] == [2] * 4
    for timeline in opened:
        timeline.close()


def test_a_broker_that_is_not_there_is_one_line_within_seconds() -> None:
    started = monotonic_s()
    with pytest.raises(TimelineUnavailable, match="is the broker running") as caught:
        open_timeline("kafka://127.0.0.1:1/t")
    assert monotonic_s() - started < 8
    assert caught.value.retryable and "\n" not in str(caught.value)


def test_a_record_that_is_too_large_is_refused_before_any_is_stored(kafka_broker: Broker) -> None:
    with open_timeline(kafka_broker.url(kafka_broker.topic(), "partitions=2")) as timeline:
        with pytest.raises(TimelineError, match=r"record 1 .* takes 1048588; .* dataref") as caught:
            timeline.append([*numbered("s", 1), Record("s", (), b"x" * 1_200_000)])
        assert not caught.value.retryable
        assert set(timeline.end().values()) == {0}
        # Just under the limit is stored.
        assert len(timeline.append([Record("s", (), b"x" * 1_048_400)])) == 1


def test_a_topics_own_limit_counts(kafka_broker: Broker, admin: Any) -> None:
    topic = kafka_broker.topic()
    _make(admin, topic, max_message_bytes="5000")
    with open_timeline(kafka_broker.url(topic)) as timeline:
        with pytest.raises(TimelineError, match="takes 5000"):
            timeline.append([Record("s", (), b"x" * 6000)])
        # Together larger than one batch may be: cut, in order.
        records = [Record("s", (), b"%d" % n * 1500) for n in range(10)]
        offsets = [position.offset for position in timeline.append(records)]
        assert offsets == list(range(10))
        assert plain(list(timeline.scan(Lane.TIMELINE, 0))) == records


def test_an_append_larger_than_a_batch_keeps_its_order(kafka_broker: Broker) -> None:
    records = [Record(f"s{n % 5}", (), b"%d" % n + b"." * 30_000) for n in range(150)]
    with open_timeline(kafka_broker.url(kafka_broker.topic(), "partitions=2")) as timeline:
        positions = timeline.append(records)
        found = take(timeline.reader(places(timeline)), 150)
        stored = {(r.partition, r.offset): r for r in found}
        assert plain([stored[position] for position in positions]) == records
        for partition in range(2):
            ours = [p.offset for p in positions if p.partition == partition]
            assert ours == list(range(len(ours)))


def test_foreign_records_are_read_without_failing(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    with open_timeline(kafka_broker.url(topic, "partitions=1")) as timeline:
        producer = KafkaProducer(bootstrap_servers=kafka_broker.server)
        producer.send(topic, value=b"no key")
        producer.send(topic, key=b"\xff\xfe", value=b"no text")
        producer.send(topic, key=b"k", value=None, headers=[("empty", b""), ("a", b"\xff")])
        producer.flush()
        producer.close()
        before = wall_us()
        stored = list(timeline.scan(Lane.TIMELINE, 0))
    assert [(r.key, r.headers, r.value) for r in stored] == [
        (None, (), b"no key"),
        (None, (), b"no text"),
        ("k", (("empty", b""), ("a", b"\xff")), b""),
    ]
    assert all(abs(r.appended_us - before) < 60_000_000 for r in stored)


def test_an_aborted_transaction_of_another_producer_is_not_seen(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    with open_timeline(kafka_broker.url(topic, "partitions=1")) as timeline:
        producer = KafkaProducer(
            bootstrap_servers=kafka_broker.server, transactional_id=topic, retry_backoff_ms=5
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, key=b"s", value=b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
        producer.close()
        timeline.append(numbered("s", 1))
        # The scan ends although the last offsets may hold no record.
        assert plain(list(timeline.scan(Lane.TIMELINE, 0))) == numbered("s", 1)


def test_records_deleted_before_a_reader_starts_are_a_hole(
    kafka_broker: Broker, admin: Any
) -> None:
    from kafka import TopicPartition

    topic = kafka_broker.topic()
    with open_timeline(kafka_broker.url(topic, "partitions=1")) as timeline:
        timeline.append(numbered("s", 10))
        admin.delete_records({TopicPartition(topic, 0): 6})
        reader = timeline.reader({Place(Lane.TIMELINE, 0): 0})
        assert plain(take(reader, 4)) == numbered("s", 4, start=6)
        assert plain(list(timeline.scan(Lane.TIMELINE, 0))) == numbered("s", 4, start=6)


def test_appends_and_reads_ride_out_a_broker_that_is_killed_and_started_again(
    own_kafka_broker: Broker,
) -> None:
    broker = own_kafka_broker
    total, size = 60, 5
    with open_timeline(broker.url(broker.topic(), "partitions=2")) as timeline:
        reader = timeline.reader(places(timeline))

        def write() -> None:
            for batch in range(total):
                while True:
                    try:
                        timeline.append(numbered("s", size, start=batch * size))
                        break
                    except TimelineUnavailable:
                        continue

        writer = Thread(target=write, daemon=True)
        writer.start()
        found = reader.poll(15)
        broker.kill9()
        broker.start()
        found += _until(reader, found, b"v%d" % (total * size - 1))
        writer.join(30)
        assert not writer.is_alive()
    # An append whose answer was lost in the crash may have been stored twice: whole batches, never mixed.
    first_times = list(dict.fromkeys(r.value for r in found))
    assert first_times == [record.value for record in numbered("s", total * size)]
    assert len({(r.partition, r.offset) for r in found}) == len(found)


def _until(reader: Any, found: list[StoredRecord], last: bytes) -> list[StoredRecord]:
    more: list[StoredRecord] = []
    deadline = monotonic_s() + 60
    while not any(r.value == last for r in [*found, *more][-50:]):
        assert monotonic_s() < deadline, f"{last!r} did not come"
        more += reader.poll(1)
    return more


def test_a_broker_that_stays_away_is_retryable_and_all_goes_on_when_it_is_back(
    own_kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DELIVERY_MS": 2500,
        "_LINGER_MS": 500,
        "_REQUEST_MS": 1500,
        "_PROBE_AFTER_S": 0.5,
        "_PROBE_MS": 1000,
    }.items():
        monkeypatch.setattr(kafka_timeline, name, value)
    broker = own_kafka_broker
    with open_timeline(broker.url(broker.topic(), "partitions=1")) as timeline:
        timeline.append(numbered("s", 1))
        reader = timeline.reader(places(timeline))
        take(reader, 1)
        broker.kill9()
        for use in (
            lambda: timeline.append(numbered("s", 1, start=1)),
            lambda: [reader.poll(1) for _ in range(10)],
            lambda: timeline.end(),
        ):
            with pytest.raises(TimelineUnavailable) as caught:
                use()
            assert re.search(r"127\.0\.0\.1:\d+ does not answer", str(caught.value))
        broker.start()
        _eventually(lambda: timeline.append(numbered("s", 1, start=2)))
        found = _until(reader, [], b"v2")
        # What could not be appended may have been stored none the less, as a whole and before what came later.
        assert plain(found) in (numbered("s", 1, start=2), numbered("s", 2, start=1))
        assert timeline.end()[0] >= 2


def _eventually(action: Any) -> Any:
    deadline = monotonic_s() + 30
    while True:
        try:
            return action()
        except TimelineUnavailable:
            if monotonic_s() > deadline:
                raise


_SASL = """\
listeners=SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required \
username="me" password="hush" user_me="hush";
"""


def test_a_login_from_the_environment_is_used_for_writing_and_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(kafka_home(), tmp_path, more=_SASL)
    environ = {
        "VENUS_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "VENUS_KAFKA_SASL_MECHANISM": "PLAIN",
        "VENUS_KAFKA_SASL_PLAIN_USERNAME": "me",
        "VENUS_KAFKA_SASL_PLAIN_PASSWORD": "hush",
    }
    caplog.set_level(logging.DEBUG)
    try:
        broker.start()
        with open_timeline(broker.url("t", "partitions=1"), environ=environ) as timeline:
            timeline.append(numbered("s", 2))
            assert plain(list(timeline.scan(Lane.TIMELINE, 0))) == numbered("s", 2)
    finally:
        broker.stop()
    assert "hush" not in caplog.text
