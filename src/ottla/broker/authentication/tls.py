"""TLS of one listener: what its keys say, a context made of it, and a new one when the files have changed.

A connection gets the context that is there when it comes. Files are looked at then; if they are others than before, a
thread reads them. Files that cannot be read are told, once, and what was read before stays in force.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.base.errors import ConfigError
from ottla.base.pem import CONVERT_KEY, CONVERT_TRUST, VERSIONS, load_authorities, load_certificate, why
from ottla.base.secret import Secret
from ottla.broker.authentication.mapping import PrincipalRules
from ottla.broker.authentication.names import distinguished_name
from ottla.broker.config import BrokerConfig
from ottla.broker.listeners import Listener
from ottla.broker.session import ANONYMOUS

_log = logging.getLogger(__name__)

#: `ssl.client.auth`.
_ASKED: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: The suites of TLS 1.3. Python's ssl uses all of them.
_SUITES_1_3: Final = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
#: Suites of TLS 1.2 by their registered names, which Kafka uses, and OpenSSL's names for them.
_SUITES: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
}


#: Each store, the key that holds it as text, and how Java's becomes PEM.
_STORES: Final = (
    ("keystore", "ssl.keystore.key", CONVERT_KEY),
    ("truststore", "ssl.truststore.certificates", CONVERT_TRUST),
)


@dataclass(frozen=True, slots=True)
class TlsKeys:
    """What the keys of a listener say. A file's name and a text exclude each other."""

    listener: str
    file: str | None
    text: str | None
    key: Secret | None
    key_password: Secret | None
    trusted_file: str | None
    trusted_text: str | None
    asked: ssl.VerifyMode
    versions: tuple[str, ...]
    suites: tuple[str, ...]
    rules: PrincipalRules

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read."""
        return tuple(each for each in (self.file, self.trusted_file) if each is not None)


def tls_keys(config: BrokerConfig, listener: Listener) -> TlsKeys:
    """Read the keys of a listener that has TLS. Raises ConfigError for keys that do not fit together."""

    def text(name: str) -> str | None:
        value = config.of_listener(listener, name)
        return None if value in (None, "") else str(value)

    def secret(name: str) -> Secret | None:
        value = text(name)
        return None if value is None else Secret(value)

    def where(name: str) -> str:
        return f"listener {listener.name}: {name}"

    for store, inline, convert in _STORES:
        problem = _store_problem(text, store, inline, convert)
        if problem is not None:
            raise ConfigError(where(problem))
    chain, key = text("ssl.keystore.certificate.chain"), secret("ssl.keystore.key")
    if text("ssl.keystore.location") is None and (chain is None or key is None):
        raise ConfigError(
            where("a certificate is missing: set ssl.keystore.type=PEM and ssl.keystore.location, or both of ")
            + "ssl.keystore.certificate.chain and ssl.keystore.key"
        )
    asked = str(config.client_auth(listener))
    trusted_file, trusted_text = text("ssl.truststore.location"), text("ssl.truststore.certificates")
    if asked != "none" and trusted_file is None and trusted_text is None:
        raise ConfigError(
            where(f"ssl.client.auth={asked} needs the authorities that sign clients' certificates: ")
            + "set ssl.truststore.type=PEM and ssl.truststore.location"
        )
    versions = config.of_listener(listener, "ssl.enabled.protocols")
    suites = config.of_listener(listener, "ssl.cipher.suites")
    assert isinstance(versions, tuple)
    assert isinstance(suites, tuple)
    if not versions:
        raise ConfigError(where("ssl.enabled.protocols is empty: say TLSv1.3, TLSv1.2 or both"))
    return TlsKeys(
        listener=listener.name,
        file=text("ssl.keystore.location"),
        text=chain,
        key=key,
        key_password=secret("ssl.key.password"),
        trusted_file=trusted_file,
        trusted_text=trusted_text,
        asked=_ASKED[asked],
        versions=versions,
        suites=_suites(listener.name, suites, versions),
        rules=PrincipalRules(text("ssl.principal.mapping.rules") or "DEFAULT"),
    )


def _store_problem(text: Callable[[str], str | None], store: str, inline: str, convert: str) -> str | None:
    """What is wrong with the keys of a store; None if nothing is."""
    kind, location, password = f"ssl.{store}.type", f"ssl.{store}.location", f"ssl.{store}.password"
    given = next((name for name in (location, inline) if text(name) is not None), None)
    if given is None:
        return None
    if (text(kind) or "").upper() != "PEM":
        return (
            f"{given} with {kind}={text(kind)}: only PEM is read. If it is PEM, set {kind}=PEM. "
            f"Else convert it: {convert}"
        )
    if text(password) is not None:
        return f"{password} is given, but PEM has none; ssl.key.password is for the key"
    if text(location) is not None and text(inline) is not None:
        return f"{location} and {inline} are both given: one of them has to go"
    return None


def _suites(listener: str, given: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    """OpenSSL's names of the suites of TLS 1.2; empty for the usual ones."""
    if not given:
        return ()
    known = ", ".join((*_SUITES_1_3, *_SUITES))
    older = [each for each in given if each not in _SUITES_1_3]
    for each in older:
        if each not in _SUITES:
            raise ConfigError(f"listener {listener}: ssl.cipher.suites: {each} is not known here; there are {known}")
    if "TLSv1.3" in versions and not _SUITES_1_3.issubset(given):
        raise ConfigError(
            f"listener {listener}: ssl.cipher.suites: Python's ssl cannot choose among the suites of TLS 1.3: "
            f"name all of them ({', '.join(sorted(_SUITES_1_3))}), or leave TLSv1.3 out of ssl.enabled.protocols"
        )
    if "TLSv1.2" in versions and not older:
        raise ConfigError(
            f"listener {listener}: ssl.cipher.suites has none of TLS 1.2: name one, or leave TLSv1.2 out of "
            "ssl.enabled.protocols"
        )
    return tuple(_SUITES[each] for each in older)


