"""A broker's settings with a listener of each security protocol, and what a client says to each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.client.certificates import Authority

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER: Final = "alice"
PASSWORD: Final = "alice-hunter2"
_KEY_PASSWORD: Final = "key-hunter2"
_JAAS: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


def make_certificates(directory: Path) -> None:
    """An authority, the broker's certificate behind a password, a client's, and another authority."""
    authority = Authority(directory, "authority")
    Authority(directory, "stranger")
    authority.certificate("here", host="127.0.0.1", password=_KEY_PASSWORD)
    authority.certificate("client", password=_KEY_PASSWORD)


def settings(directory: Path) -> dict[str, str]:
    """The broker's. SCRAM is enabled, too; its users have to be made."""
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": _JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "here.pem"),
        "ssl.key.password": _KEY_PASSWORD,
    }


def client(directory: Path, protocol: str, bootstrap: str) -> dict[str, str]:
    """A client's, right for the listener of `protocol`."""
    own = {"bootstrap.servers": bootstrap, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        own |= {
            "ssl.ca.location": str(directory / "authority.pem"),
            "ssl.certificate.location": str(directory / "client.pem"),
            "ssl.key.password": _KEY_PASSWORD,
        }
    if protocol.startswith("SASL"):
        own |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    return own
