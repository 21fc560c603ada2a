"""The keys of TLS and SASL: Kafka's names, librdkafka's beside them, and what they say together.

`security_of` turns parsed keys into one frozen `Security`. What is secret is in a `Secret` from there on. No error
repeats a secret's value. PEM is the one format of keys and certificates: `ssl` of Python reads no other.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.base.config import ConfigKey, ConfigType, each_of, one_of, pem_file, sendable
from ottla.base.errors import ConfigError
from ottla.base.pem import CONVERT_KEY, CONVERT_TRUST
from ottla.base.secret import Secret
from ottla.client.config.oidc import OIDC_KEYS, TokenEndpoint, token_endpoint
from ottla.wire.sasl import MECHANISMS, OAUTHBEARER
from ottla.wire.sasl.jaas import read_jaas

log = logging.getLogger("ottla.client")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_TEXT, _PASSWORD = ConfigType.STRING, ConfigType.PASSWORD
_STORE_TYPES = ("JKS", "PKCS12", "PEM")


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, _PASSWORD, None, doc, sensitive=True)


SECURITY_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey("security.protocol", _TEXT, "PLAINTEXT", "How brokers are spoken to", one_of(*PROTOCOLS, any_case=True)),
    ConfigKey("sasl.mechanism", _TEXT, None, "How the client proves who it is", one_of(*MECHANISMS, any_case=True)),
    ConfigKey(
        "sasl.mechanisms", _TEXT, None, "librdkafka's name of sasl.mechanism", one_of(*MECHANISMS, any_case=True)
    ),
    ConfigKey("sasl.username", _TEXT, None, "The user, for PLAIN and SCRAM", sendable),
    _secret("sasl.password", "The user's password"),
    _secret("sasl.jaas.config", "Java's form: PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule"),
    ConfigKey(
        "oauth_cb",
        ConfigType.OBJECT,
        None,
        "For OAUTHBEARER: a callable that takes the text of sasl.oauthbearer.config and returns a token, or a tuple "
        "that begins with one. It is called in a thread, before each authentication",
    ),
    ConfigKey("sasl.oauthbearer.config", _TEXT, "", "What oauth_cb gets"),
    *OIDC_KEYS,
    ConfigKey(
        "ssl.ca.location", _TEXT, None, "PEM file of the authorities to trust; without it the system's", pem_file
    ),
    ConfigKey("ssl.ca.pem", _TEXT, None, "The same, as text"),
    ConfigKey("ssl.certificate.location", _TEXT, None, "PEM file of this client's certificate and its chain", pem_file),
    ConfigKey("ssl.certificate.pem", _TEXT, None, "The same, as text"),
    ConfigKey(
        "ssl.key.location",
        _TEXT,
        None,
        "PEM file of the private key; without it the certificate's file has it",
        pem_file,
    ),
    _secret("ssl.key.pem", "The same, as text"),
    _secret("ssl.key.password", "What the private key is encrypted with"),
    ConfigKey("ssl.truststore.type", _TEXT, "JKS", "PEM is read", one_of(*_STORE_TYPES, any_case=True)),
    ConfigKey("ssl.truststore.location", _TEXT, None, "Java's ssl.ca.location, with ssl.truststore.type=PEM", pem_file),
    ConfigKey("ssl.truststore.certificates", _TEXT, None, "Java's ssl.ca.pem"),
    _secret("ssl.truststore.password", "PEM has none"),
    ConfigKey("ssl.keystore.type", _TEXT, "JKS", "PEM is read", one_of(*_STORE_TYPES, any_case=True)),
    ConfigKey(
        "ssl.keystore.location", _TEXT, None, "PEM file of key and certificates, with ssl.keystore.type=PEM", pem_file
    ),
    _secret("ssl.keystore.key", "Java's ssl.key.pem"),
    ConfigKey("ssl.keystore.certificate.chain", _TEXT, None, "Java's ssl.certificate.pem"),
    _secret("ssl.keystore.password", "PEM has none: see ssl.key.password"),
    ConfigKey(
        "ssl.endpoint.identification.algorithm",
        _TEXT,
        "https",
        "Whether a broker's certificate must be for its host; empty or none: not",
        one_of("https", "none", "", any_case=True),
    ),
    ConfigKey(
        "enable.ssl.certificate.verification",
        ConfigType.BOOLEAN,
        True,
        "false: any certificate will do, and anybody can listen in",
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        ConfigType.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that may be used",
        each_of("TLSv1.2", "TLSv1.3"),
    ),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """What a TLS context is made of. A file's name and a text exclude each other."""

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    key_file: str | None = None
    key_pem: Secret | None = None
    key_password: Secret | None = None
    check_host: bool = True
    verify: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Sasl:
    """Who the client is, and how it proves that.

    `token` or `endpoint` is for OAUTHBEARER, user and password for the others.
    """

    mechanism: str
    username: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: Callable[[], Secret] | None = field(default=None, repr=False)
    endpoint: TokenEndpoint | None = None


