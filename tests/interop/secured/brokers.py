"""Our broker and Apache Kafka with the same listeners, users, keys and certificates.

Plain text for those who set it up; TLS; TLS that asks for a certificate; SASL with and without TLS; an expired
certificate; one for another host.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla import Admin, ScramMechanism, SetScramCredential
from ottla.base.secret import Secret
from ottla.testing import Broker
from ottla.testing.ports import free_port
from tests.broker.authentication.token_issuer import Issuer
from tests.client.certificates import Authority
from tests.interop.apache import ApacheKafka
from tests.interop.secured.java import allowing
from tests.interop.secured.where import USER, Where

LISTENERS: Final = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAINSASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "EXPIRED": "SSL",
    "OTHERHOST": "SSL",
}
PASSWORDS: Final = {"PLAIN": "plain-hunter2", "SCRAM-SHA-256": "scram-hunter2", "SCRAM-SHA-512": "scram-hunter2"}
MECHANISMS: Final = (*PASSWORDS, "OAUTHBEARER")
_ISSUER: Final = "https://issuer"
_MODULES: Final = "org.apache.kafka.common.security"
_HOUR_S: Final = 3_600


class Files(NamedTuple):
    """Certificates, keys and tokens, made anew for each run. Tokens by name: right, wrong, expired."""

    directory: Path
    tokens: dict[str, str]

    def pem(self, name: str) -> str:
        """The file of a certificate or an authority."""
        return str(self.directory / f"{name}.pem")

    def token_file(self, name: str) -> str:
        """The file with a token."""
        return str(self.directory / f"{name}.key")

    @property
    def keys(self) -> Path:
        """By which the broker verifies tokens."""
        return self.directory / "keys.json"

    def store(self, listener: str) -> str:
        """The key and certificate of a listener."""
        return self.pem({"EXPIRED": "expired", "OTHERHOST": "other"}.get(listener, "here"))


class Secured(NamedTuple):
    """A running broker: its ports by listener."""

    name: str
    ports: dict[str, int]
    files: Files

    def at(
        self,
        listener: str,
        mechanism: str | None = None,
        *,
        secret: str = "right",
        authority: str = "authority",
        certificate: str | None = None,
    ) -> Where:
        """How a client gets there. `secret` is right, wrong or expired; the last two are names of files."""
        protocol, is_token = LISTENERS[listener], mechanism == "OAUTHBEARER"
        password = PASSWORDS.get(mechanism or "") if secret == "right" else "not-hunter2"
        return Where(
            f"localhost:{self.ports[listener]}",
            protocol,
            self.files.pem(authority) if protocol.endswith("SSL") else None,
            None if certificate is None else self.files.pem(certificate),
            mechanism,
            self.files.tokens[secret] if is_token else password,
            self.files.token_file(secret) if is_token else None,
        )


def make_files(directory: Path) -> Files:
    """Everything that brokers and clients need."""
    authority, stranger = Authority(directory, "authority"), Authority(directory, "stranger")
    authority.certificate("here", host="localhost")
    authority.certificate("expired", host="localhost", days=(-9, -1))
    authority.certificate("other", host="kafka.example")
    authority.certificate("client")
    authority.certificate("expired-client", days=(-9, -1))
    stranger.certificate("unknown")
    issuer, other, now_s = Issuer(), Issuer(), int(time.time())
    said: dict[str, Any] = {"iss": _ISSUER, "jti": None}  # without the mark of secrets: Apache Kafka logs wrong tokens
    tokens = {
        "right": issuer.token("two", **said, iat=now_s, exp=now_s + _HOUR_S),
        "wrong": other.token("two", **said, iat=now_s, exp=now_s + _HOUR_S),
        "expired": issuer.token("two", **said, iat=now_s - 2 * _HOUR_S, exp=now_s - _HOUR_S),
    }
    files = Files(directory, tokens)
    files.keys.write_text(issuer.jwks())
    for name, token in tokens.items():
        Path(files.token_file(name)).write_text(token)
    return files


def _listener_keys(files: Files) -> dict[str, str]:
    """What both brokers are told of their listeners."""
    keys = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": files.keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": _ISSUER,
    }
    for listener, protocol in LISTENERS.items():
        prefix = f"listener.name.{listener.lower()}."
        if protocol.endswith("SSL"):
            keys[f"{prefix}ssl.keystore.location"] = files.store(listener)
            keys[f"{prefix}ssl.truststore.location"] = files.pem("authority")
        if protocol.startswith("SASL"):
            keys[f"{prefix}plain.sasl.jaas.config"] = (
                f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORDS["PLAIN"]}";'
            )
    return keys


def _protocols(*more: str) -> str:
    return ",".join([*(f"{name}:{protocol}" for name, protocol in LISTENERS.items()), *more])


def _add_users(bootstrap: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        for mechanism in ScramMechanism:
            password = Secret(PASSWORDS[mechanism.mechanism])
            admin.alter_user_scram_credentials([SetScramCredential(USER, mechanism, password, 4096)])


@contextmanager
def _ottla(files: Files) -> Iterator[Secured]:
    names = ["PLAINTEXT", *LISTENERS]
    config: dict[str, object] = {
        **_listener_keys(files),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "advertised.listeners": ",".join(f"{name}://localhost:0" for name in names),
        "listener.security.protocol.map": _protocols("PLAINTEXT:PLAINTEXT"),
    }
    with Broker(config) as broker:
        _add_users(broker.listener("PLAINTEXT"))
        yield Secured("ottla", {name: int(broker.listener(name).rpartition(":")[2]) for name in LISTENERS}, files)


@contextmanager
def _apache(files: Files) -> Iterator[Secured]:
    ports = {listener: free_port() for listener in LISTENERS}
    node = ApacheKafka(files.directory / "kafka", flags=allowing([str(files.keys)]))
    plain = f"PLAINTEXT://127.0.0.1:{node.port}"
    node.config |= {
        **_listener_keys(files),
        "listeners": ",".join(
            [plain, f"CONTROLLER://127.0.0.1:{node.controller_port}"]
            + [f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()]
        ),
        "advertised.listeners": ",".join([plain, *(f"{name}://localhost:{port}" for name, port in ports.items())]),
        "listener.security.protocol.map": _protocols("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
    }
    for listener in ("plainsasl", "sasltls"):
        prefix = f"listener.name.{listener}."
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            node.config[f"{prefix}{mechanism}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
        bearer = f"{_MODULES}.oauthbearer.OAuthBearer"
        node.config[f"{prefix}oauthbearer.sasl.jaas.config"] = f"{bearer}LoginModule required;"
        node.config[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = f"{bearer}ValidatorCallbackHandler"
    with node:
        _add_users(node.bootstrap)
        yield Secured("apache", ports, files)


def running(name: str, files: Files) -> AbstractContextManager[Secured]:
    """The broker of this name: ottla or apache."""
    return _ottla(files) if name == "ottla" else _apache(files)
