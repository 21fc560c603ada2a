"""SASL of one listener: what stands before the dispatcher until a client has proven who it is.

    new ──SaslHandshake──▶ exchange ──SaslAuthenticate…──▶ known ──SaslHandshake──▶ exchange (again, KIP-368) …
              (v0: the mechanism's messages come as frames without a header)

As in Kafka's SaslServerAuthenticator: whoever is new is answered ApiVersions and SaslHandshake and nothing else, within
an exchange SaslAuthenticate and nothing else; any other request closes the connection. A client that fails is told so
after `connection.failed.authentication.delay.ms`, and then the connection is closed. It is not told why, beyond what
everybody knows: a user who does not exist is answered as one who does.
"""

import hmac
import random
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from hashlib import shake_256
from typing import TYPE_CHECKING, Any, Final

from ottla.base.clock import Clock
from ottla.base.errors import ConfigError, CorruptDataError
from ottla.base.limits import MAX_FIELD_BYTES
from ottla.base.secret import Secret
from ottla.broker.answers import Answer, Dispatch, Frame, Last
from ottla.broker.config import BrokerConfig
from ottla.broker.listeners import Listener
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.session import Session
from ottla.wire.apis import API, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import RequestHeader, decode_body, decode_request, encode_response
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake import SaslHandshakeResponse
from ottla.wire.sasl import (
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    SaslError,
    SaslRefusedError,
    SaslServer,
    sends_headers,
)
from ottla.wire.sasl.jaas import read_jaas
from ottla.wire.sasl.oauthbearer import OAuthBearerServer
from ottla.wire.sasl.plain import PlainServer
from ottla.wire.sasl.scram import HASHES, MECHANISM_NUMBERS, ScramCredential, ScramServer

if TYPE_CHECKING:
    from ottla.broker.authentication.listener_tokens import Tokens


_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")
_OFFERED: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
_USER: Final = "user_"
_NONCE_BITS: Final = 144
#: Length of the salt and iterations of a stand-in where there are no users.
_USUAL_SHAPE: Final = (16, 4_096)


