"""TLS: a context from the configuration, and what went wrong in a handshake, in words."""

import ssl
from typing import Final

from ottla.base.errors import ConfigError
from ottla.base.pem import VERSIONS, load_authorities, load_certificate, why
from ottla.client.config.security import Tls
from ottla.client.errors import ClientError, DisconnectedError, SslAuthenticationError

#: How a TLS record of the kind "alert" begins: what a broker says that speaks TLS to a client that does not.
ALERT: Final = b"\x15\x03"

# OpenSSL's X509_V_ERR_*: what is wrong with a broker's certificate.
_NOT_YET, _EXPIRED, _OTHER_HOST = 9, 10, (62, 64)
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
# OpenSSL's reasons where the answer to a handshake is not TLS, and the alert by which our broker says so.
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE",
    "SSLV3_ALERT_UNEXPECTED_MESSAGE",
)
_OURS: Final = "(ssl.certificate.location, ssl.key.location)"
_ANY_ALERT: Final = f"perhaps it asks for a certificate of this client {_OURS}, or does not trust the one it was shown"
#: What an alert of the broker says of this client, by how its name ends.
_ALERTS: Final = {
    "CERTIFICATE_EXPIRED": f"this client's certificate {_OURS} has expired",
    "CERTIFICATE_REQUIRED": f"it asks for a certificate of this client {_OURS}",
    "UNKNOWN_CA": f"it does not know the authority that has signed this client's certificate {_OURS}",
}


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The context of a client. Raises ConfigError for a file that cannot be read, or does not hold what it should."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = min(VERSIONS[each] for each in tls.versions)
    context.maximum_version = max(VERSIONS[each] for each in tls.versions)
    context.check_hostname = tls.check_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE
    _trust(context, tls)
    if tls.certificate_file is not None or tls.certificate_pem is not None:
        _show_certificate(context, tls)
    return context


def _trust(context: ssl.SSLContext, tls: Tls) -> None:
    if tls.ca_file is None and tls.ca_pem is None:
        context.load_default_certs()
        return
    where = "ssl.ca.pem" if tls.ca_file is None else tls.ca_file
    try:
        load_authorities(context, tls.ca_file, tls.ca_pem)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"the authorities to trust cannot be read ({where}): {why(error)}") from None


def _show_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        load_certificate(
            context,
            file=tls.certificate_file,
            text=tls.certificate_pem,
            key_file=tls.key_file,
            key_text=tls.key_pem,
            password=tls.key_password,
        )
    except ValueError as error:
        what = "ssl.certificate.pem" if tls.certificate_file is None else tls.certificate_file
        raise ConfigError(f"this client's certificate or key cannot be read ({what}): {error}") from None


def handshake_failed(name: str, error: Exception) -> ClientError:
    """What a failed handshake with the broker `name` means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return SslAuthenticationError(_about_their_certificate(name, error))
    reason = str(getattr(error, "reason", None) or error)
    if isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
        said = f" ({error})" if str(error) else ""
        return DisconnectedError(
            f"{name} closed the connection during the TLS handshake{said}. Perhaps this listener speaks no TLS: "
            "then security.protocol is PLAINTEXT or SASL_PLAINTEXT, or bootstrap.servers needs another port"
        )
    if reason in _NO_TLS:
        return SslAuthenticationError(
            f"{name} does not speak TLS, and this client does: security.protocol is PLAINTEXT or SASL_PLAINTEXT there, "
            "or bootstrap.servers needs another port"
        )
    if "ALERT" in reason:
        words = next((words for alert, words in _ALERTS.items() if reason.endswith(alert)), _ANY_ALERT)
        return SslAuthenticationError(f"{name} has refused the TLS handshake ({reason}): {words}")
    return SslAuthenticationError(f"the TLS handshake with {name} has failed: {reason}")


def _about_their_certificate(name: str, error: ssl.SSLCertVerificationError) -> str:
    code, words = error.verify_code, error.verify_message
    if code == _EXPIRED:
        return f"the certificate of {name} has expired: it has to be renewed there"
    if code == _NOT_YET:
        return f"the certificate of {name} is not valid yet: is the clock of this machine right?"
    if code in _OTHER_HOST:
        return (
            f"the certificate of {name} is for another host ({words}). Connect to a name that the certificate has; "
            "ssl.endpoint.identification.algorithm=none switches the check off"
        )
    if code in _UNKNOWN_AUTHORITY:
        return (
            f"the certificate of {name} is signed by an authority that is not known here ({words}): set "
            "ssl.ca.location to the PEM file of that authority"
        )
    return f"the certificate of {name} cannot be verified: {words}"


def speaks_tls(name: str) -> SslAuthenticationError:
    """The broker has answered plain text by a TLS alert."""
    return SslAuthenticationError(
        f"{name} speaks TLS, and this client does not: set security.protocol to SSL or SASL_SSL, or bootstrap.servers "
        "to another port"
    )
