"""The broker's keys of TLS and SASL: Kafka's names, types and defaults.

A listener may have its own value of each (`listener_keys`), but of the delay.
"""

from typing import Final

from ottla.base.config import ConfigKey, ConfigType, between, each_of, one_of, pem_file

_TEXT, _PASSWORD, _LIST = ConfigType.STRING, ConfigType.PASSWORD, ConfigType.LIST
_STORE: Final = "PEM; Java's stores (JKS, PKCS12) have to be converted (docs/security.md)."


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, _PASSWORD, None, doc, sensitive=True)


SASL: Final = (
    ConfigKey(
        "sasl.enabled.mechanisms",
        _LIST,
        ("GSSAPI",),
        "How clients may say who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; not Kafka's default.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        "Largest request of a client that has not said who it is.",
        between(0),
    ),
    ConfigKey(
        "connections.max.reauth.ms",
        ConfigType.LONG,
        0,
        "A session ends after this, unless the client authenticates again (KIP-368); 0: never.",
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        "A client that could not authenticate is told so, and its connection is closed, after this.",
        between(0),
    ),
)

#: The class that Kafka's configurations name where tokens are verified by a JWKS; also by its name before 4.0.
TOKEN_VALIDATORS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)

OAUTH: Final = (
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url",
        _TEXT,
        None,
        "Where the keys are by which tokens are verified: a JWKS by https:// or http://, or in a file:///path.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        ConfigType.LONG,
        3_600_000,
        "How often they are read again; sooner when a token names a key that is not there.",
        between(1),
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        ConfigType.LONG,
        100,
        "The pause after they could not be read; it doubles up to",
        between(1),
    ),
    ConfigKey("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", ConfigType.LONG, 10_000, "this.", between(1)),
    ConfigKey("sasl.oauthbearer.expected.audience", _LIST, (), "A token must be for one of these; empty: for anybody."),
    ConfigKey("sasl.oauthbearer.expected.issuer", _TEXT, None, "Who must have issued a token; empty: anybody."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", _TEXT, "scope", "The claim that has a token's scopes."),
    ConfigKey("sasl.oauthbearer.sub.claim.name", _TEXT, "sub", "The claim that says whose a token is."),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds",
        ConfigType.INT,
        30,
        "By how much the issuer's clock may differ from ours.",
        between(0),
    ),
    ConfigKey(
        "sasl.server.callback.handler.class",
        ConfigType.CLASS,
        None,
        "Only Kafka's OAuthBearerValidatorCallbackHandler, which is what there is anyway.",
        one_of(*TOKEN_VALIDATORS),
    ),
)

TLS: Final = (
    ConfigKey("ssl.keystore.type", _TEXT, "JKS", _STORE),
    ConfigKey(
        "ssl.keystore.location", _TEXT, None, "PEM file of the broker's private key and certificate chain.", pem_file
    ),
    _secret("ssl.keystore.certificate.chain", "The certificate chain as text, with ssl.keystore.key."),
    _secret("ssl.keystore.key", "The private key as text."),
    _secret("ssl.keystore.password", "PEM has none: see ssl.key.password."),
    _secret("ssl.key.password", "What the private key is encrypted with."),
    ConfigKey("ssl.truststore.type", _TEXT, "JKS", _STORE),
    ConfigKey(
        "ssl.truststore.location", _TEXT, None, "PEM file of the authorities that sign clients' certificates.", pem_file
    ),
    _secret("ssl.truststore.certificates", "The same as text."),
    _secret("ssl.truststore.password", "PEM has none."),
    ConfigKey(
        "ssl.client.auth",
        _TEXT,
        "none",
        "Whether clients show a certificate. With SASL_SSL only a listener's own value counts (KIP-684).",
        one_of("required", "requested", "none"),
    ),
    ConfigKey(
        "ssl.enabled.protocols",
        _LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The versions of TLS that are spoken.",
        each_of("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey("ssl.cipher.suites", _LIST, (), "Cipher suites of TLS 1.2; those of 1.3 cannot be chosen. Empty: all."),
    ConfigKey(
        "ssl.principal.mapping.rules",
        _TEXT,
        "DEFAULT",
        "From the distinguished name of a client's certificate to its principal (KIP-371).",
    ),
)
