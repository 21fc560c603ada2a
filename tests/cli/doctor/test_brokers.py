"""`ottla doctor`: brokers that are not there, listeners that speak something else than the client, and pipelines."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla import Admin, NewTopic
from ottla.cli.doctor.broker import check_broker
from ottla.cli.doctor.finding import Status
from ottla.testing import Broker
from ottla.testing.ports import free_port
from tests.cli.conftest import Ottla
from tests.client.certificates import Authority

_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-hunter2";'


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pem")
    authority = Authority(directory, "authority")
    Authority(directory, "stranger")
    authority.certificate("here", host="127.0.0.1")
    return directory


@pytest.fixture(scope="module")
def guarded(pem: Path) -> Iterator[Broker]:
    """A broker with a listener of each protocol."""
    with Broker(
        {
            "listeners": ",".join(
                f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _JAAS,
            "connection.failed.authentication.delay.ms": "0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pem / "here.pem"),
        }
    ) as broker:
        yield broker


def config(bootstrap: str, pem: Path, protocol: str, **more: str) -> dict[str, object]:
    """A client's, set up well for `protocol`; keys with underscores for dots."""
    own: dict[str, object] = {"bootstrap.servers": bootstrap, "security.protocol": protocol}
    own |= {"default.api.timeout.ms": 10_000, "request.timeout.ms": 10_000}
    if protocol.endswith("SSL"):
        own["ssl.ca.location"] = str(pem / "authority.pem")
    if protocol.startswith("SASL"):
        own |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-hunter2"}
    return {**own, **{name.replace("_", "."): value for name, value in more.items()}}


def found_by(config: Mapping[str, object], *, named: bool = True) -> dict[str, tuple[Status, str]]:
    return {each.check: (each.status, f"{each.found} -> {each.advice}") for each in check_broker(config, named=named)}


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.mark.parametrize("theirs", _PROTOCOLS)
@pytest.mark.parametrize("ours", _PROTOCOLS)
def test_x1_what_is_to_be_set_is_told_for_every_pair(guarded: Broker, pem: Path, ours: str, theirs: str) -> None:
    found = found_by(config(guarded.listener(theirs), pem, ours))
    assert found["broker"][0] is Status.OK
    assert f"speaks {theirs}" in found["broker"][1]
    if ours == theirs:
        assert {status for status, _ in found.values()} == {Status.OK}
        assert set(found) == {"broker", "cluster", "transactions", "ledger"}
    else:
        assert found["security"][0] is Status.ERROR
        assert f"set security.protocol={theirs}" in found["security"][1]
        assert ("sasl.mechanism (one of PLAIN)" in found["security"][1]) == ("SASL" in theirs and "SASL" not in ours)


@pytest.mark.parametrize(
    ("protocol", "wrong", "check", "why"),
    [
        ("SASL_PLAINTEXT", {"sasl_password": "hunter2"}, "cluster", "Invalid username or password"),
        ("SASL_SSL", {"sasl_mechanism": "SCRAM-SHA-256"}, "security", "does not offer SCRAM-SHA-256"),
        ("SSL", {"ssl_ca_location": "stranger.pem"}, "cluster", "an authority that is not known here"),
        ("SSL", {"ssl_ca_location": "not-there.pem"}, "cluster", "cannot be read"),
        ("SSL", {"ssl_truststore_location": "a.jks"}, "client", "ssl.truststore.type"),
    ],
)
def test_x1_a_wrong_password_mechanism_or_authority_is_found(
    guarded: Broker, pem: Path, protocol: str, wrong: dict[str, str], check: str, why: str
) -> None:
    more = {name: str(pem / value) if "." in value else value for name, value in wrong.items()}
    found = found_by(config(guarded.listener(protocol), pem, protocol, **more))
    assert found[check][0] is Status.ERROR
    assert why in found[check][1]
    assert "hunter2" not in str(found)


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """Something that is no broker. With None it says nothing and hangs up."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(1024)
                if answer is not None:
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x05\x00\x00\x00\x01\x00"])
def test_what_is_no_broker_is_found(answer: bytes | None) -> None:
    with listening(answer) as where:
        found = found_by({"bootstrap.servers": where})
    assert found["broker"][0] is Status.ERROR
    assert "does not speak Kafka's protocol" in found["broker"][1]


def test_a_broker_that_is_not_there_is_an_error_if_somebody_has_named_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
    for named, status in ((True, Status.ERROR), (False, Status.WARNING)):
        found = found_by({"bootstrap.servers": where}, named=named)
        assert found["broker"][0] is status
        assert "`ottla serve` starts one" in found["broker"][1]
        assert found["cluster"][0] is Status.SKIPPED
    unknown = found_by({"bootstrap.servers": "no-such-host.invalid:9092"})
    assert "no address is known for no-such-host.invalid" in unknown["broker"][1]


def test_an_address_that_clients_cannot_reach_is_found() -> None:
    gone = free_port()
    with Broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{gone}"}) as broker:
        found = found_by({"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": 10_000})
    assert found["advertised"][0] is Status.ERROR
    assert f"come to 127.0.0.1:{gone}" in found["advertised"][1]


def test_a_broker_that_pipelines_cannot_use_is_found() -> None:
    with Broker({"transaction.max.timeout.ms": "60000"}) as broker:
        with Admin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("__ottla_ledger", 3, 1, {"cleanup.policy": "delete"})])
        found = found_by({"bootstrap.servers": broker.bootstrap_servers})
    assert found["transactions"][0] is found["ledger"][0] is Status.ERROR
    assert "kafka.transaction.timeout.ms to 60000" in found["transactions"][1]
    assert "has 3 partitions and cleanup.policy=delete" in found["ledger"][1]


def test_the_command_asks_the_broker_that_is_named(ottla: Ottla, tmp_path: Path) -> None:
    said = ottla("doctor", "--no-spark", "--data-dir", str(tmp_path))
    assert said.code == 0
    assert "speaks PLAINTEXT" in said.out
    wrong = ottla("doctor", "--no-spark", "--data-dir", str(tmp_path), "-o", "security.protocol=SSL", "--json")
    assert wrong.code == 1
    assert [each["check"] for each in wrong.data if each["status"] == "error"] == ["security"]
