"""The two topics of a Kafka timeline: made when absent, checked when present, never changed.

Another partition count is an error, since sessions would be looked for in the wrong place. Settings under which the
log loses records (compaction, retention) are warnings: whoever set them may mean it.
"""

import contextlib
import logging
from collections.abc import Iterable
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError

from infra.timeline.kafka_settings import KafkaSettings
from schemas.errors import TimelineError

log = logging.getLogger(__name__)

DEFAULT_PARTITIONS = 8
DEFAULT_MAX_BYTES = (
    1_048_588  # Kafka's own default: clients need no other setting to read what we allow
)
_MEDIA_RETENTION_MS = 7 * 24 * 3600 * 1000
_REPLICAS = 3


class Topics:
    """What was found or made: `partitions`, the largest record batch of each topic, and what a person should know."""

    def __init__(self, settings: KafkaSettings, admin: KafkaAdminClient, create: bool) -> None:
        self._settings = settings
        self._admin = admin
        self.warnings: list[str] = []
        self.max_bytes: dict[str, int] = {}
        names = (settings.topic, settings.media_topic)
        counts = self._counts(names)
        missing = [name for name in names if name not in counts]
        if missing and not create:
            raise TimelineError(
                f"timeline {settings.url}: there is no topic {missing[0]} on {settings.servers}"
            )
        if missing:
            there = next(iter(counts.values()), None)
            self._make(missing, there or settings.partitions or DEFAULT_PARTITIONS)
            # Asked again, because another process may have made them meanwhile, in its own way.
            counts = self._counts(names)
        self.partitions = self._agreed(counts)
        self._check_settings(names)
        for warning in self.warnings:
            log.warning("%s", warning)

    def _counts(self, names: Iterable[str]) -> dict[str, int]:
        found = self._admin.describe_topics(list(names))
        return {t["name"]: len(t["partitions"]) for t in found if t["partitions"]}

    def _make(self, names: list[str], partitions: int) -> None:
        brokers = len(self._admin.describe_cluster()["brokers"])
        replicas = min(_REPLICAS, brokers)
        for name in names:
            media = name == self._settings.media_topic
            configs = {
                "cleanup.policy": "delete",
                "retention.ms": str(_MEDIA_RETENTION_MS if media else -1),
                "retention.bytes": "-1",
                "max.message.bytes": str(DEFAULT_MAX_BYTES),
                # The log's own time of the append, whatever a device's clock says.
                "message.timestamp.type": "LogAppendTime",
                "min.insync.replicas": str(max(1, replicas - 1)),
            }
            topic = {
                name: {
                    "num_partitions": partitions,
                    "replication_factor": replicas,
                    "configs": configs,
                }
            }
            with contextlib.suppress(TopicAlreadyExistsError):
                self._admin.create_topics(topic)
        self._admin.wait_for_topics(names)

    def _agreed(self, counts: dict[str, int]) -> int:
        url, topic, media = self._settings.url, self._settings.topic, self._settings.media_topic
        if counts[topic] != counts[media]:
            raise TimelineError(
                f"timeline {url}: topic {topic} has {counts[topic]} partitions and {media} has "
                f"{counts[media]}; both need the same number: make one of them again"
            )
        asked = self._settings.partitions
        if asked is not None and asked != counts[topic]:
            raise TimelineError(
                f"timeline {url}: topic {topic} has {counts[topic]} partitions, not {asked}; "
                f"write partitions={counts[topic]} or leave it out"
            )
        return counts[topic]

    def _check_settings(self, names: tuple[str, str]) -> None:
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        try:
            described: dict[str, Any] = self._admin.describe_configs(resources, config_filter="all")
            topics = described.get("topic", described)
        except KafkaError as error:
            self._warn(f"the settings of its topics could not be checked ({type(error).__name__})")
            topics = {}
        for name in names:
            config = {key: _value(held) for key, held in topics.get(name, {}).items()}
            self.max_bytes[name] = int(config.get("max.message.bytes", DEFAULT_MAX_BYTES))
            self._check_topic(name, config)

    def _check_topic(self, name: str, config: dict[str, str]) -> None:
        if "compact" in config.get("cleanup.policy", ""):
            self._warn(
                f"topic {name} has cleanup.policy=compact, which deletes all but the last record of a "
                "session; set cleanup.policy=delete"
            )
        if name == self._settings.topic:
            for key in ("retention.ms", "retention.bytes"):
                if config.get(key, "-1") != "-1":
                    self._warn(
                        f"topic {name} has {key}={config[key]}, so events get lost with time; set {key}=-1"
                    )
        if config.get("message.timestamp.type", "LogAppendTime") != "LogAppendTime":
            self._warn(
                f"topic {name} has message.timestamp.type={config['message.timestamp.type']}, so append "
                "times are the producers' clocks; set LogAppendTime"
            )

    def _warn(self, words: str) -> None:
        self.warnings.append(f"timeline {self._settings.url}: {words}")


def _value(held: Any) -> str:
    return str(held["value"] if isinstance(held, dict) else held)
