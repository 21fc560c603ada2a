"""SaslAuthenticate, versions 0–2 (KIP-152), when none is due. `authentication.sasl` answers the others."""

from ottla.broker.handlers.table import RequestContext
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(node: object, request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """ILLEGAL_SASL_STATE: there was no SaslHandshake before it, or this listener's security protocol has no SASL."""
    return SaslAuthenticateResponse(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received without a SaslHandshake before it"
    )
