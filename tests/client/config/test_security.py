"""SPEC X1: what the keys of TLS and SASL say together, in librdkafka's words and in Java's."""

import logging

import pytest

from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.client.config.admin import admin_config
from ottla.client.config.consumer import consumer_config
from ottla.client.config.producer import producer_config
from ottla.client.config.security import Sasl, Security, Tls

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _security(**keys: object) -> Security:
    given = {name.replace("_", "."): value for name, value in keys.items()}
    return admin_config({"bootstrap.servers": "a:1", **given}).security


def test_x1_without_keys_it_is_plain_text() -> None:
    for parse in (admin_config, producer_config, consumer_config):
        assert parse({"bootstrap.servers": "a:1"}).security == Security()


def test_x1_tls_trusts_the_system_and_checks_the_host() -> None:
    tls = _security(security_protocol="ssl").tls
    assert tls == Tls()
    assert tls is not None
    assert tls.verify
    assert tls.check_host


@pytest.mark.parametrize("algorithm", ["", "none", "None"])
def test_x1_the_check_of_the_host_can_be_switched_off(algorithm: str) -> None:
    tls = _security(security_protocol="SSL", ssl_endpoint_identification_algorithm=algorithm).tls
    assert tls is not None
    assert (tls.verify, tls.check_host) == (True, False)


def test_x1_librdkafkas_keys_and_javas_say_the_same() -> None:
    theirs = _security(
        security_protocol="SASL_SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location="ca.pem",
        ssl_keystore_type="pem",
        ssl_keystore_certificate_chain="CERT",
        ssl_keystore_key="KEY",
        ssl_key_password="pw-hunter2",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{_SCRAM} required username="alice" password="secret-hunter2";',
    )
    ours = _security(
        security_protocol="sasl_ssl",
        ssl_ca_location="ca.pem",
        ssl_certificate_pem="CERT",
        ssl_key_pem="KEY",
        ssl_key_password="pw-hunter2",
        sasl_mechanisms="scram-sha-512",
        sasl_username="alice",
        sasl_password="secret-hunter2",
    )
    assert ours == theirs
    assert ours.sasl == Sasl("SCRAM-SHA-512", "alice", Secret("secret-hunter2"))
    assert ours.tls == Tls(
        ca_file="ca.pem", certificate_pem="CERT", key_pem=Secret("KEY"), key_password=Secret("pw-hunter2")
    )


def test_x1_no_secret_is_in_the_repr_of_a_configuration() -> None:
    config = producer_config(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "hunter2",
            "ssl.certificate.location": "c.pem",
            "ssl.key.pem": "other-hunter2",
            "ssl.key.password": "key-hunter2",
        }
    )
    assert "alice" in repr(config)
    assert "hunter" not in repr(config)


def test_x1_a_delegation_token_says_so() -> None:
    jaas = f'{_SCRAM} required username="id" password="hmac-hunter2" tokenauth="true";'
    sasl = _security(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas).sasl
    assert sasl is not None
    assert sasl.extensions == {"tokenauth": "true"}


@pytest.mark.parametrize("given", ["a.b.c", ("a.b.c", 1_700_000_000.0)])
def test_x1_a_token_comes_from_a_callable(given: object) -> None:
    asked = []

    def callback(config: str) -> object:
        asked.append(config)
        return given

    more = {"oauth_cb": callback, "sasl.oauthbearer.config": "scope=kafka"}
    keys = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **more}
    sasl = admin_config(keys).security.sasl
    assert sasl is not None
    assert sasl.token is not None
    assert sasl.token() == Secret("a.b.c")
    assert asked == ["scope=kafka"]
    broken = admin_config({**keys, "oauth_cb": lambda config: 5}).security.sasl
    assert broken is not None
    assert broken.token is not None
    with pytest.raises(ConfigError, match="int, and not a token"):
        broken.token()


_PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"security_protocol": "TLS"}, "must be one of: PLAINTEXT, SSL"),
        ({"security_protocol": "SASL_SSL"}, "set sasl.mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "must be one of: PLAIN"),
        ({**_PLAIN, "sasl_mechanisms": "PLAIN"}, "leave one of them out"),
        (_PLAIN, "set sasl.username and sasl.password"),
        ({**_PLAIN, "sasl_username": "alice"}, "set sasl.username and sasl.password"),
        ({**_PLAIN, "sasl_jaas_config": f'{_SCRAM} required username="a" password="hunter2";'}, "not of PLAIN"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "a",
                "sasl_jaas_config": f'{_SCRAM} required username="a" password="hunter2";',
            },
            "say the same",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_jaas_config": f'{_SCRAM} required password="hunter2";',
            },
            "needs the options username and password",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "set oauth_cb"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "a.jks"}, "type=JKS: this client reads PEM.*keytool"),
        (
            {"security_protocol": "SSL", "ssl_keystore_location": "a.p12", "ssl_keystore_type": "PKCS12"},
            "openssl pkcs12",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_keystore_location": "a.pem",
                "ssl_keystore_type": "PEM",
                "ssl_keystore_password": "hunter2",
            },
            "a PEM store has none",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "a", "ssl_ca_pem": "b"}, "leave one of them out"),
        ({"security_protocol": "SSL", "ssl_key_location": "a"}, "without a certificate"),
        ({"security_protocol": "SSL", "ssl_certificate_pem": "a"}, "without a private key"),
        ({"security_protocol": "SSL", "ssl_enabled_protocols": "TLSv1.1"}, "some of: TLSv1.2"),
        ({"sasl_password": 5}, "Invalid value for configuration sasl.password"),
        ({**_PLAIN, "sasl_username": "a", "sasl_password": "hunter2\udce9"}, "sasl.password: must be text that UTF-8"),
        ({**_PLAIN, "sasl_username": "a\udce9", "sasl_password": "hunter2"}, "sasl.username: must be text that UTF-8"),
        ({**_PLAIN, "sasl_jaas_config": "hunter2\udce9"}, "sasl.jaas.config: must be text that UTF-8"),
        ({"sasl_password hunter2": "x"}, r"configuration sasl\.password; did you mean sasl\.password\?"),
        ({"ssl_keystore_location": "-----BEGIN PRIVATE KEY-----hunter2"}, "is the name of a file"),
        ({"ssl_ca_location": "-----BEGIN PRIVATE KEY-----hunter2"}, "is the name of a file"),
    ],
)
def test_x1_bad_values_and_combinations(keys: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        _security(**keys)
    assert "hunter2" not in str(refused.value)


def test_x1_a_password_that_is_not_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.client"):
        assert _security(sasl_password="hunter2") == Security()
    assert "sasl.password is given, but with security.protocol=PLAINTEXT it is not used" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_x1_an_authority_that_is_not_asked_is_told(caplog: pytest.LogCaptureFixture, protocol: str) -> None:
    more = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"} if "SASL" in protocol else {}
    with caplog.at_level(logging.WARNING, "ottla.client"):
        _security(ssl_ca_location="ca.pem", security_protocol=protocol, **more)
    assert f"ssl.ca.location is given, but with security.protocol={protocol} it is not used" in caplog.text


def test_x1_the_certificates_of_brokers_that_nobody_looks_at_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla.client"):
        _security(security_protocol="SSL", enable_ssl_certificate_verification=False)
    assert "enable.ssl.certificate.verification=false: anybody can listen in" in caplog.text
