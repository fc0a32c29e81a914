"""`kafka://`: the timeline on Apache Kafka, by kafka-python: `assign` and `seek`, no consumer group; the topics
`<topic>` and `<topic>.media`, a session in the partition that murmur2 of its id names.

A request costs about 1.2 ms of CPU whatever it carries, so requests are what is saved: one producer for a timeline, one
consumer for all places of a reader, and an append leaves as one batch for each of its partitions. For that the producer
lingers until `append` flushes. One batch for each partition is also what keeps a failed append a prefix: Kafka stores a
batch wholly or not at all, and the next batch is handed over only when the one before it was acknowledged.
Idempotence and `acks=all` are kafka-python's defaults. Readers see committed records only.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError
from kafka.protocol.consumer import IsolationLevel

from infra.clock import monotonic_s, sleep_s
from infra.timeline.closing import Closing
from infra.timeline.kafka_errors import explain
from infra.timeline.kafka_settings import BOOTSTRAP_MS, KafkaSettings, kafka_settings
from infra.timeline.kafka_topics import Topics
from infra.timeline.partition import partition_of
from infra.timeline.port import Place, Position
from infra.timeline.url import TimelineUrl
from infra.timeline.validate import check_records, check_start
from schemas.errors import TimelineError, TimelineUnavailable
from schemas.record import Lane, Record, StoredRecord

log = logging.getLogger(__name__)

# A restarted broker is back in about 5 s; an append rides that out, then gives up (it may be tried again).
DELIVERY_MS = 20_000
_REQUEST_MS = 8_000
# Longer than any append takes to hand its records over: only `flush` sends them.
_LINGER_MS = 5_000
_FETCH_BYTES = 4 * 1024 * 1024
# After this long without a record, a reader asks whether the broker is still there.
_PROBE_AFTER_S = 10.0
_PROBE_MS = 4_000
_SCAN_POLL_MS = 500
_AGAIN_S = 0.1
_BACKOFF_MS = 20
# What Kafka adds at most: to a batch, to a record, to a header.
_BATCH_EXTRA, _RECORD_EXTRA, _HEADER_EXTRA = 61, 36, 10


def open_kafka(url: TimelineUrl, create: bool, environ: Mapping[str, str]) -> "KafkaTimeline":
    return KafkaTimeline(kafka_settings(url, environ), create)


class KafkaTimeline(Closing):
    def __init__(self, settings: KafkaSettings, create: bool = True) -> None:
        self._settings = settings
        self._closed = False
        self._append_lock, self._admin_lock = Lock(), Lock()
        self._producer: Any = None
        admin = None
        try:
            admin = KafkaAdminClient(**settings.client, request_timeout_ms=_REQUEST_MS)
            self._topics = Topics(settings, admin, create)
        except BaseException as error:
            if admin is not None:
                admin.close()
            raise explain(error, settings, "reach it") from error
        self._admin = admin

    @property
    def url(self) -> str:
        return self._settings.url

    @property
    def partitions(self) -> int:
        return self._topics.partitions

    @property
    def settings(self) -> KafkaSettings:
        return self._settings

    def warnings(self) -> list[str]:
        """What a person should know about the topics' settings (logged as well)."""
        return list(self._topics.warnings)

    def partition_of(self, key: str) -> int:
        return partition_of(key, self._topics.partitions)

    def topic(self, lane: Lane) -> str:
        return self._settings.topic if lane is Lane.TIMELINE else self._settings.media_topic

    def append(
        self,
        records: Sequence[Record],
        lane: Lane = Lane.TIMELINE,
        appended_us: Sequence[int] | None = None,
    ) -> list[Position]:
        self._check_open()
        check_records(self.url, records)
        topic = self.topic(lane)
        limit = self._topics.max_bytes[topic]
        sizes = [_size(record) for record in records]
        for index, size in enumerate(sizes):
            if size + _BATCH_EXTRA > limit:
                raise TimelineError(
                    f"timeline {self.url}: record {index} of the batch has {size} bytes, topic {topic} takes "
                    f"{limit}; store the data in the blob store and refer to it by dataref, or raise the "
                    "topic's max.message.bytes"
                )
        positions: list[Position] = []
        with self._append_lock:
            self._check_open()
            try:
                for part in self._parts(records, sizes, limit):
                    positions += self._send(topic, part)
            except BaseException as error:
                # Its idempotent sequence is in doubt; a new producer starts a new one.
                self._drop_producer()
                raise explain(error, self._settings, "append") from error
        return positions

    def _parts(
        self, records: Sequence[Record], sizes: Sequence[int], limit: int
    ) -> Iterator[list[tuple[Record, int]]]:
        """Cut an append so that each part fits into one batch for each partition."""
        part: list[tuple[Record, int]] = []
        filled: dict[int, int] = {}
        for record, size in zip(records, sizes, strict=True):
            partition = self.partition_of(record.key)
            if filled.get(partition, _BATCH_EXTRA) + size > limit:
                yield part
                part, filled = [], {}
            filled[partition] = filled.get(partition, _BATCH_EXTRA) + size
            part.append((record, partition))
        if part:
            yield part

    def _send(self, topic: str, part: list[tuple[Record, int]]) -> list[Position]:
        producer = self._producer or self._new_producer()
        sent = [
            producer.send(
                topic,
                key=record.key.encode(),
                value=record.value,
                headers=list(record.headers),
                partition=partition,
            )
            for record, partition in part
        ]
        timeout_s = (DELIVERY_MS + _REQUEST_MS) / 1000
        producer.flush(timeout=timeout_s)
        positions = []
        for future in sent:
            stored = future.get(timeout=timeout_s)
            if stored.offset < 0:
                raise TimelineUnavailable(
                    f"timeline {self.url}: the broker stored a batch and did not say where; append it again"
                )
            positions.append(Position(stored.partition, stored.offset))
        return positions

    def _new_producer(self) -> Any:
        self._producer = KafkaProducer(
            **self._settings.client,
            acks="all",
            enable_idempotence=True,
            linger_ms=_LINGER_MS,
            batch_size=max(self._topics.max_bytes.values()),
            max_request_size=max(self._topics.max_bytes.values()) * 2,
            compression_type=self._settings.compression,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=_REQUEST_MS,
            max_block_ms=BOOTSTRAP_MS,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        return self._producer

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=0)
        except KafkaError:
            # `close` first waits for what is pending, which just failed; this ends its thread.
            producer._sender.force_close()

    def end(self, lane: Lane = Lane.TIMELINE) -> dict[int, int]:
        return self._offsets(lane, OffsetSpec.LATEST)

    def _offsets(self, lane: Lane, spec: Any) -> dict[int, int]:
        topic = self.topic(lane)
        wanted = {TopicPartition(topic, p): spec for p in range(self.partitions)}
        deadline = monotonic_s() + _REQUEST_MS / 1000
        with self._admin_lock:
            while True:
                self._check_open()
                try:
                    found = self._admin.list_partition_offsets(
                        wanted, IsolationLevel.READ_COMMITTED, timeout_ms=_REQUEST_MS
                    )
                    break
                except Exception as error:
                    # For a moment after a broker's restart the client refuses at once instead of connecting again.
                    if not getattr(error, "retriable", False) or monotonic_s() > deadline:
                        raise explain(error, self._settings, "read its end") from error
                sleep_s(_AGAIN_S)
        return {tp.partition: at.offset for tp, at in found.items()}

    def reader(self, start: Mapping[Place, int]) -> "KafkaReader":
        self._check_open()
        check_start(self, start)
        first = {lane: self._offsets(lane, OffsetSpec.EARLIEST) for lane in {p.lane for p in start}}
        begin = {}
        for place, offset in start.items():
            oldest = first[place.lane][place.partition]
            if offset < oldest:
                # What retention deleted is gone; offsets may have holes, and this is one.
                log.info("%s: %s starts at %d, not at %d", self.url, place, oldest, offset)
            begin[place] = max(offset, oldest)
        return KafkaReader(self, begin)

    def scan(
        self, lane: Lane, partition: int, start: int = 0, session: str | None = None
    ) -> Iterator[StoredRecord]:
        self._check_open()
        place = Place(lane, partition)
        check_start(self, {place: start})
        return self._scan(place, start, self.end(lane)[partition], session)

    def _scan(
        self, place: Place, start: int, end: int, session: str | None
    ) -> Iterator[StoredRecord]:
        if start >= end:
            return
        reader = self.reader({place: start})
        try:
            # By position, not by record: a transaction's marker has an offset and no record.
            while reader.position(place) < end:
                for record in reader.poll(_SCAN_POLL_MS / 1000):
                    if record.offset >= end:
                        return
                    if session is None or record.key == session:
                        yield record
        finally:
            reader.close()

    def close(self) -> None:
        with self._append_lock, self._admin_lock:
            if self._closed:
                return
            self._closed = True
            self._drop_producer()
            self._admin.close()


