"""From a socket to a connection that a client may use: TCP, TLS, versions, SASL (KIP-152), SASL again (KIP-368).

What a mechanism says is `ottla.wire.sasl`. Its next message is computed in a thread: SCRAM's iterations are the
broker's choice, and a token may come from a server far away.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ottla.base.errors import OttlaError
from ottla.client.config import CommonConfig
from ottla.client.config.security import Sasl
from ottla.client.errors import ClientError, SaslAuthenticationError
from ottla.client.net.connection import Connection, connect
from ottla.client.net.tls import tls_context
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.wire.sasl import OAUTHBEARER, PLAIN, SaslClient
from ottla.wire.sasl.oauthbearer import OAuthBearerClient
from ottla.wire.sasl.plain import PlainClient
from ottla.wire.sasl.scram import HASHES, ScramClient

log = logging.getLogger("ottla.client")

_NONCE_BYTES = 18
#: When the client authenticates again: this part of the session's life, and up to a tenth later, as Apache Kafka's.
_RENEW_AT, _RENEW_SPREAD = 0.85, 0.10
#: Until a renewal is begun again, this part of the session's rest passes; a rest that is too short is left.
_PART_OF_THE_REST, _LEAST_PAUSE_S = 0.25, 0.001
#: An exchange, and its first message.
_Begun = tuple[SaslClient, bytes | None]


class Opener:
    """Opens the connections of one cluster, as its configuration says."""

    def __init__(
        self,
        config: CommonConfig,
        rng: random.Random,
        spawn: Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"],
    ) -> None:
        """`spawn` runs what keeps a connection authenticated. Raises ConfigError for PEM that cannot be read."""
        self._config = config
        self._rng = rng
        self._spawn = spawn
        tls = config.security.tls
        self._context = None if tls is None else tls_context(tls)

    @property
    def waits_for_token(self) -> str:
        """That a token endpoint has not answered yet, without which no connection is made; else empty."""
        sasl = self._config.security.sasl
        if sasl is None or sasl.endpoint is None:
            return ""
        from ottla.client.net.token_endpoint import TOKENS, where  # here: few clients need HTTP

        return f"no token has come yet from {where(sasl.endpoint)}" if TOKENS.is_asking(sasl.endpoint) else ""

    async def open(self, host: str, port: int) -> Connection:
        """A connection that can be used. Raises DisconnectedError, RequestTimeoutError, AuthenticationError."""
        config, sasl = self._config, self._config.security.sasl
        setup_ms, timeout_ms = config.socket_connection_setup_timeout_ms, config.request_timeout_ms
        connection = await connect(host, port, config.client_id, setup_ms, timeout_ms, self._context)
        if sasl is not None:
            try:
                lifetime_ms = await authenticate(connection, sasl, timeout_ms)
            except BaseException:
                connection.close()
                raise
            if lifetime_ms > 0:
                connection.renewal = self._spawn(self._renew(connection, sasl, lifetime_ms), "ottla-renew")
        return connection

    async def _renew(self, connection: Connection, sasl: Sasl, lifetime_ms: int) -> None:
        """Authenticate again whenever most of the session's life has passed, until the connection is lost (KIP-368)."""
        loop = asyncio.get_running_loop()
        while lifetime_ms > 0 and connection.is_open:
            ends_at_s = loop.time() + lifetime_ms / 1000
            await asyncio.sleep(lifetime_ms / 1000 * (_RENEW_AT + _RENEW_SPREAD * self._rng.random()))
            try:
                begin = partial(_begun_until, ends_at_s, connection.name, sasl)
                lifetime_ms = await _authenticated(connection, sasl, begin, self._config.request_timeout_ms)
            except ClientError as error:
                log.warning("%s: the client could not authenticate again: %s", connection.name, error)
                connection.abort(error)
                return


async def authenticate(connection: Connection, sasl: Sasl, timeout_ms: float) -> int:
    """Say who this client is. Other requests wait meanwhile. Returns the session's life in milliseconds; 0: no limit.

    Raises SaslAuthenticationError, and what `Connection.send` raises.
    """
    begin = partial(_in_thread, connection.name, sasl, partial(_begun, sasl))
    return await _authenticated(connection, sasl, begin, timeout_ms)


