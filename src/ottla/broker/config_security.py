"""The broker's keys of TLS: Kafka's names, types and defaults. Each may be set for one listener (`listener_keys`)."""

from typing import Final

from ottla.base.config import ConfigKey, ConfigType, each_of, one_of

_TEXT, _PASSWORD, _LIST = ConfigType.STRING, ConfigType.PASSWORD, ConfigType.LIST
_STORE: Final = "PEM; Java's stores (JKS, PKCS12) have to be converted (docs/security.md)."


def _secret(name: str, doc: str) -> ConfigKey:
    return ConfigKey(name, _PASSWORD, None, doc, sensitive=True)


TLS: Final = (
    ConfigKey("ssl.keystore.type", _TEXT, "JKS", _STORE),
    ConfigKey("ssl.keystore.location", _TEXT, None, "PEM file of the broker's private key and certificate chain."),
    _secret("ssl.keystore.certificate.chain", "The certificate chain as text, with ssl.keystore.key."),
    _secret("ssl.keystore.key", "The private key as text."),
    _secret("ssl.keystore.password", "PEM has none: see ssl.key.password."),
    _secret("ssl.key.password", "What the private key is encrypted with."),
    ConfigKey("ssl.truststore.type", _TEXT, "JKS", _STORE),
    ConfigKey("ssl.truststore.location", _TEXT, None, "PEM file of the authorities that sign clients' certificates."),
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
