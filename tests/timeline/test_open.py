"""`open_timeline`: what URLs mean, and that every wrong one is one line that says how to mend it."""

import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from infra.timeline import open_timeline
from infra.timeline.headers import decode_headers, encode_headers
from infra.timeline.kafka_settings import kafka_settings
from infra.timeline.partition import murmur2, partition_of
from infra.timeline.url import parse_url
from schemas.errors import BadInput, TimelineError
from tests.timeline.helpers import numbered

pytestmark = pytest.mark.timeline


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("out/x.db", "is not a URL"),
        ("", "is not a URL"),
        ("redis://host/x", "unknown kind of timeline 'redis'"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///out/", "names no file"),
        ("sqlite://out/x.db", "three slashes"),
        ("sqlite:////tmp", "is a folder"),
        ("sqlite:///x.db?sync=full", "unknown setting 'sync'; sqlite:// knows synchronous"),
        ("sqlite:///x.db?synchronous=off", "use one of normal, full"),
        ("sqlite:///x.db?synchronous", "not a valid URL"),
        ("sqlite:///x.db#part", "%23"),
        ("sqlite:///x%00.db", "NUL"),
        ("memory://a/b", "takes a name and no path"),
        ("memory://a?partitions=0", "whole number from 1"),
        ("memory://a?partitions=two", "whole number from 1"),
        ("memory://a?partitions=٣", "whole number from 1"),
        ("memory://a?partitions=1&partitions=2", "given twice"),
        ("kafka://", "names no broker"),
        ("kafka:///topic", "names no broker"),
        ("kafka://host/topic", "'host' is not host:port"),
        ("kafka://host:99999/topic", "is not host:port"),
        ("kafka://host:9092", "names no topic"),
        ("kafka://host:9092/", "names no topic"),
        ("kafka://host:9092/a/b", "cannot be a topic"),
        ("kafka://host:9092/" + "x" * 245, "cannot be a topic"),
        ("kafka://host:9092/t?partition=3", "unknown setting 'partition'"),
        ("kafka://host:9092/t?security_protocol=TLS", "security_protocol is 'TLS'"),
        ("kafka://host:9092/t?security_protocol=SASL_SSL", "no sasl_mechanism"),
        ("kafka://me:hush@host:9092/t", "VENUS_KAFKA_SASL_PLAIN_PASSWORD"),
    ],
)
def test_a_wrong_url_is_one_clear_line(url: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_timeline(url)
    line = str(caught.value)
    assert says in line and "\n" not in line and "hush" not in line


def test_a_named_memory_log_is_shared_within_the_process() -> None:
    name = uuid.uuid4().hex
    with open_timeline(f"memory://{name}?partitions=2") as first:
        first.append(numbered("s", 1))
    with open_timeline(f"memory://{name}", create=False) as second:
        assert sum(second.end().values()) == 1
        assert second.partitions == 2
    with pytest.raises(BadInput, match="exists with 2 partitions"):
        open_timeline(f"memory://{name}?partitions=3")


def test_memory_logs_without_a_name_are_apart() -> None:
    with open_timeline("memory://") as first, open_timeline("memory://") as second:
        first.append(numbered("s", 1))
        assert second.end() == {0: 0}


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_timeline("sqlite:///out/a%20b%3F.db").close()
    assert (tmp_path / "out" / "a b?.db").is_file()
    open_timeline(f"sqlite:///{tmp_path}/abs.db").close()
    assert (tmp_path / "abs.db").is_file()


def test_looking_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(TimelineError, match="there is no file"):
        open_timeline(f"sqlite:///{tmp_path}/sub/none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_kafka_settings_come_from_the_url_or_the_environment_and_secrets_are_not_shown() -> None:
    url = parse_url(
        "kafka://a:1,b:2/t?partitions=3&sasl_plain_username=me&ssl_password=hush", known=("kafka",)
    )
    environ = {
        "VENUS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "VENUS_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "VENUS_KAFKA_SASL_PLAIN_USERNAME": "other",
        "VENUS_KAFKA_SASL_PLAIN_PASSWORD": "hush",
        "VENUS_KAFKA_SSL_CHECK_HOSTNAME": "false",
    }
    read = kafka_settings(url, environ)
    assert (read.servers, read.topic, read.media_topic, read.partitions) == (
        "a:1,b:2",
        "t",
        "t.media",
        3,
    )
    assert read.client["bootstrap_servers"] == ["a:1", "b:2"]
    assert read.client["security_protocol"] == "SASL_SSL"
    assert read.client["sasl_plain_username"] == "me"  # the URL wins
    assert read.client["sasl_plain_password"] == read.client["ssl_password"] == "hush"
    assert read.client["ssl_check_hostname"] is False
    assert "hush" not in repr(read) and "hush" not in repr(url)
    assert "ssl_password=***" in read.url


@given(st.binary(max_size=70))
def test_murmur2_is_the_one_of_kafka_python(data: bytes) -> None:
    assert murmur2(data) == kafka_python_murmur2(data)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 100))
def test_partitions_are_those_of_librdkafka(key: str, partitions: int) -> None:
    librdkafka = pytest.importorskip(
        "confluent_kafka", reason="pip install confluent-kafka to compare"
    )
    assert partition_of(key, partitions) == librdkafka.murmur2(key.encode(), partitions)


def test_murmur2_gives_the_values_of_kafkas_own_tests() -> None:
    # org.apache.kafka.common.utils.UtilsTest.testMurmur2, as signed 32-bit numbers there.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {data: murmur2(data) for data in known} == {d: n & 0xFFFFFFFF for d, n in known.items()}


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.binary())).map(tuple)
)
def test_any_headers_survive_the_blob(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


@pytest.mark.parametrize("blob", [b"\0\1", b"\0\xff\0\0\0a", b"a\0b\0\0only", b"\xff\0\0v"])
def test_a_blob_that_is_no_headers_is_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError):
        decode_headers(blob)
