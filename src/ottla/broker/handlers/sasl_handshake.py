"""SaslHandshake, versions 0–1 (KIP-43), where nobody has to say who he is. `authentication.sasl` answers the others."""

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(node: object, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """ILLEGAL_SASL_STATE: this listener's security protocol has no SASL."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
