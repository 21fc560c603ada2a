"""Java's client, in one process for all cases (`java/Guest.java`)."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.interop import apache
from tests.interop.compiled import java_classes
from tests.interop.secured.where import USER, RefusedError, Where

_LOGIN = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = {
    "sasl.login.callback.handler.class": f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
}


def _settings(where: Where) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": where.address,
        "security.protocol": where.protocol,
        "max.block.ms": int(where.patience_s * 1_000),
        "delivery.timeout.ms": 40_000,
    }
    if where.authority is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": where.authority}
    if where.certificate is not None:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": where.certificate}
    if where.mechanism is not None:
        login = f"{_MODULES[where.mechanism]} required"
        if where.token_file is None:
            login += f' username="{USER}" password="{where.secret}"'
        else:
            settings |= {**_TOKENS, "sasl.oauthbearer.token.endpoint.url": f"file://{where.token_file}"}
        settings |= {"sasl.mechanism": where.mechanism, "sasl.jaas.config": f"{login};"}
    return settings


class Jvm:
    """One process for as many cases as there are. `token_files` are those that it may read tokens from."""

    def __init__(self, token_files: list[str]) -> None:
        flags = ["-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *allowing(token_files)]
        flags += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        classes = f"{apache.jars()}/*:{java_classes('Guest')}"
        self._process = subprocess.Popen(
            [apache.java(), *flags, "-cp", classes, "Guest"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round_trip(self, where: Where, topic: str) -> list[bytes | None]:
        """Send a record and read it again."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        said = [topic, *(f"{key}={value}" for key, value in _settings(where).items())]
        self._process.stdin.write("\t".join(said) + "\n")
        self._process.stdin.flush()
        what, _, text = self._process.stdout.readline().rstrip("\n").partition(" ")
        if what == "VALUE":
            return [text.encode()]
        raise RefusedError(text or "Java's process has ended")

    def stop(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)


def allowing(files: list[str]) -> list[str]:
    """The flags that let a JVM of Apache Kafka 4 read keys or tokens from these files."""
    prefix = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    urls = ",".join(f"file://{each}" for each in files)
    return [f"{prefix}.urls={urls}", f"{prefix}.files={','.join(files)}"]