class KafkaReader:
    """One consumer for all places. It rides out a broker's restart; `poll` raises once the broker stays away."""

    def __init__(self, timeline: KafkaTimeline, start: Mapping[Place, int]) -> None:
        self._timeline = timeline
        self._places = {
            TopicPartition(timeline.topic(place.lane), place.partition): place for place in start
        }
        self._partitions = {place: tp for tp, place in self._places.items()}
        self._lanes = {timeline.topic(lane): lane for lane in Lane}
        self._consumer: Any = None
        try:
            self._consumer = KafkaConsumer(
                **timeline.settings.client,
                group_id=None,
                enable_auto_commit=False,
                # An offset that is no longer there is an error, not a silent jump to either end.
                auto_offset_reset="none",
                isolation_level="read_committed",
                # The first fetch waits for two of them; the default of 100 ms makes every scan wait 0.2 s.
                retry_backoff_ms=_BACKOFF_MS,
                max_partition_fetch_bytes=_FETCH_BYTES,
                request_timeout_ms=_REQUEST_MS,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
            self._consumer.assign(list(self._places))
            for place, offset in start.items():
                self._consumer.seek(self._partitions[place], offset)
        except BaseException as error:
            self.close()
            raise explain(error, timeline.settings, "read") from error
        self._heard_s = monotonic_s()

    def poll(self, timeout_s: float, max_records: int = 5000) -> list[StoredRecord]:
        self._timeline._check_open()
        if self._consumer is None:
            raise TimelineError(f"a reader of timeline {self._timeline.url} is closed")
        try:
            batches = self._consumer.poll(timeout_ms=timeout_s * 1000, max_records=max_records)
            if not batches:
                self._probe()
                return []
        except Exception as error:
            raise explain(error, self._timeline.settings, "read") from error
        self._heard_s = monotonic_s()
        return [
            _stored(self._lanes[tp.topic], record)
            for tp, records in batches.items()
            for record in records
        ]

    def _probe(self) -> None:
        """kafka-python's poll returns nothing, for ever, when the broker is gone: ask it now and then."""
        if monotonic_s() - self._heard_s > _PROBE_AFTER_S:
            self._consumer.end_offsets(list(self._places), timeout_ms=_PROBE_MS)
            self._heard_s = monotonic_s()

    def position(self, place: Place) -> int:
        if self._consumer is None:
            raise TimelineError(f"a reader of timeline {self._timeline.url} is closed")
        try:
            at = self._consumer.position(self._partitions[place], timeout_ms=_REQUEST_MS)
        except KafkaError as error:
            raise explain(error, self._timeline.settings, "read") from error
        return int(at)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=1000)


def _stored(lane: Lane, record: Any) -> StoredRecord:
    headers = tuple([(name, value or b"") for name, value in record.headers or ()])
    return StoredRecord(
        lane,
        record.partition,
        record.offset,
        record.timestamp * 1000,
        _key(record.key),
        headers,
        record.value or b"",
    )


def _key(key: bytes | None) -> str | None:
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None


def _size(record: Record) -> int:
    """An upper bound of what Kafka makes of a record."""
    size = _RECORD_EXTRA + len(record.key.encode()) + len(record.value)
    for name, value in record.headers:
        size += _HEADER_EXTRA + len(name.encode()) + len(value)
    return size
