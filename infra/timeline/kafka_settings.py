"""`kafka://` URLs and `VENUS_KAFKA_*` variables → kafka-python settings.

Every connection setting below can stand in the URL's query (`?security_protocol=SASL_SSL`) or in the environment
(`VENUS_KAFKA_SECURITY_PROTOCOL=SASL_SSL`); the URL wins. Secrets belong in the environment; `url` never shows them.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.timeline.url import TimelineUrl

# Without this, a program that sets up no logging prints each of kafka-python's connection attempts on stderr.
logging.getLogger("kafka").addHandler(logging.NullHandler())

# Passed through to kafka-python under the same name.
_TEXT = (
    "security_protocol",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_ciphers",
)
_YES_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_MEDIA_SUFFIX = ".media"
_LONGEST_TOPIC = 249 - len(_MEDIA_SUFFIX)

# How long to wait for a broker at the start: long enough for a slow TLS handshake, short enough for a person.
BOOTSTRAP_MS = 5_000


@dataclass(frozen=True)
class KafkaSettings:
    """What a URL and the environment say about a Kafka timeline."""

    url: str
    servers: str
    topic: str
    partitions: int | None
    compression: str | None
    client: dict[str, Any] = field(repr=False)

    @property
    def media_topic(self) -> str:
        return self.topic + _MEDIA_SUFFIX


def kafka_settings(url: TimelineUrl, environ: Mapping[str, str]) -> KafkaSettings:
    servers = _servers(url)
    topic = url.path.removeprefix("/")
    if not topic:
        raise url.bad("names no topic; write kafka://host:port/topic")
    if not _TOPIC.fullmatch(topic) or len(topic) > _LONGEST_TOPIC or topic in (".", ".."):
        raise url.bad(
            f"{topic!r} cannot be a topic; use at most {_LONGEST_TOPIC} of A-Z a-z 0-9 . _ -"
        )
    partitions = url.take_partitions()
    compression = url.take_choice("compression", ("none", "lz4", "gzip"), "none")
    client = _client(url, environ)
    url.finish()
    return KafkaSettings(
        url.shown,
        ",".join(servers),
        topic,
        partitions,
        None if compression == "none" else compression,
        {
            **client,
            "bootstrap_servers": servers,
            "bootstrap_timeout_ms": BOOTSTRAP_MS,
            # A restarted broker is found again within a second, not half a minute.
            "reconnect_backoff_max_ms": 1_000,
        },
    )


def _servers(url: TimelineUrl) -> list[str]:
    servers = [server for server in url.authority.split(",") if server]
    if not servers:
        raise url.bad("names no broker; write kafka://host:port/topic")
    for server in servers:
        host, _, port = server.rpartition(":")
        if not (host and port.isascii() and port.isdecimal() and 0 < int(port[:9]) < 65536):
            raise url.bad(f"{server!r} is not host:port")
    return servers


def _client(url: TimelineUrl, environ: Mapping[str, str]) -> dict[str, Any]:
    def setting(name: str) -> str | None:
        in_url = url.take(name)
        return environ.get(f"VENUS_KAFKA_{name.upper()}") if in_url is None else in_url

    client: dict[str, Any] = {}
    for name in _TEXT:
        value = setting(name)
        if value is not None:
            client[name] = value
    check = setting("ssl_check_hostname")
    if check is not None:
        if check.lower() not in _YES_NO:
            raise url.bad("ssl_check_hostname is true or false")
        client["ssl_check_hostname"] = _YES_NO[check.lower()]
    protocol = client.get("security_protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise url.bad(f"security_protocol is {protocol!r}; use one of {', '.join(_PROTOCOLS)}")
    if protocol.startswith("SASL") and "sasl_mechanism" not in client:
        raise url.bad("security_protocol asks for SASL, but there is no sasl_mechanism")
    if "sasl_plain_password" in client or "ssl_password" in client:
        # At DEBUG kafka-python logs its whole configuration and every byte it sends, passwords included.
        logging.getLogger("kafka").setLevel(logging.INFO)
    return client
