"""kafka-python's errors in one line for a person, with whether trying again makes sense."""

from kafka import errors as kafka_errors
from kafka.errors import KafkaError

from infra.timeline.kafka_settings import KafkaSettings
from schemas.errors import BadInput, TimelineError, TimelineUnavailable, VenusError


def explain(error: BaseException, settings: KafkaSettings, doing: str) -> BaseException:
    """Our error for theirs; what is not theirs comes back as it is."""
    if isinstance(error, VenusError) or not isinstance(error, (KafkaError, OSError, ValueError)):
        return error
    where = f"timeline {settings.url}: cannot {doing}"
    name = type(error).__name__
    for kinds, ours, words in _WORDS:
        if isinstance(error, kinds):
            return ours(
                f"{where}: {words.format(servers=settings.servers, topic=settings.topic)} ({name})"
            )
    if isinstance(error, KafkaError) and error.retriable:
        # kafka-python tries again after a refused login or handshake too, so these end here as well.
        protocol = settings.client.get("security_protocol", "PLAINTEXT")
        return TimelineUnavailable(
            f"{where}: {settings.servers} does not answer over {protocol}; is the broker running, and are "
            f"VENUS_KAFKA_SECURITY_PROTOCOL and the login right? ({name})"
        )
    # Their messages hold whole requests over many lines.
    lines = str(error).splitlines() or [name]
    return TimelineError(f"{where}: {lines[0][:300]}")


_WORDS: tuple[tuple[tuple[type[BaseException], ...], type[VenusError], str], ...] = (
    (
        (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError),
        TimelineError,
        "a record is larger than the broker takes; store the data in the blob store and refer to it by dataref",
    ),
    (
        (kafka_errors.OffsetOutOfRangeError, kafka_errors.LogTruncationError),
        TimelineError,
        "records of {topic} were deleted before they were read; set its retention.ms=-1, read again from the start",
    ),
    (
        (kafka_errors.AuthorizationError,),
        TimelineError,
        "this user may not do that with {topic}; ask for read, write, describe (and create) on it and {topic}.media",
    ),
    (
        (
            kafka_errors.SaslAuthenticationFailedError,
            kafka_errors.UnsupportedSaslMechanismError,
        ),
        TimelineError,
        "{servers} refused the login; check security_protocol, sasl_mechanism, user and password",
    ),
    (
        (kafka_errors.UnknownTopicOrPartitionError, kafka_errors.UnknownTopicIdError),
        TimelineError,
        "topic {topic} or {topic}.media is gone; was it deleted?",
    ),
    (
        (kafka_errors.NotEnoughReplicasError, kafka_errors.NotEnoughReplicasAfterAppendError),
        TimelineUnavailable,
        "too few replicas of {topic} are in sync; start the missing brokers",
    ),
    (
        (kafka_errors.InvalidReplicationFactorError,),
        TimelineError,
        "too few brokers for new topics",
    ),
    (
        (kafka_errors.KafkaConfigurationError, ValueError),
        BadInput,
        "a setting is not valid for Kafka",
    ),
    (
        (ConnectionError, TimeoutError),
        TimelineUnavailable,
        "{servers} does not answer; is the broker running?",
    ),
    ((OSError,), BadInput, "a certificate or key file cannot be read"),
)
