"""A client of a SASL listener says who it is."""

from ottla.wire.apis import ApiKey
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.four_listeners import PASSWORD, USER
from tests.broker.wire_client import WireClient


async def say_who(client: WireClient) -> None:
    """Authenticate with PLAIN."""
    said = f"\0{USER}\0{PASSWORD}".encode()
    assert (await client.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"))).error_code == 0
    assert (await client.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(said))).error_code == 0