@dataclass(frozen=True, slots=True)
class Security:
    """How brokers are spoken to. Without `tls` and `sasl` it is plain text."""

    protocol: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: Sasl | None = None


def security_of(parsed: Mapping[str, object]) -> Security:
    """What the parsed keys say together. Raises ConfigError if keys contradict each other, or one is missing."""
    keys = _Keys(parsed)
    protocol = str(parsed["security.protocol"]).upper()
    unused = [name for name in _CREDENTIALS if "SASL" not in protocol and keys.text(name) is not None]
    unused += [name for name in _TRUST if not protocol.endswith("SSL") and keys.text(name) is not None]
    for name in unused[:1]:
        log.warning("%s is given, but with security.protocol=%s it is not used", name, protocol)
    if protocol.endswith("SSL") and not parsed["enable.ssl.certificate.verification"]:
        log.warning("enable.ssl.certificate.verification=false: anybody can listen in, and change what is sent")
    return Security(
        protocol,
        _tls(keys) if protocol.endswith("SSL") else None,
        _sasl(keys) if protocol.startswith("SASL") else None,
    )


_CREDENTIALS = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config")
_TRUST = ("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")


class _Keys:
    """Parsed keys; an empty text counts as none, as in files."""

    def __init__(self, parsed: Mapping[str, object]) -> None:
        self.parsed = parsed

    def text(self, name: str) -> str | None:
        value = self.parsed[name]
        return None if value is None or value == "" else str(value)

    def secret(self, name: str) -> Secret | None:
        value = self.text(name)
        return None if value is None else Secret(value)

    def one(self, *names: str) -> tuple[str, str] | None:
        """The one of these keys that is given, and its value. Raises ConfigError for two of them."""
        given = [(name, value) for name in names if (value := self.text(name)) is not None]
        if len(given) > 1:
            raise ConfigError(f"{given[0][0]} and {given[1][0]} say the same in two ways: leave one of them out")
        return given[0] if given else None


# SASL


def _sasl(keys: _Keys) -> Sasl:
    chosen = keys.one("sasl.mechanism", "sasl.mechanisms")
    jaas = read_jaas(text) if (text := keys.text("sasl.jaas.config")) is not None else None
    if chosen is None:
        raise ConfigError(f"security.protocol asks for SASL: set sasl.mechanism, one of {', '.join(MECHANISMS)}")
    mechanism = chosen[1].upper()
    if jaas is not None and mechanism not in jaas.mechanisms:
        raise ConfigError(
            f"sasl.jaas.config names a login module of {' and '.join(jaas.mechanisms)}, not of {mechanism}"
        )
    if mechanism == OAUTHBEARER:
        return _oauthbearer(keys, jaas.options if jaas is not None else {})
    if jaas is not None:
        if keys.text("sasl.username") is not None or keys.text("sasl.password") is not None:
            raise ConfigError("sasl.jaas.config and sasl.username, sasl.password say the same: leave one of them out")
        username, password = jaas.options.get("username"), jaas.options.get("password")
        where = "sasl.jaas.config needs the options username and password"
    else:
        username, password = keys.text("sasl.username"), keys.text("sasl.password")
        where = "set sasl.username and sasl.password, or sasl.jaas.config"
    if not username or not password:
        raise ConfigError(f"{mechanism} needs a user and a password: {where}")
    delegated = jaas is not None and jaas.options.get("tokenauth", "").lower() == "true"
    return Sasl(mechanism, username, Secret(password), {"tokenauth": "true"} if delegated else {})


