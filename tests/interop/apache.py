"""Apache Kafka as a peer: its jars, its command-line tools, and KRaft nodes that can be killed and restarted.

The jars are fetched by name through Maven, once, into `.cache/kafka` of the checkout. Where Java or Maven is missing
`MissingPeerError` says which; the fixtures in `conftest.py` turn that into a skip, or into a failure when CI=true.

    with ApacheKafka(directory, {"transaction.max.timeout.ms": "60000"}) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        kafka.kill9()
        kafka.restart()
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from ottla.base.types import topic_id_text
from ottla.broker.metadata.properties import new_uuid
from ottla.testing.ports import free_port

KAFKA_VERSION = "4.3.0"
_ROOT = Path(__file__).resolve().parents[2]
_CACHE = _ROOT / ".cache" / "kafka"
# These end a hang: a start takes ten seconds, and several times as long on a machine that does much else.
_READY_TIMEOUT_S = 240.0
_STOP_TIMEOUT_S = 120.0
_TOOL_TIMEOUT_S = 240.0
_FETCHES = 3
#: Small offsets and transaction logs: the first commit of a fresh node creates them; 50 partitions each cost seconds.
_DEFAULTS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.two.phase.commit.enable": "true",
    # The tests' records have timestamps of 1970, and the first look at what is too old comes after 30 s.
    "log.retention.hours": "-1",
}


_CLUSTER_DEFAULTS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # A node that was killed is missed soon, and leads again soon after it came back.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "4000",
    "leader.imbalance.check.interval.seconds": "5",
}


class MissingPeerError(Exception):
    """Apache Kafka cannot be had on this machine; the message says what is missing."""


class PeerFailedError(Exception):
    """Apache Kafka or one of its tools did not do what it was started for; the message ends with its log's tail."""


def java() -> str:
    """The `java` to start, or MissingPeerError."""
    found = shutil.which("java")
    if found is None:
        raise MissingPeerError("Apache Kafka needs Java 17 or newer: `java` is not on the PATH")
    return found


def jars() -> Path:
    """The directory with Apache Kafka's jars, fetched through Maven on first use; else MissingPeerError."""
    return _fetched("kafka-pom.xml", KAFKA_VERSION)


def program_jars() -> Path:
    """The directory with the jars of Kafka Streams, Connect and MirrorMaker 2; else MissingPeerError."""
    return _fetched("kafka-programs-pom.xml", f"programs-{KAFKA_VERSION}")


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector, for `spark.jars`; else MissingPeerError."""
    return sorted(_fetched("spark-connector-pom.xml", "spark-connector").glob("*.jar"))


def _fetched(pom: str, name: str) -> Path:
    java()
    libs = _CACHE / name / "libs"
    with alone_in_cache():
        if not libs.is_dir():
            _fetch(Path(__file__).with_name(pom), libs)
    return libs


@contextmanager
def alone_in_cache() -> Iterator[None]:
    """What is made once for all is made by one process: several test processes may start at once."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(pom: Path, libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPeerError("the peers' jars are fetched by Maven: `mvn` is not on the PATH")
    part = libs.with_name("libs.part")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={part}"]
    said = ""
    for _ in range(_FETCHES):  # a connection may break; what has come stays in Maven's own cache
        shutil.rmtree(part, ignore_errors=True)
        done = subprocess.run([maven, "-q", "-B", "-f", str(pom), *goal], capture_output=True, text=True, check=False)
        if done.returncode == 0 and part.is_dir():
            part.rename(libs)
            return
        said = (done.stdout + done.stderr)[-800:]
    raise MissingPeerError(f"Maven could not fetch the jars of {pom.name}: {said}")


def _tool_command(main_class: str, arguments: tuple[str, ...]) -> list[str]:
    # One compiler tier and the serial collector: a tool lives for seconds, on a machine with two cores.
    flags = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    name = main_class if main_class.startswith(("org.", "kafka.")) else f"org.apache.kafka.tools.{main_class}"
    return [java(), *flags, "-cp", f"{jars()}/*", name, *arguments]


