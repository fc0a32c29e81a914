"""A real Apache Kafka for tests, started once a session from `KAFKA_HOME` (any unpacked Kafka 4.x; Java 17 on PATH).

Import the fixtures into a folder's conftest: `from tests.support.kafka import kafka_broker, own_kafka_broker`.
`kafka_broker` is shared: give every test a topic of its own (`broker.topic()`). A test that crashes its broker takes
`own_kafka_broker`. Without Kafka these tests skip with one line; in CI (`CI=true`) they fail instead, so that a lane
cannot vanish unnoticed.
"""

import base64
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

_READY_S = 60.0
_STOP_S = 20.0


class Broker:
    """One node (KRaft: broker and controller in one process) on loopback, its data under `folder`.

    `more` holds further settings (the last of a name wins) with `{port}` and `{controller}` to fill in.
    """

    def __init__(self, home: Path, folder: Path, more: str = "") -> None:
        self._libs, self._folder = home / "libs", folder
        self.port, controller = _free_ports()
        self.server = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = folder / "server.properties"
        self._logging = folder / "log4j2.properties"
        self._settings.write_text(
            (_SETTINGS + more).format(port=self.port, controller=controller, folder=folder)
        )
        self._logging.write_text(_LOGGING)
        self._run_tool("format", "--standalone", "-t", _cluster_id(), "-c", str(self._settings))

    def url(self, topic: str, query: str = "") -> str:
        return f"kafka://{self.server}/{topic}" + (f"?{query}" if query else "")

    @staticmethod
    def topic() -> str:
        """A topic name that no other test has."""
        return f"t-{uuid.uuid4().hex[:12]}"

    def start(self) -> None:
        with (self._folder / "broker.log").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(self._settings)], stdout=out, stderr=out
            )
        deadline = time.monotonic() + _READY_S
        while not _accepts(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self._folder / "broker.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"Kafka did not start:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        """A crash; `start` goes on with what it held."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _java(self) -> list[str]:
        return [
            "java",
            "-Xmx384m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._logging}",
            "-cp",
            f"{self._libs}/*",
        ]

    def _run_tool(self, *arguments: str) -> None:
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=_READY_S,
        )
        if done.returncode:
            raise RuntimeError(
                f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}"
            )


# The short session lets a killed broker register again at once instead of after 9 s.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

_LOGGING = """\
rootLogger.level=WARN
rootLogger.appenderRef.err.ref=err
appender.err.type=Console
appender.err.name=err
appender.err.target=SYSTEM_ERR
appender.err.layout.type=PatternLayout
appender.err.layout.pattern=%d %-5p %c{1}: %m%n
"""


def _cluster_id() -> str:

    # 16 bytes in URL-safe base64; the first is 0, since an id that starts with "-" reads as an option.
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode()[:22]


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        for held in (one, two):
            held.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def what_is_missing() -> str:
    """What the Kafka tests need and this machine lacks, in one line; empty when all is there."""
    home = os.environ.get("KAFKA_HOME", "")
    if not home:
        return "KAFKA_HOME is not set: unpack Apache Kafka 4.x and set KAFKA_HOME to its folder"
    if not any(Path(home, "libs").glob("kafka_*.jar")):
        return (
            f"KAFKA_HOME={home} holds no libs/kafka_*.jar: set it to an unpacked Apache Kafka 4.x"
        )
    if shutil.which("java") is None:
        return "java is not on PATH: install Java 17 or newer for the Kafka tests"
    return ""


def kafka_home() -> Path:
    """Where Kafka is, or the end of this test: a skip, and in CI a failure."""
    missing = what_is_missing()
    if not missing:
        return Path(os.environ["KAFKA_HOME"]).resolve()
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    yield from _broker(tmp_path_factory)


@pytest.fixture(scope="module")
def own_kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of one module may crash; they leave it running."""
    yield from _broker(tmp_path_factory)


def _broker(folders: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(kafka_home(), folders.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