def _oauthbearer(keys: _Keys, options: Mapping[str, str]) -> Sasl:
    callback = keys.parsed["oauth_cb"]
    endpoint = token_endpoint(keys.parsed, options, keys.one)
    extensions = _extensions(keys.text("sasl.oauthbearer.extensions"), options)
    if endpoint is not None:
        if callback is not None:
            raise ConfigError("oauth_cb and sasl.oauthbearer.token.endpoint.url both give tokens: leave one out")
        return Sasl(OAUTHBEARER, extensions=extensions, endpoint=endpoint)
    if not callable(callback):
        raise ConfigError(
            "OAUTHBEARER needs a token: set oauth_cb to a callable that returns one, or "
            "sasl.oauthbearer.token.endpoint.url to a server that gives them"
        )
    config = str(keys.parsed["sasl.oauthbearer.config"])

    def token() -> Secret:
        given = callback(config)
        text = given[0] if isinstance(given, tuple) and given else given
        if not isinstance(text, str):
            raise ConfigError(f"oauth_cb has returned {type(text).__name__}, and not a token, which is a text")
        return Secret(text)

    return Sasl(OAUTHBEARER, extensions=extensions, token=token)


def _extensions(text: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Java's are options of sasl.jaas.config, librdkafka's a key of their own."""
    prefix = "extension_"
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    for pair in (text or "").split(","):
        name, sign, value = pair.strip().partition("=")
        if pair.strip() and not (name and sign):
            raise ConfigError("sasl.oauthbearer.extensions: expected name=value, separated by commas")
        if sign:
            found[name] = value
    return found


# TLS

_CONVERT_TRUST = f"{CONVERT_TRUST}, then ssl.ca.location=ca.pem"
_CONVERT_KEY = f"{CONVERT_KEY}, then ssl.certificate.location=both.pem and ssl.key.password"


def _tls(keys: _Keys) -> Tls:
    _only_pem(keys, "truststore", "ssl.truststore.certificates", _CONVERT_TRUST)
    _only_pem(keys, "keystore", "ssl.keystore.key", _CONVERT_KEY)
    ca = keys.one("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")
    certificate = keys.one(
        "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl.keystore.certificate.chain"
    )
    key = keys.one("ssl.key.location", "ssl.key.pem", "ssl.keystore.key")
    if key is not None and certificate is None:
        raise ConfigError(f"{key[0]} is given without a certificate: set ssl.certificate.location, too")
    if certificate is not None and key is None and not _is_file(certificate[0]):
        raise ConfigError(f"{certificate[0]} is given without a private key: set ssl.key.pem or ssl.keystore.key, too")
    verify = bool(keys.parsed["enable.ssl.certificate.verification"])
    algorithm = str(keys.parsed["ssl.endpoint.identification.algorithm"]).lower()
    return Tls(
        ca_file=_file(ca),
        ca_pem=_pem(ca),
        certificate_file=_file(certificate),
        certificate_pem=_pem(certificate),
        key_file=_file(key),
        key_pem=None if (text := _pem(key)) is None else Secret(text),
        key_password=keys.secret("ssl.key.password"),
        check_host=verify and algorithm == "https",
        verify=verify,
        versions=tuple(keys.parsed["ssl.enabled.protocols"]),  # type: ignore[arg-type]
    )


def _only_pem(keys: _Keys, store: str, inline: str, convert: str) -> None:
    kind = str(keys.parsed[f"ssl.{store}.type"]).upper()
    given = next((name for name in (f"ssl.{store}.location", inline) if keys.text(name) is not None), None)
    if given is not None and kind != "PEM":
        raise ConfigError(
            f"{given} with ssl.{store}.type={kind}: this client reads PEM. If it is PEM, set ssl.{store}.type=PEM. "
            f"Else convert it: {convert}"
        )
    if given is not None and keys.text(f"ssl.{store}.password") is not None:
        raise ConfigError(f"ssl.{store}.password is given, but a PEM store has none; ssl.key.password is for the key")


def _is_file(name: str) -> bool:
    return name.endswith(".location")


def _file(given: tuple[str, str] | None) -> str | None:
    return given[1] if given is not None and _is_file(given[0]) else None


def _pem(given: tuple[str, str] | None) -> str | None:
    return given[1] if given is not None and not _is_file(given[0]) else None
