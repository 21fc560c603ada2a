"""PEM for Python's `ssl`: certificates and keys from files or from texts, and what is wrong with them in words.

A private key that is given as text is written into a file that only this user may read, for the moment in which OpenSSL
reads it: Python's `ssl` takes keys from files only.
"""

import ssl
import tempfile
from pathlib import Path
from typing import Final

from ottla.base.secret import Secret

#: How Java's stores become PEM.
CONVERT_TRUST: Final = "keytool -list -rfc -keystore STORE > ca.pem"
CONVERT_KEY: Final = (
    "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12, "
    "openssl pkcs12 -in store.p12 -out both.pem"
)
#: How a JKS store begins, and what is encoded by ASN.1.
_JKS, _DER = b"\xfe\xed\xfe\xed", b"\x30"
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def load_authorities(context: ssl.SSLContext, file: str | None, text: str | None) -> None:
    """Trust these authorities. Raises OSError or ValueError; `why` says it in words."""
    try:
        context.load_verify_locations(cafile=file, cadata=unfolded(text))
    except ssl.SSLError:
        problem = _lacks(_content(file) if text is None else text.encode(), "CERTIFICATE", CONVERT_TRUST)
        if problem is None:
            raise
        raise ValueError(problem) from None


def load_certificate(
    context: ssl.SSLContext,
    *,
    file: str | None,
    text: str | None,
    key_file: str | None,
    key_text: Secret | None,
    password: Secret | None,
) -> None:
    """Show this certificate, with its chain. Raises OSError or ValueError; `why` says it in words."""
    with tempfile.TemporaryDirectory(prefix="ottla-") as directory:  # its mode is 0700
        if text is not None:
            file = str(Path(directory) / "certificate.pem")
            Path(file).write_text(unfolded(text) or "")
        if key_text is not None:
            key_file = str(Path(directory) / "key.pem")
            Path(key_file).write_text(unfolded(key_text.reveal()) or "")
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(file or "", key_file, password.reveal() if password is not None else "")
        except (OSError, ValueError) as error:
            problem = _lacks(_content(file), "CERTIFICATE", CONVERT_KEY)
            problem = problem or _lacks(_content(key_file or file), "PRIVATE KEY", CONVERT_KEY)
            raise ValueError(problem or why(error, key_file or file)) from None


def _content(file: str | None) -> bytes | None:
    try:
        return None if file is None else Path(file).read_bytes()
    except OSError:
        return None


def _lacks(content: bytes | None, kind: str, convert: str) -> str | None:
    """What to tell somebody whose file has no PEM of this kind in it; None if it has, or cannot be read."""
    if content is None or f"{kind}-----".encode() in content:
        return None
    if content.startswith(_JKS):
        return f"this is a JKS store, and PEM is needed: {convert}"
    if content.startswith(_DER):
        return f"this is binary, a PKCS12 store or DER, and PEM is needed: {convert}, or openssl x509 -inform der"
    if kind == "PRIVATE KEY":
        return "there is no private key: it may be in the certificate's file, or in a file of its own"
    return "there is no certificate in it"


def unfolded(pem: str | None) -> str | None:
    """Java's properties may hold a PEM in one line. OpenSSL wants the marks on lines of their own."""
    if pem is None or "\n" in pem.strip():
        return pem
    parts = [
        part.strip() for part in pem.replace("-----BEGIN", "\n-----BEGIN").replace("-----END", "\n-----END").split("\n")
    ]
    lines: list[str] = []
    for part in parts:
        if part.startswith("-----"):
            end = part.index("-----", 5) + 5 if "-----" in part[5:] else len(part)
            lines += [part[:end], *part[end:].split()]
        else:
            lines += part.split()
    return "\n".join(lines) + "\n"


def why(error: Exception, key: str | None = None) -> str:
    """What is wrong, in words. `key` is the file with the private key, if that may be the reason."""
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the certificate"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    # For a wrong password OpenSSL's reasons are many.
    if key is not None and Path(key).is_file() and "ENCRYPTED" in Path(key).read_text(errors="replace"):
        return f"the private key is encrypted, and ssl.key.password is missing or wrong ({error})"
    if "PEM lib" in str(error):
        return f"OpenSSL cannot read it: is the PEM whole, from -----BEGIN to -----END? ({error})"
    return str(error)
