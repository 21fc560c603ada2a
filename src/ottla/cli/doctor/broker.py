"""A broker: whether it can be reached, what its listener speaks, and whether pipelines can work with it.

First each address is asked what it speaks, in plain text and in TLS, by requests that need no rights. So a client that
is set up for something else is told what to set. Then the client itself connects, as it is set up.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ConfigError, OttlaError
from ottla.base.words import counted
from ottla.cli.doctor.finding import Finding, error, ok, skipped, warning
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.client.config.security import Security
    from ottla.client.core.metadata import ClusterSnapshot, Node

_PATIENCE_S = 5.0
#: The largest answer that is waited for: a listener that is none of Kafka's may seem to announce more.
_MOST_BYTES = 1 << 20
_SIZE = struct.Struct(">i")
#: `kafka.transaction.timeout.ms` of the Spark sink, unless it is set.
_SINK_TIMEOUT_MS = 600_000
_LEDGER = "__ottla_ledger"


class Listener(NamedTuple):
    """What an address speaks."""

    tls: bool
    #: The mechanisms of SASL; none where nobody is asked who they are.
    mechanisms: tuple[str, ...]

    @property
    def protocol(self) -> str:
        """As in `security.protocol`."""
        return f"{'SASL_' if self.mechanisms else ''}{'SSL' if self.tls else 'PLAINTEXT'}"


def look(host: str, port: int) -> Listener | None:
    """What listens there; None if it is no broker, as far as can be seen. Raises OSError if nobody listens."""
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as plain:
        mechanisms = _asked(plain)
    if mechanisms is not None:
        return Listener(False, mechanisms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is told to it, and nothing is believed
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=host) as sealed:
                # A broker that asks for a client's certificate ends the connection here: then only TLS is known.
                return Listener(True, _asked(sealed) or ())
        except OSError:
            return None


def _asked(connection: socket.socket) -> tuple[str, ...] | None:
    """The mechanisms of SASL there, or none; None if it does not answer as a broker does."""
    try:
        _ask(connection, ApiKey.API_VERSIONS, 1, ApiVersionsRequest())
        _, shake = decode_response(
            ApiKey.SASL_HANDSHAKE, 1, _ask(connection, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN"))
        )
    except (OSError, OttlaError):
        return None
    assert isinstance(shake, SaslHandshakeResponse)
    return () if shake.error_code == ErrorCode.ILLEGAL_SASL_STATE else tuple(shake.mechanisms)


def _ask(connection: socket.socket, api: ApiKey, version: int, message: tuple[object, ...]) -> bytes:
    connection.sendall(encode_request(api, version, 1, "ottla-doctor", message))
    (size,) = _SIZE.unpack(_exactly(connection, 4))
    if not 4 <= size <= _MOST_BYTES:
        raise ConnectionError(f"an answer of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise ConnectionError("it has closed the connection")
        found += more
    return found


def check_broker(config: Mapping[str, object], *, named: bool) -> list[Finding]:
    """`config` is an admin client's. With `named` the user has said which broker; else a missing one is a warning."""
    from ottla.client.config.admin import admin_config

    try:
        client = admin_config(config)
    except ConfigError as wrong:
        return [error("client", str(wrong), "correct it in --config FILE or -o KEY=VALUE")]
    found: list[Finding] = []
    there: list[Listener] = []
    for host, port in client.bootstrap_addresses():
        finding, listener = _address(host, port, named=named)
        found.append(finding)
        there += [] if listener is None else [listener]
    if not there:
        return [*found, skipped("cluster", "no broker answers")]
    mismatch = _mismatch(client.security, there[0])
    if mismatch is not None:
        return [*found, mismatch, skipped("cluster", "the client is not set up for this listener")]
    return [*found, *_cluster(config)]


def _address(host: str, port: int, *, named: bool) -> tuple[Finding, Listener | None]:
    where = f"{host}:{port}"
    try:
        listener = look(host, port)
    except socket.gaierror as fault:
        advice = "correct the name in --bootstrap or bootstrap.servers, or let this machine resolve it"
        return error("broker", f"{where}: no address is known for {host} ({fault.strerror})", advice), None
    except OSError as fault:
        why = "no answer within 5 s" if isinstance(fault, TimeoutError) else fault.strerror or str(fault)
        advice = "is a broker running there? `ottla serve` starts one; --bootstrap HOST:PORT names another"
        return (error if named else warning)("broker", f"{where} cannot be reached: {why}", advice), None
    if listener is None:
        advice = "name another port in --bootstrap; a broker's is usually 9092 or 9093"
        return error("broker", f"what listens at {where} does not speak Kafka's protocol", advice), None
    offered = f" (it offers {', '.join(listener.mechanisms)})" if listener.mechanisms else ""
    return ok("broker", f"{where} speaks {listener.protocol}{offered}"), listener