async def _begun_until(ends_at_s: float, name: str, sasl: Sasl) -> _Begun:
    """What begins an exchange. While the session lives, a token that cannot be had (the endpoint is away) is no reason
    to lose the connection and what is under way on it: it is asked for again."""
    while True:
        try:
            begun: _Begun = await _in_thread(name, sasl, partial(_begun, sasl))
        except SaslAuthenticationError as error:
            pause_s = (ends_at_s - asyncio.get_running_loop().time()) * _PART_OF_THE_REST
            if pause_s < _LEAST_PAUSE_S:
                raise
            log.warning("%s: the client will try again to authenticate again: %s", name, error)
            await asyncio.sleep(pause_s)
        else:
            return begun


async def _authenticated(
    connection: Connection, sasl: Sasl, begin: Callable[[], Coroutine[Any, Any, _Begun]], timeout_ms: float
) -> int:
    name = connection.name
    exchange, said = await begin()
    handshake = connection.versions.choose(ApiKey.SASL_HANDSHAKE, least=1)
    version = connection.versions.choose(ApiKey.SASL_AUTHENTICATE)
    with connection.held():
        shake: SaslHandshakeResponse = await connection.send_ahead(
            ApiKey.SASL_HANDSHAKE, handshake, SaslHandshakeRequest(sasl.mechanism), timeout_ms
        )
        _check_mechanism(name, sasl, shake)
        lifetime_ms = 0
        while said is not None:
            answer: SaslAuthenticateResponse = await connection.send_ahead(
                ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(said), timeout_ms
            )
            said = None  # a traceback keeps its frames' variables, and this one may hold a password
            if answer.error_code != ErrorCode.NONE:
                raise SaslAuthenticationError(
                    f"{name} refuses {_who(sasl)}: {answer.error_message or 'no reason given'}"
                )
            lifetime_ms = answer.session_lifetime_ms
            challenge = answer.auth_bytes
            said = await _in_thread(name, sasl, lambda challenge=challenge: exchange.answer(challenge))  # type: ignore[misc]
    return lifetime_ms


def _begun(sasl: Sasl) -> _Begun:
    """A new exchange, and its first message."""
    exchange = _client(sasl)
    return exchange, exchange.start()


def _client(sasl: Sasl) -> SaslClient:
    if sasl.mechanism == OAUTHBEARER:
        if sasl.endpoint is not None:
            from ottla.client.net.token_endpoint import TOKENS  # here: few clients need HTTP

            return OAuthBearerClient(TOKENS.token(sasl.endpoint), sasl.extensions)
        assert sasl.token is not None
        return OAuthBearerClient(sasl.token(), sasl.extensions)
    if sasl.mechanism == PLAIN:
        return PlainClient(sasl.username, sasl.password)
    nonce = secrets.token_urlsafe(_NONCE_BYTES)
    return ScramClient(HASHES[sasl.mechanism], sasl.username, sasl.password, nonce, sasl.extensions)


async def _in_thread(name: str, sasl: Sasl, step: Callable[[], Any]) -> Any:
    """A step of the exchange. Its errors are errors of the authentication; the user's callable may raise any."""
    try:
        return await asyncio.to_thread(step)
    except OttlaError as error:
        raise SaslAuthenticationError(f"{sasl.mechanism} with {name} has failed: {error}") from error
    except Exception as error:
        # What it says may hold a secret: only its kind is told, and the rest is the cause.
        who = "the client" if sasl.token is None else "oauth_cb"
        raise SaslAuthenticationError(
            f"{sasl.mechanism} with {name} has failed: {who} has raised {type(error).__name__}"
        ) from error


def _check_mechanism(name: str, sasl: Sasl, shake: SaslHandshakeResponse) -> None:
    if shake.error_code == ErrorCode.NONE:
        return
    if shake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(shake.mechanisms) or "none"
        raise SaslAuthenticationError(f"{name} does not offer sasl.mechanism {sasl.mechanism}; it offers: {offered}")
    if shake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SaslAuthenticationError(
            f"{name} asks nobody who they are: this listener's security.protocol is PLAINTEXT or SSL, or "
            "bootstrap.servers needs another port"
        )
    raise SaslAuthenticationError(f"{name} refuses the SASL handshake: error code {shake.error_code}")


def _who(sasl: Sasl) -> str:
    return (
        f"the token of {OAUTHBEARER}" if sasl.mechanism == OAUTHBEARER else f"user {sasl.username} ({sasl.mechanism})"
    )
