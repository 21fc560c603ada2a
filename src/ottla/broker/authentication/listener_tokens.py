"""What one listener asks of tokens, by its settings, and the keys that it knows."""

from ottla.base.clock import Clock
from ottla.base.errors import ConfigError
from ottla.broker.authentication.jwks import Endpoint, Jwks
from ottla.broker.authentication.tokens import Expected, UnknownKeyError, check_token
from ottla.broker.config import BrokerConfig
from ottla.broker.listeners import Listener
from ottla.wire.sasl.oauthbearer import Accepted


class Tokens:
    """Checks tokens."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        """Raises ConfigError where it is not said by which keys."""

        def text(key: str) -> str | None:
            value = _of(config, listener, key)
            return None if value is None else str(value)

        def number(key: str) -> int:
            value = _of(config, listener, key)
            assert isinstance(value, int)
            return value

        url = text("jwks.endpoint.url")
        if not url:
            raise ConfigError(
                f"listener {listener.name}: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url: "
                "where the keys are by which tokens are verified"
            )
        audience = _of(config, listener, "expected.audience")
        assert isinstance(audience, tuple)
        self._expected = Expected(
            audience,
            text("expected.issuer"),
            text("scope.claim.name") or "scope",
            text("sub.claim.name") or "sub",
            number("clock.skew.seconds"),
        )
        self.jwks = Jwks(
            Endpoint(
                url,
                number("jwks.endpoint.refresh.ms"),
                number("jwks.endpoint.retry.backoff.ms"),
                number("jwks.endpoint.retry.backoff.max.ms"),
            ).check()
        )

    def check(self, token: str, clock: Clock) -> Accepted:
        """Whose token it is. Raises SaslError."""
        try:
            return check_token(token, self.jwks.keys, self._expected, clock.now_ms())
        except UnknownKeyError:
            self.jwks.look_again()
            raise


def _of(config: BrokerConfig, listener: Listener, key: str) -> object:
    """The setting of the listener's mechanism, the listener's, or the broker's."""
    name = f"sasl.oauthbearer.{key}"
    own = config.own_of_listener(listener, f"oauthbearer.{name}")
    return config.of_listener(listener, name) if own is None else own