def _mismatch(ours: Security, theirs: Listener) -> Finding | None:
    """What has to be set so that the client speaks what the listener speaks."""
    if ours.protocol != theirs.protocol:
        needs = f"set security.protocol={theirs.protocol}"
        if theirs.mechanisms and ours.sasl is None:
            needs += f", sasl.mechanism (one of {', '.join(theirs.mechanisms)}), sasl.username and sasl.password"
        if theirs.tls and ours.tls is None:
            needs += "; ssl.ca.location, if its certificate is signed by an authority of your own"
        said = f"the listener speaks {theirs.protocol}, and the client is set up for {ours.protocol}"
        return error("security", said, f"{needs} (in Spark with kafka. before each name), or name another port")
    if ours.sasl is not None and ours.sasl.mechanism not in theirs.mechanisms:
        said = f"the listener does not offer {ours.sasl.mechanism}"
        return error("security", said, f"set sasl.mechanism to one of {', '.join(theirs.mechanisms)}")
    return None


def _cluster(config: Mapping[str, object]) -> Iterator[Finding]:
    """What the client finds with its own settings: all brokers, and what pipelines ask for."""
    from ottla import Admin

    try:
        known = asyncio.run(_metadata(config))
        yield ok("cluster", f"cluster {known.cluster_id}, {counted(len(known.nodes), 'broker')}")
        unreachable = [each for each in map(_advertised, known.nodes.values()) if each is not None]
        yield from unreachable
        if unreachable:
            return
        with Admin(config) as admin:
            yield from _for_pipelines(admin, min(known.nodes))
    except OttlaError as fault:
        why = fault.__cause__ if isinstance(fault, TimeoutError) and fault.__cause__ is not None else fault
        advice = "correct user, password or certificates in --config FILE or -o KEY=VALUE (docs/security.md)"
        yield error("cluster", str(why), advice)


async def _metadata(config: Mapping[str, object]) -> ClusterSnapshot:
    """What a broker of `bootstrap.servers` says of all. No other broker is asked, for it may not be reachable."""
    from ottla.client.config.admin import admin_config
    from ottla.client.net.cluster import Cluster

    client = admin_config(config)
    cluster = Cluster(client, random.Random())
    try:
        await cluster.start()
        return await cluster.ensure_metadata(client.default_api_timeout_ms)
    finally:
        await cluster.close()


def _advertised(node: Node) -> Finding | None:
    try:
        socket.create_connection((node.host, node.port), timeout=_PATIENCE_S).close()
    except OSError as fault:
        said = (
            f"broker {node.node_id} tells clients to come to {node.host}:{node.port}, which this machine cannot reach"
        )
        advice = "set advertised.listeners of that broker to an address that Spark's machines reach"
        return error("advertised", f"{said} ({fault})", advice)
    return None


def _for_pipelines(admin: Admin, node_id: int) -> Iterator[Finding]:
    """The longest transaction that the broker allows, and the ledger."""
    from ottla.client.admin.types import ConfigResource, ResourceType
    from ottla.client.errors import KafkaError, UnknownTopicOrPartitionError

    broker, ledger = ConfigResource(ResourceType.BROKER, str(node_id)), ConfigResource(ResourceType.TOPIC, _LEDGER)
    try:
        longest = admin.describe_configs([broker])[broker].get("transaction.max.timeout.ms")
    except KafkaError as refused:
        yield skipped("transactions", f"the broker's settings cannot be read: {refused}")
    else:
        if longest is not None and longest.value is not None:
            yield _transactions(int(longest.value))
    try:
        topic = admin.describe_topics([_LEDGER])[_LEDGER]
        entries = admin.describe_configs([ledger])[ledger]
    except UnknownTopicOrPartitionError:
        yield ok("ledger", f"{_LEDGER} is not there yet; the first exactly-once sink makes it")
    except KafkaError as refused:
        yield skipped("ledger", f"{_LEDGER} cannot be looked at: {refused}")
    else:
        policy = entries["cleanup.policy"].value if "cleanup.policy" in entries else "compact"
        yield _ledger(len(topic.partitions), policy or "")


def _transactions(longest_ms: int) -> Finding:
    if longest_ms < _SINK_TIMEOUT_MS:
        said = f"the broker allows transactions of {longest_ms} ms, and the Spark sink asks for {_SINK_TIMEOUT_MS}"
        advice = (
            f"set the sink's kafka.transaction.timeout.ms to {longest_ms}, or the broker's transaction.max.timeout.ms"
        )
        return error("transactions", said, advice)
    return ok("transactions", f"transactions may take up to {longest_ms} ms")


def _ledger(partitions: int, policy: str) -> Finding:
    if partitions != 1 or "delete" in policy.split(","):
        said = f"{_LEDGER} has {counted(partitions, 'partition')} and cleanup.policy={policy}"
        advice = (
            "a ledger needs one partition and cleanup.policy=compact: alter it, or set the sink's option ledger.topic"
        )
        return error("ledger", said, advice)
    return ok("ledger", f"{_LEDGER} is there")
