"""Where a token for OAUTHBEARER comes from, if not from a function: OIDC's client credentials (KIP-768), or a file.

The names are Java's, with its JAAS options `clientId`, `clientSecret` and `scope`, and librdkafka's beside them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ottla.base.config import ConfigKey, ConfigType, between, one_of, sendable
from ottla.base.errors import ConfigError
from ottla.base.secret import Secret

#: Java waits for ever.
_TIMEOUT_MS = 10_000
_TEXT, _INT, _LONG = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_URL = "sasl.oauthbearer.token.endpoint.url"
_IDS = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
_SECRETS = ("sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret")

OIDC_KEYS: tuple[ConfigKey, ...] = (
    ConfigKey(
        "sasl.oauthbearer.method",
        _TEXT,
        "default",
        "librdkafka's: oidc says that sasl.oauthbearer.token.endpoint.url, which must be set, gives the token",
        one_of("default", "oidc", any_case=True),
    ),
    ConfigKey(_URL, _TEXT, None, "Gives tokens for client credentials (KIP-768); or file:///…, which holds a token"),
    ConfigKey(_IDS[0], _TEXT, None, "The client's id there", sendable),
    ConfigKey(_IDS[1], _TEXT, None, "librdkafka's name of the same", sendable),
    ConfigKey(_SECRETS[0], ConfigType.PASSWORD, None, "The client's secret there", sensitive=True),
    ConfigKey(_SECRETS[1], ConfigType.PASSWORD, None, "librdkafka's name of the same", sensitive=True),
    ConfigKey("sasl.oauthbearer.scope", _TEXT, None, "What the token is asked for", sendable),
    ConfigKey("sasl.oauthbearer.extensions", _TEXT, None, "librdkafka's: name=value, separated by commas", sendable),
    ConfigKey(
        "sasl.oauthbearer.header.urlencode",
        ConfigType.BOOLEAN,
        False,
        "Whether id and secret are URL-encoded in the header, as RFC 6749 asks and not all servers want (KIP-1139)",
    ),
    ConfigKey("sasl.login.connect.timeout.ms", _INT, None, "Longest wait for the endpoint's connection", between(1)),
    ConfigKey("sasl.login.read.timeout.ms", _INT, None, "Longest wait for the endpoint's answer", between(1)),
    ConfigKey("sasl.login.retry.backoff.ms", _LONG, 100, "First pause before it is asked again", between(1)),
    ConfigKey("sasl.login.retry.backoff.max.ms", _LONG, 10_000, "No repetition after so long", between(1)),
)


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Who gives tokens, and to whom. Times are milliseconds."""

    #: Not shown: it may hold a name and a password, or a key.
    url: str = field(repr=False)
    client_id: str = ""
    client_secret: Secret | None = None
    scope: str | None = None
    url_encode: bool = False
    timeout_ms: int = _TIMEOUT_MS
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000
    #: An authority to trust beside the system's.
    ca_file: str | None = None
    ca_pem: str | None = None


def token_endpoint(
    parsed: Mapping[str, object], options: Mapping[str, str], one: Callable[..., tuple[str, str] | None]
) -> TokenEndpoint | None:
    """What the keys say, with the JAAS `options`; None when no endpoint is named. Raises ConfigError.

    `one` gives the one of several names that is set, and its value.
    """
    url = one(_URL)
    if url is None:
        if str(parsed["sasl.oauthbearer.method"]).lower() == "oidc":
            raise ConfigError(f"sasl.oauthbearer.method=oidc needs {_URL}")
        return None
    scheme, has_host = _scheme_of(url[1])
    if scheme == "file":
        return TokenEndpoint(url[1])
    if scheme not in ("http", "https") or not has_host:
        # What it is is not shown: it may hold a password.
        raise ConfigError(f"{_URL}: expected https://host/path, or file:///path of a file with a token")
    client_id = _said(one(*_IDS), options.get("clientId"), _IDS[0])
    secret = _said(one(*_SECRETS), options.get("clientSecret"), _SECRETS[0])
    waits = [str(wait) for name in ("connect", "read") if (wait := parsed[f"sasl.login.{name}.timeout.ms"])]
    ca = one("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")
    is_file = ca is not None and ca[0].endswith(".location")
    scope = one("sasl.oauthbearer.scope")
    return TokenEndpoint(
        url[1],
        client_id,
        Secret(secret),
        options.get("scope") if scope is None else scope[1],
        bool(parsed["sasl.oauthbearer.header.urlencode"]),
        max(map(int, waits), default=_TIMEOUT_MS),
        int(str(parsed["sasl.login.retry.backoff.ms"])),
        int(str(parsed["sasl.login.retry.backoff.max.ms"])),
        ca[1] if ca is not None and is_file else None,
        ca[1] if ca is not None and not is_file else None,
    )


def _scheme_of(url: str) -> tuple[str, bool]:
    """The scheme of a URL, and whether it has a host with a port that is one."""
    try:
        parts = urlsplit(url)
        return parts.scheme, bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is no number
        return "", False


def _said(key: tuple[str, str] | None, option: str | None, name: str) -> str:
    if key is not None:
        return key[1]
    if option:
        return option
    raise ConfigError(f"{_URL} needs to know who asks: set {name}, or the option of sasl.jaas.config")