class Sasl:
    """What all connections of a listener share."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: Listener,
        image: MetadataImage,
        clock: Clock,
        rng: random.Random,
        *,
        secret: bytes,
        failed: Callable[[Session, str, str], object] | None = None,
    ) -> None:
        """`secret` is the same after a restart, and no client knows it: of it is made what stands for credentials that
        do not exist. `failed` hears of each who could not authenticate: who, by which mechanism, and why. Raises
        ConfigError for keys that do not fit together."""
        mechanisms = config.of_listener(listener, "sasl.enabled.mechanisms")
        assert isinstance(mechanisms, tuple)
        self.mechanisms: tuple[str, ...] = mechanisms
        self.clock = clock
        self._image = image
        self._rng = rng
        self._secret = secret
        self.failed = failed
        self._passwords: Mapping[str, Secret] = {}
        self._reauth_ms: dict[str, int] = {}
        unknown = [each for each in mechanisms if each not in _OFFERED]
        if unknown or not mechanisms:
            raise ConfigError(
                f"listener {listener.name}: sasl.enabled.mechanisms has {', '.join(unknown) or 'nothing'}; "
                f"there are {', '.join(_OFFERED)}"
            )
        for mechanism in mechanisms:
            own_reauth = config.of_listener(listener, f"{mechanism.lower()}.connections.max.reauth.ms")
            reauth = config.of_listener(listener, "connections.max.reauth.ms") if own_reauth is None else own_reauth
            assert isinstance(reauth, int)
            self._reauth_ms[mechanism] = reauth
            jaas = config.of_listener(listener, f"{mechanism.lower()}.sasl.jaas.config")
            self._read_jaas(listener, mechanism, None if jaas is None else str(jaas))
        self._tokens = None if OAUTHBEARER not in mechanisms else _tokens(config, listener)
        self.delay_ms = config.int("connection.failed.authentication.delay.ms")
        received = config.of_listener(listener, "sasl.server.max.receive.size")
        assert isinstance(received, int)
        self.max_receive_bytes = received

    def _read_jaas(self, listener: Listener, mechanism: str, text: str | None) -> None:
        """Users of PLAIN. SCRAM's are in the metadata log, but Kafka's configurations name its module, too."""
        key = f"{listener.prefix}{mechanism.lower()}.sasl.jaas.config"
        if text is None:
            if mechanism == PLAIN:
                raise ConfigError(f'{key} is missing: it has the users of PLAIN, as user_alice="…"')
            return
        try:
            jaas = read_jaas(text)
        except ConfigError as fault:
            raise ConfigError(f"{key}: {fault}") from None
        if mechanism not in jaas.mechanisms:
            raise ConfigError(f"{key}: its login module is for {' and '.join(jaas.mechanisms)}")
        if mechanism == PLAIN:
            users = {name.removeprefix(_USER): value for name, value in jaas.options.items() if name.startswith(_USER)}
            self._passwords = {name: Secret(value) for name, value in users.items()}

    async def start(self) -> None:
        """Read the keys of tokens, if tokens are accepted. KeysError where they must be there and are not."""
        if self._tokens is not None:
            await self._tokens.jwks.start()

    async def stop(self) -> None:
        """Read them no more."""
        if self._tokens is not None:
            await self._tokens.jwks.stop()

    def lifetime_ms(self, mechanism: str, expires_ms: int | None) -> int | None:
        """How long a session lasts: until its token expires (UTC milliseconds), and no longer than
        `connections.max.reauth.ms`; None for ever."""
        longest_ms = self._reauth_ms[mechanism] if self._reauth_ms[mechanism] > 0 else None
        if expires_ms is None:
            return longest_ms
        left_ms = max(expires_ms - self.clock.now_ms(), 0)
        return left_ms if longest_ms is None else min(left_ms, longest_ms)

    def begin(self, mechanism: str) -> SaslServer:
        """The broker's half of a new exchange."""
        if mechanism == PLAIN:
            return PlainServer(self._is_password)
        if mechanism == OAUTHBEARER:
            assert self._tokens is not None
            return OAuthBearerServer(partial(self._tokens.check, clock=self.clock))
        nonce = f"{self._rng.getrandbits(_NONCE_BITS):x}"
        return ScramServer(HASHES[mechanism], partial(self._credential, mechanism), nonce)

    def _is_password(self, user: str, password: Secret) -> bool:
        there = self._passwords.get(user)
        # Digests have one length, so the time tells nothing of the password's.
        right = self._digest((there or Secret("")).reveal())
        return hmac.compare_digest(self._digest(password.reveal()), right) and there is not None

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha256")

    def _credential(self, mechanism: str, user: str) -> tuple[ScramCredential, bool]:
        """A user's credential, or one that looks like somebody's and is the same whenever somebody asks."""
        number = MECHANISM_NUMBERS[mechanism]
        shapes = sorted(self._image.scram_shapes.get(number, ())) or [_USUAL_SHAPE]
        name = f"{mechanism} {user}".encode()
        chosen = int.from_bytes(hmac.digest(self._secret, b"shape " + name, "sha256")) % len(shapes)
        size, iterations = shapes[chosen]
        drawn = hmac.digest(self._secret, name, "sha256")
        salt = shake_256(drawn).digest(size)
        key = hmac.digest(self._secret, drawn, HASHES[mechanism].name)
        # It is made for those who exist, too: the time tells nothing.
        stand_in = ScramCredential(salt, key, key, iterations)
        found = self._image.scram.get(number, {}).get(user)
        return (stand_in, False) if found is None else (found, True)


def _tokens(config: BrokerConfig, listener: Listener) -> "Tokens":
    """What a listener asks of tokens. ConfigError where PyJWT or a setting is missing."""
    try:
        from ottla.broker.authentication.listener_tokens import Tokens
    except ImportError as fault:
        raise ConfigError(f"OAUTHBEARER needs PyJWT and cryptography ({fault}): pip install 'ottla[oauth]'") from None
    return Tokens(config, listener)


class _Stage(Enum):
    NEW = "new"
    EXCHANGE = "exchange"
    #: After a SaslHandshake of version 0: frames are the mechanism's messages themselves.
    RAW = "raw"
    KNOWN = "known"