def make_context(keys: TlsKeys) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError for a file that cannot be read, or does not hold what it should."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = min(VERSIONS[each] for each in keys.versions)
    context.maximum_version = max(VERSIONS[each] for each in keys.versions)
    if keys.suites:
        context.set_ciphers(":".join(keys.suites))
    context.verify_mode = keys.asked
    try:
        load_certificate(
            context, file=keys.file, text=keys.text, key_file=None, key_text=keys.key, password=keys.key_password
        )
    except ValueError as error:
        what = keys.file or "ssl.keystore.certificate.chain"
        raise ConfigError(
            f"listener {keys.listener}: the certificate or key cannot be read ({what}): {error}"
        ) from None
    if keys.trusted_file is not None or keys.trusted_text is not None:
        try:
            load_authorities(context, keys.trusted_file, keys.trusted_text)
        except (OSError, ValueError) as error:
            what = keys.trusted_file or "ssl.truststore.certificates"
            raise ConfigError(
                f"listener {keys.listener}: the authorities to trust cannot be read ({what}): {why(error)}"
            ) from None
    return context


class ServerTls:
    """The TLS of one listener."""

    def __init__(self, keys: TlsKeys) -> None:
        """Raises ConfigError, as `make_context` does."""
        self._keys = keys
        self._seen = self._stamps()
        self._context = make_context(keys)
        self._reading = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        if self._stamps() != self._seen:
            async with self._reading:
                await self._read_again()
        return self._context

    async def _read_again(self) -> None:
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._context = await asyncio.to_thread(make_context, self._keys)
        except ConfigError as fault:
            _log.error("%s; the certificate that was read before stays in use", fault)
        else:
            _log.info("listener %s: the certificate has changed, and is read again", self._keys.listener)

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(each) for each in self._keys.files)

    def principal(self, connection: ssl.SSLObject) -> str:
        """Who has shown a certificate in this handshake; `User:ANONYMOUS` if nobody has.

        Raises NoRuleError if no rule is about the name, CorruptDataError if there is no name that can be read.
        """
        certificate = connection.getpeercert(binary_form=True) if self._keys.asked is not ssl.CERT_NONE else None
        if certificate is None:
            return ANONYMOUS
        return f"User:{self._keys.rules.name_of(distinguished_name(certificate))}"


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