def run_tool(
    main_class: str, *arguments: str, stdin: str | None = None, timeout_s: float = _TOOL_TIMEOUT_S, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's command-line tools to its end.

    `main_class` is a full class name, or one inside `org.apache.kafka.tools` (`"consumer.group.ConsumerGroupCommand"`).
    PeerFailedError when `check` and it exits non-zero; subprocess.TimeoutExpired after `timeout_s`.
    """
    command = _tool_command(main_class, arguments)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    if check and done.returncode != 0:
        raise PeerFailedError(f"{main_class} exited {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done


def start_tool(main_class: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a tool that runs until told to end (VerifiableConsumer…); stdin and stdout (with stderr) are pipes."""
    return subprocess.Popen(
        _tool_command(main_class, arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answers_api_versions(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a broker at the address answers an ApiVersions v0 request without an error."""
    body = struct.pack(">hhih", 18, 0, 1, -1)  # api key, version, correlation id, null client id
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = b""
            while len(answer) < 10:
                got = connection.recv(4096)
                if not got:
                    return False
                answer += got
    except OSError:
        return False
    _length, correlation_id, error_code = struct.unpack_from(">iih", answer)
    return bool(correlation_id == 1 and error_code == 0)


class ApacheKafka:
    """One KRaft node of Apache Kafka (broker and controller) on free ports, its files below `directory`.

    `config` overrides any broker key; `flags` are more of Java's; `ready_timeout_s` is how long a start may take.
    `data_dir` is the log directory, `log_path` what the node printed.
    """

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, str] | None = None,
        *,
        heap: str = "512M",
        flags: Sequence[str] = (),
        cluster_id: str | None = None,
        ready_timeout_s: float = _READY_TIMEOUT_S,
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "kafka.log"
        self.host = "127.0.0.1"
        self.port = free_port()
        self.controller_port = free_port()
        self.config = dict(config or {})
        self._heap = heap
        self._flags = tuple(flags)
        self._ready_timeout_s = ready_timeout_s
        self._cluster_id = cluster_id or topic_id_text(new_uuid(random.SystemRandom()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running node."""
        if self._process is None:
            raise PeerFailedError("Apache Kafka is not running")
        return self._process.pid

    def __enter__(self) -> ApacheKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def prepare(self) -> list[str]:
        """Write the properties, format the directory where that is still to do; the command that starts the node."""
        properties = self._write_properties()
        if not (self.data_dir / "meta.properties").exists():
            self.format()
        flags = [f"-Xmx{self._heap}", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", *self._flags]
        return [java(), *flags, "-cp", f"{jars()}/*", "kafka.Kafka", str(properties)]

    def format(self, *arguments: str) -> None:
        """Format the directory; `arguments` are more of `kafka-storage format`."""
        properties = self._write_properties()
        run_tool("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties), *arguments)

    def start(self) -> None:
        """Format the directory where that is still to do, start the node, return when it answers ApiVersions."""
        command = self.prepare()
        with self.log_path.open("ab") as log:
            # Its own session: Ctrl-C in a test run must not end the node before the fixture does.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._await_ready()

    def stop(self) -> None:
        """End the node with SIGTERM (SIGKILL when it does not go in time). No-op when it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill9(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        """SIGSTOP: it holds its connections and says nothing, as in a long pause of its collector or its disk.

        On return none of its threads runs any more.
        """
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        """Let it go on: it does not know yet what happened meanwhile."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start again on the same directory and ports, after `kill9` or `stop` (stops first when still running)."""
        self.stop()
        self.start()

    def tick(self) -> None:
        """Let a tenth of a second pass. PeerFailedError when the node ends meanwhile, or does not run."""
        if self._process is None:
            raise PeerFailedError("Apache Kafka is not running")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.1)
            raise PeerFailedError(f"Apache Kafka exited {self._process.returncode}: {self.log_tail()}")

    def log_tail(self, size: int = 3000) -> str:
        """The last characters of what the node printed."""
        return self.log_path.read_text(errors="replace")[-size:] if self.log_path.exists() else ""

    def _write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = {
            **_DEFAULTS,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data_dir),
            **self.config,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value))
        return path

    def _await_ready(self) -> None:
        process = self._process
        if process is None:
            raise PeerFailedError("Apache Kafka is not running")
        deadline = time.monotonic() + self._ready_timeout_s
        while not answers_api_versions("127.0.0.1", self.port):
            try:
                process.wait(0.1)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self.kill9()
                raise PeerFailedError(
                    f"Apache Kafka not ready in {self._ready_timeout_s:.0f} s: {self.log_tail()}"
                ) from None
            self._process = None
            raise PeerFailedError(f"Apache Kafka exited {process.returncode} while starting: {self.log_tail()}")


class ApacheCluster:
    """Three nodes, each broker and controller; every topic has three replicas, and two must have a record."""

    def __init__(self, directory: Path) -> None:
        cluster_id = topic_id_text(new_uuid(random.SystemRandom()))
        self.nodes = [
            ApacheKafka(directory / str(node_id), {"node.id": str(node_id)}, heap="320M", cluster_id=cluster_id)
            for node_id in (1, 2, 3)
        ]
        voters = ",".join(f"{n}@127.0.0.1:{node.controller_port}" for n, node in enumerate(self.nodes, 1))
        for node in self.nodes:
            node.config.update(_CLUSTER_DEFAULTS | {"controller.quorum.voters": voters})

    @property
    def bootstrap(self) -> str:
        """All nodes, for `bootstrap.servers`."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node_id(self, node: ApacheKafka) -> int:
        """The id that brokers and clients know it by."""
        return self.nodes.index(node) + 1

    def start(self, nodes: Iterable[ApacheKafka] | None = None) -> None:
        """Start the nodes (all, unless told which) at once: one alone is no quorum and does not answer."""
        with ThreadPoolExecutor() as together:
            for _ in together.map(ApacheKafka.start, self.nodes if nodes is None else nodes):
                pass

    def __enter__(self) -> ApacheCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()

    def kill9(self) -> None:
        """SIGKILL to all that run: one that ends in order waits for the others to take over."""
        for node in self.nodes:
            node.kill9()


def in_ci() -> bool:
    """Whether a missing peer must be a failure rather than a skip."""
    return os.environ.get("CI", "").lower() in {"true", "1"}