class Gate:
    """Stands before the dispatcher of one connection."""

    def __init__(self, sasl: Sasl, dispatch: Dispatch, admit: Callable[[], None]) -> None:
        """`admit` is called when the client is known: it may send large frames then."""
        self._sasl = sasl
        self._dispatch = dispatch
        self._admit = admit
        self._stage = _Stage.NEW
        self._mechanism = ""
        self._exchange: SaslServer | None = None
        #: Who the client was before it began to authenticate again; None the first time.
        self._before: tuple[str, str] | None = None
        #: When the session ends, by the clock that never steps; None: never.
        self._ends_ms: int | None = None
        #: How long it lasts, for the client to be told; 0: for ever, or it is over already.
        self._lifetime_ms = 0

    def __call__(self, frame: Frame, session: Session) -> Answer:
        if self._stage is _Stage.KNOWN:
            if len(frame) < 2 or _KEY.unpack_from(frame)[0] != ApiKey.SASL_HANDSHAKE:
                if self._ends_ms is not None and self._sasl.clock.monotonic_ms() > self._ends_ms:
                    raise CorruptDataError("its session has ended (connections.max.reauth.ms)")
                return self._dispatch(frame, session)
            self._before = (session.principal, self._mechanism)
        elif len(frame) > MAX_FIELD_BYTES:  # only of who is known, and says it again: it would be copied
            raise CorruptDataError(f"{len(frame)} bytes that say who it is, at most {MAX_FIELD_BYTES} are read")
        elif self._stage is _Stage.RAW:
            return self._raw(bytes(frame), session)
        elif self._stage is _Stage.NEW and len(frame) >= 2 and _KEY.unpack_from(frame)[0] == ApiKey.API_VERSIONS:
            return self._dispatch(frame, session)
        header, offset = decode_request(frame)
        wanted = ApiKey.SASL_AUTHENTICATE if self._stage is _Stage.EXCHANGE else ApiKey.SASL_HANDSHAKE
        if header.api_key != wanted:
            raise CorruptDataError(
                f"{API[header.api_key].name} before it has said who it is (security.protocol of the client?)"
            )
        message = decode_body(API[wanted].request, header.api_version, frame, offset)
        if self._stage is _Stage.EXCHANGE:
            return self._authenticate(header, message.auth_bytes, session)
        return self._shake_hands(header, message.mechanism, session)

    def _shake_hands(self, header: RequestHeader, mechanism: str, session: Session) -> Answer:
        offered = self._sasl.mechanisms
        if mechanism not in offered:
            refusal = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered)
            self._report(session, f"the mechanism {mechanism[:50]!a} is not enabled")
            return Last(_encoded(header, refusal), self._sasl.delay_ms)
        self._mechanism = mechanism
        self._exchange = self._sasl.begin(mechanism)
        self._stage = _Stage.EXCHANGE if sends_headers(header.api_version) else _Stage.RAW
        return _encoded(header, SaslHandshakeResponse(ErrorCode.NONE, offered))

    def _authenticate(self, header: RequestHeader, message: bytes, session: Session) -> Answer:
        try:
            said = self._step(bytes(message), session)
        except SaslError as fault:
            self._report(session, str(fault.__cause__ or fault))
            refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, self._told(fault))
            return Last(_encoded(header, refusal), self._sasl.delay_ms)
        lifetime_ms = self._lifetime_ms if self._stage is _Stage.KNOWN else 0
        return _encoded(header, SaslAuthenticateResponse(ErrorCode.NONE, None, said, lifetime_ms))

    def _told(self, fault: SaslError) -> str:
        """What the client may know of it."""
        if isinstance(fault, SaslRefusedError):
            return str(fault)
        again = "re-authentication" if self._before is not None else "authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _raw(self, message: bytes, session: Session) -> Answer:
        try:
            said = self._step(message, session)
        except SaslError as fault:
            self._report(session, str(fault.__cause__ or fault))
            return Last(b"", self._sasl.delay_ms)
        return _SIZE.pack(len(said)) + said

    def _step(self, message: bytes, session: Session) -> bytes:
        """One message of the exchange. Raises SaslError."""
        exchange = self._exchange
        assert exchange is not None
        said = exchange.answer(message)
        if exchange.user is not None:
            self._known(f"User:{exchange.user}", getattr(exchange, "expires_ms", None), session)
        return said

    def _known(self, principal: str, expires_ms: int | None, session: Session) -> None:
        if self._before is not None:
            before, mechanism = self._before
            if principal != before:
                raise SaslRefusedError(
                    f"Cannot change principals during re-authentication from {before.replace(':', '.', 1)}: "
                    f"{principal.replace(':', '.', 1)}"
                )
            if mechanism != self._mechanism:
                raise SaslRefusedError(
                    f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of "
                    f"mechanism '{mechanism}'"
                )
        session.principal = principal
        lifetime_ms = self._sasl.lifetime_ms(self._mechanism, expires_ms)
        self._ends_ms = None if lifetime_ms is None else self._sasl.clock.monotonic_ms() + lifetime_ms
        self._lifetime_ms = lifetime_ms or 0
        self._stage = _Stage.KNOWN
        self._exchange = None
        self._admit()

    def _report(self, session: Session, why: str) -> None:
        if self._sasl.failed is not None:
            self._sasl.failed(session, self._mechanism, why)


def _encoded(header: RequestHeader, message: tuple[Any, ...]) -> bytes:
    return encode_response(header.api_key, header.api_version, header.correlation_id, message)
