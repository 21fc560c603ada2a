"""SPEC X1: our client on Apache Kafka, with every security protocol and mechanism; and where it must not work.

One broker with six listeners: TLS, TLS that asks for a certificate, SASL with and without TLS, an expired certificate,
and one for another host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla import Admin, AsyncAdmin, Consumer, NewTopic, Producer
from ottla.client.errors import AuthenticationError, ClientError, SaslAuthenticationError, SslAuthenticationError
from ottla.client.net.cluster import Cluster
from ottla.client.net.connection import Connection
from ottla.testing.ports import free_port
from tests.client.certificates import Authority
from tests.interop.apache import ApacheKafka, run_tool

pytestmark = pytest.mark.interop

_SECRET = 'a,b=c; "quoted" hunter2-wörd'
_LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAINSASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "EXPIRED": "SSL",
    "OTHERHOST": "SSL",
}
_MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}
_MODULES["SCRAM-SHA-512"] = _MODULES["SCRAM-SHA-256"]
#: The broker ends a session after so long; the client renews it when 85 to 95 % of that have passed.
_SESSION_MS = 2_000
_LEAST_HASTE_S = 0.05 * _SESSION_MS / 1000
#: How often a session is tried on a machine that stands still again and again.
_TRIES = 20


class Secure(NamedTuple):
    """A running broker, its ports by listener, and where the certificates are."""

    ports: dict[str, int]
    directory: Path
    plain_port: int

    def at(self, listener: str, **keys: object) -> dict[str, object]:
        """A configuration for a listener; keys with underscores for dots."""
        protocol = _LISTENERS[listener]
        ca = {"ssl.ca.location": str(self.directory / "authority.pem")} if protocol.endswith("SSL") else {}
        common = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": protocol,
            "default.api.timeout.ms": 60_000,
        }
        return {**common, **ca, **{name.replace("_", "."): value for name, value in keys.items()}}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _sasl_keys(listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    users = f'user_alice="{_escaped(_SECRET)}"'
    module = "org.apache.kafka.common.security"
    return {
        f"{prefix}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{prefix}plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {users};",
        f"{prefix}scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        f"{prefix}scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        f"{prefix}plain.connections.max.reauth.ms": str(_SESSION_MS),
        f"{prefix}scram-sha-256.connections.max.reauth.ms": str(_SESSION_MS),
    }


def _properties(value: str) -> str:
    """As a properties file has it: one backslash is two, and what is not Latin-1 is written as its number."""
    return "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in value.replace("\\", "\\\\"))


@pytest.fixture(scope="module")
def secure(apache_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    directory = tmp_path_factory.mktemp("secure")
    ours, theirs = Authority(directory, "authority"), Authority(directory, "stranger")
    here = ours.certificate("here", host="127.0.0.1")
    expired = ours.certificate("expired", host="127.0.0.1", days=(-9, -1))
    other = ours.certificate("other", host="kafka.example")
    ours.certificate("client", password="key-hunter2")
    theirs.certificate("unknown")
    ports = {listener: free_port() for listener in _LISTENERS}
    node = ApacheKafka(directory / "kafka")
    stores = dict.fromkeys(ports, here) | {"EXPIRED": expired, "OTHERHOST": other}
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for listener, store in stores.items():
        if _LISTENERS[listener].endswith("SSL"):
            prefix = f"listener.name.{listener.lower()}.ssl."
            config |= {f"{prefix}keystore.location": str(store), f"{prefix}truststore.location": str(ours.file)}
    config |= _sasl_keys("PLAINSASL") | _sasl_keys("SASLTLS")
    addresses = ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items())
    plain = f"PLAINTEXT://127.0.0.1:{node.port}"
    names = ",".join(f"{listener}:{protocol}" for listener, protocol in _LISTENERS.items())
    node.config |= {name: _properties(value) for name, value in config.items()} | {
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{node.controller_port},{addresses}",
        "advertised.listeners": f"{plain},{addresses}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{names}",
    }
    with node:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            entity = ("--entity-type", "users", "--entity-name", "alice")
            change = ("--alter", "--add-config", f"{mechanism}=[iterations=4096,password=scram-hunter2]")
            run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", node.bootstrap, *change, *entity)
        yield Secure(ports, directory, node.port)


def _password(mechanism: str) -> str:
    return _SECRET if mechanism == "PLAIN" else "scram-hunter2"


def _round_trip(config: dict[str, object], topic: str) -> None:
    """Admin, producer and consumer do their work."""
    common = {key: value for key, value in config.items() if key != "default.api.timeout.ms"}
    with Admin(config) as admin:
        admin.create_topics([NewTopic(topic)])
    with Producer(common) as producer:
        producer.send(topic, b"hello").result(60)
    with Consumer({**config, "auto.offset.reset": "earliest", "group.id": topic}) as consumer:
        consumer.subscribe([topic])
        records = consumer.poll(60.0)
        assert [record.value for record in records] == [b"hello"]


def test_x1_tls(secure: Secure, fresh: Callable[[str], str]) -> None:
    _round_trip(secure.at("TLS"), fresh("tls"))


def test_x1_mutual_tls_with_javas_keys_and_a_sealed_private_key(secure: Secure, fresh: Callable[[str], str]) -> None:
    keys: dict[str, object] = {
        "bootstrap.servers": f"127.0.0.1:{secure.ports['MUTUAL']}",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": (secure.directory / "authority.pem").read_text(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(secure.directory / "client.pem"),
        "ssl.key.password": "key-hunter2",
    }
    _round_trip(keys, fresh("mutual"))


@pytest.mark.parametrize("listener", ["PLAINSASL", "SASLTLS"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_x1_sasl(secure: Secure, listener: str, mechanism: str, fresh: Callable[[str], str]) -> None:
    config = secure.at(listener, sasl_mechanism=mechanism, sasl_username="alice", sasl_password=_password(mechanism))
    _round_trip(config, fresh("sasl"))


def test_x1_a_java_clients_settings(secure: Secure) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
    jaas += f'  username="alice" password="{_escaped(_SECRET)}";'
    with Admin(secure.at("SASLTLS", sasl_mechanism="PLAIN", sasl_jaas_config=jaas)) as admin:
        assert len(admin.describe_cluster().nodes) == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_x1_a_session_that_ends_after_two_seconds_is_renewed(secure: Secure, mechanism: str) -> None:
    """The broker closes a connection that is used after its session has ended (KIP-368).

    The client renews it a tenth of a second before that at the latest. Where this process or the broker stood still for
    so long, the renewal may have come too late, and nothing is known: then it is tried again.
    """
    config = secure.at("PLAINSASL", sasl_mechanism=mechanism, sasl_username="alice", sasl_password=_password(mechanism))
    async with AsyncAdmin(config) as admin:
        await admin.describe_cluster()
        cluster = admin._cluster
        (node_id,) = cluster.snapshot.nodes
        for _ in range(_TRIES):
            connection = await cluster.connection(node_id)
            assert connection.renewal is not None
            requests, longest_gap_s = await _used(cluster, connection, 4.5)
            if connection.is_open or longest_gap_s < _LEAST_HASTE_S:
                break
        assert connection.is_open, f"the broker has closed the connection after {requests} requests: it was not renewed"
        assert requests > 1


async def _used(cluster: Cluster, connection: Connection, for_s: float) -> tuple[int, float]:
    """Ask one question after the other, until the connection is closed or the time is over. Returns how many were
    answered, and the longest time between two answers."""
    loop = asyncio.get_running_loop()
    begun_s = last_s = loop.time()
    requests, longest_gap_s = 0, 0.0
    while connection.is_open and last_s < begun_s + for_s:
        await cluster.refreshed()
        now_s = loop.time()
        requests, longest_gap_s, last_s = requests + 1, max(longest_gap_s, now_s - last_s), now_s
    return requests, longest_gap_s


# what must not work, and says why


@pytest.mark.parametrize("listener", ["PLAINSASL", "SASLTLS"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_x1_a_wrong_password(secure: Secure, listener: str, mechanism: str) -> None:
    config = secure.at(listener, sasl_mechanism=mechanism, sasl_username="alice", sasl_password="not-hunter2")
    with Admin(config) as admin, pytest.raises(SaslAuthenticationError, match="refuses user alice") as refused:
        admin.list_topics()
    assert "not-hunter2" not in str(refused.value)


def test_x1_producer_and_consumer_say_that_the_password_is_wrong(secure: Secure) -> None:
    config = secure.at("PLAINSASL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="wrong-hunter2")
    with Consumer({**config, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(SaslAuthenticationError, match="refuses user alice"):
            while True:
                consumer.poll(60.0)
    del config["default.api.timeout.ms"]
    with Producer(config) as producer, pytest.raises(SaslAuthenticationError, match="refuses user alice"):
        producer.send("t", b"x").result(60)


def _refused(config: dict[str, object], kind: type[ClientError], words: str) -> None:
    with Admin(config) as admin, pytest.raises(kind, match=words):
        admin.list_topics()


def test_x1_a_mechanism_that_is_not_enabled(secure: Secure) -> None:
    config = secure.at("PLAINSASL", sasl_mechanism="OAUTHBEARER", oauth_cb=lambda config: "abc")
    config["oauth_cb"] = config.pop("oauth.cb")
    _refused(config, SaslAuthenticationError, "does not offer sasl.mechanism OAUTHBEARER; it offers: .*PLAIN")


def test_x1_certificates_that_cannot_be_trusted(secure: Secure) -> None:
    _refused(secure.at("EXPIRED"), SslAuthenticationError, "has expired")
    _refused(secure.at("OTHERHOST"), SslAuthenticationError, "for another host")
    stranger = str(secure.directory / "stranger.pem")
    _refused(secure.at("TLS", ssl_ca_location=stranger), SslAuthenticationError, "authority that is not known")
    with Admin(secure.at("OTHERHOST", ssl_endpoint_identification_algorithm="")) as admin:
        assert len(admin.describe_cluster().nodes) == 1


def test_x1_a_client_without_the_certificate_that_is_asked_for(secure: Secure) -> None:
    _refused(secure.at("MUTUAL"), SslAuthenticationError, "asks for a certificate of this client")
    unknown = str(secure.directory / "unknown.pem")
    _refused(secure.at("MUTUAL", ssl_certificate_location=unknown), SslAuthenticationError, "does not trust")


def test_x1_one_side_speaks_tls_and_the_other_does_not(secure: Secure) -> None:
    plain: dict[str, object] = {
        "bootstrap.servers": f"127.0.0.1:{secure.ports['TLS']}",
        "default.api.timeout.ms": 3_000,
    }
    _refused(plain, ClientError, "speaks TLS|security.protocol")
    tls = {**secure.at("TLS", default_api_timeout_ms=3_000), "bootstrap.servers": f"127.0.0.1:{secure.plain_port}"}
    _refused(tls, ClientError, "speaks no TLS|does not speak TLS")


def test_x1_one_side_speaks_sasl_and_the_other_does_not(secure: Secure) -> None:
    where: dict[str, object] = {
        "bootstrap.servers": f"127.0.0.1:{secure.plain_port}",
        "security.protocol": "SASL_PLAINTEXT",
    }
    sasl: dict[str, object] = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "x"}
    _refused({**where, **sasl}, AuthenticationError, "asks nobody who they are")
    plain: dict[str, object] = {
        "bootstrap.servers": f"127.0.0.1:{secure.ports['PLAINSASL']}",
        "default.api.timeout.ms": 3_000,
    }
    _refused(plain, ClientError, "security.protocol is not that of its listener")
