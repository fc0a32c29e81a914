"""Producers of others against a real broker: records made by the CloudEvents SDK and written by kafka-python or librdkafka are read
as events, in the partition in which we expect their session; and other consumers read what we write.
"""

from collections.abc import Callable
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaProducer

from infra.timeline import open_timeline
from schemas.cloudevents import decode, encode
from schemas.envelope import Event, Pcm
from schemas.record import Lane
from schemas.session import SessionOpened
from tests.support.kafka import Broker

pytestmark = [pytest.mark.timeline, pytest.mark.kafka]

PARTITIONS = 8
SESSIONS = [f"session-{i}" for i in range(20)] + ["séance", "会话", "a" * 200]
Send = Callable[[Broker, str, list[KafkaMessage]], None]


def by_kafka_python(broker: Broker, topic: str, messages: list[KafkaMessage]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.server)
    sent = [
        producer.send(topic, key=_bytes(m.key), value=m.value, headers=list(m.headers.items()))
        for m in messages
    ]
    for one in sent:
        one.get(10)
    producer.close()


def by_librdkafka(broker: Broker, topic: str, messages: list[KafkaMessage]) -> None:
    # Its own default partitioner is CRC32; Java's, and ours, is murmur2.
    producer = Producer(
        {"bootstrap.servers": broker.server, "partitioner": "murmur2_random", "acks": "all"}
    )
    failed: list[Any] = []
    for m in messages:
        producer.produce(
            topic,
            key=_bytes(m.key),
            value=m.value,
            headers=list(m.headers.items()),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(10) == 0
    assert not failed


def _bytes(key: str | bytes | None) -> bytes:
    assert key is not None
    return key.encode() if isinstance(key, str) else key


def opened(session: str) -> KafkaMessage:
    attributes = {
        "specversion": "1.0",
        "type": "venus.session.opened.v1",
        "source": "/devices/kitchen",
        "id": f"{session[:9]}-0",
        "datacontenttype": "application/json",
        "mediatime": "0",
        "sequence": "0",
        "partitionkey": session,
    }
    return to_binary(CloudEvent(attributes, {"device": "kitchen", "pacing": "live"}), JSONFormat())


def sound(session: str) -> KafkaMessage:
    attributes = {
        "specversion": "1.0",
        "type": "venus.media.audio.v1",
        "source": "/devices/kitchen/mic",
        "id": f"{session[:9]}-m0",
        "datacontenttype": "audio/pcm;rate=48000;channels=2",
        "mediatime": "0",
        "sequence": "0",
        "partitionkey": session,
    }
    return to_binary(CloudEvent(attributes, b"\xff\x7f\x00\x80" * 100), JSONFormat())


@pytest.mark.parametrize("send", [by_kafka_python, by_librdkafka])
def test_records_of_the_sdk_are_read_where_they_belong(kafka_broker: Broker, send: Send) -> None:
    topic = kafka_broker.topic()
    with open_timeline(kafka_broker.url(topic, f"partitions={PARTITIONS}")) as timeline:
        send(kafka_broker, topic, [opened(s) for s in SESSIONS])
        send(kafka_broker, f"{topic}.media", [sound(s) for s in SESSIONS])
        for session in SESSIONS:
            home = timeline.partition_of(session)
            (record,) = timeline.scan(Lane.TIMELINE, home, 0, session)
            event = decode(record)
            assert (event.type, event.session, event.sequence) == ("session.opened", session, 0)
            assert event.data == SessionOpened(device="kitchen")
            (record,) = timeline.scan(Lane.MEDIA, home, 0, session)
            assert decode(record).data == Pcm(48_000, 2, b"\xff\x7f\x00\x80" * 100)


def test_other_clients_read_what_we_write(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    data = SessionOpened(device="küche", language="de")
    event = Event("session.opened", "séance", "o1", "device/1", data, 0, sequence=0)
    with open_timeline(kafka_broker.url(topic, f"partitions={PARTITIONS}")) as timeline:
        (position,) = timeline.append([encode(event)])
    consumer = Consumer({"bootstrap.servers": kafka_broker.server, "group.id": topic})
    consumer.assign([TopicPartition(topic, position.partition, position.offset)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.error() is None
    headers = dict(message.headers() or [])
    read = from_binary(KafkaMessage(headers, message.key(), message.value()), JSONFormat())
    assert (read.get_type(), read.get_id()) == ("venus.session.opened.v1", "o1")
    assert read.get_extension("partitionkey") == "séance"
    assert read.get_data()["device"] == "küche"  # type: ignore[index,call-overload]
