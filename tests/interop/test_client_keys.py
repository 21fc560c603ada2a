"""Every configuration key of Kafka's Java clients is known to ours, with the same default unless it is named here."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.base.config import REQUIRED, ConfigKey
from ottla.client.config.admin import ADMIN_CONFIG
from ottla.client.config.consumer import CONSUMER_CONFIG
from ottla.client.config.producer import PRODUCER_CONFIG
from tests.interop import apache

pytestmark = pytest.mark.interop

_KEYS = Path(__file__).with_name("java") / "Keys.java"
_CLIENTS = {"consumer": CONSUMER_CONFIG, "producer": PRODUCER_CONFIG, "admin": ADMIN_CONFIG}

#: Keys whose default is another one, or told in another way.
_OTHER_DEFAULTS = {
    ("consumer", "key.deserializer"): "none: bytes stay bytes",
    ("consumer", "value.deserializer"): "none: bytes stay bytes",
    ("consumer", "partition.assignment.strategy"): "the same two, by their short names",
    ("producer", "key.serializer"): "none: bytes are bytes",
    ("producer", "value.serializer"): "none: bytes are bytes",
    ("producer", "receive.buffer.bytes"): "without effect",
    ("admin", "bootstrap.servers"): "required: there is nothing else",
    ("admin", "connections.max.idle.ms"): "as all clients here",
    ("admin", "enable.metrics.push"): "without effect",
    **{(client, "sasl.mechanism"): "GSSAPI is not there" for client in _CLIENTS},
}


def test_c3_every_key_of_the_java_clients_is_known(apache_jars: str) -> None:
    command = [apache.java(), "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{apache_jars}/*", str(_KEYS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(said) > 300
    keys: Mapping[str, Mapping[str, ConfigKey]] = {name: found.keys for name, found in _CLIENTS.items()}
    assert [(client, name) for client, name, _ in said if name not in keys[client]] == []
    other = {
        (client, name): (default, _told(keys[client][name].default))
        for client, name, default in said
        if _told(keys[client][name].default) != default.removeprefix("class ")
    }
    assert set(other) == set(_OTHER_DEFAULTS)


def _told(default: object) -> str:
    """A default as Java prints it."""
    match default:
        case None:
            return "null"
        case bool():
            return str(default).lower()
        case tuple():
            return f"[{', '.join(map(str, default))}]"
    return "REQUIRED" if default is REQUIRED else str(default)
