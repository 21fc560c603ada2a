"""Where tokens come from: Java's keys, its JAAS options, and librdkafka's keys."""

import pytest

from ottla.base.errors import ConfigError
from ottla.base.secret import Secret
from ottla.client.config.admin import admin_config
from ottla.client.config.oidc import TokenEndpoint

_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_SASL = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


def _sasl(**keys: object) -> object:
    sasl = admin_config({**_SASL, **{name.replace("_", "."): value for name, value in keys.items()}}).security.sasl
    assert sasl is not None
    assert sasl.token is None
    return sasl.endpoint


def test_x1_java_s_and_librdkafka_s_keys_say_the_same() -> None:
    url = "https://idp.example:8443/token"
    java = _sasl(
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_jaas_config=f'{_OAUTH} required clientId="me" clientSecret="hunter2" scope="kafka" extension_x="y";',
    )
    newer = _sasl(
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="hunter2",
        sasl_oauthbearer_scope="kafka",
    )
    librdkafkas = _sasl(
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="me",
        sasl_oauthbearer_client_secret="hunter2",
        sasl_oauthbearer_scope="kafka",
        sasl_oauthbearer_extensions="x=y",
    )
    assert java == newer == librdkafkas == TokenEndpoint(url, "me", Secret("hunter2"), "kafka")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"sasl_oauthbearer_method": "oidc"}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({"sasl_oauthbearer_token_endpoint_url": "idp/token"}, "expected https://host/path"),
        ({"sasl_oauthbearer_token_endpoint_url": "ftp://me:hunter2@idp/token"}, "expected https://host/path"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://[hunter2/token"}, "expected https://host/path"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://idp:hunter2/token"}, "expected https://host/path"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://idp/"}, "set sasl.oauthbearer.client.credentials.client.id"),
        (
            {"sasl_oauthbearer_token_endpoint_url": "https://idp/", "sasl_oauthbearer_client_id": "me"},
            "set sasl.oauthbearer.client.credentials.client.secret",
        ),
        ({"sasl_oauthbearer_token_endpoint_url": "file:///t", "oauth_cb": str}, "leave one out"),
        ({"sasl_oauthbearer_token_endpoint_url": "file:///t", "sasl_oauthbearer_extensions": "x"}, "name=value"),
    ],
)
def test_x1_keys_that_do_not_make_an_endpoint_are_told(keys: dict[str, object], why: str) -> None:
    given = {name if name == "oauth_cb" else name.replace("_", "."): value for name, value in keys.items()}
    with pytest.raises(ConfigError, match=why) as refused:
        admin_config({**_SASL, **given})
    assert "hunter2" not in str(refused.value)


def test_x1_what_may_hold_a_secret_is_not_shown() -> None:
    endpoint = _sasl(
        sasl_oauthbearer_token_endpoint_url="https://me:hunter2@idp/token?key=hunter2",
        sasl_oauthbearer_client_id="me",
        sasl_oauthbearer_client_secret="hunter2",
        sasl_oauthbearer_extensions="x=hunter2",
    )
    assert "hunter2" not in repr(endpoint)
