"""An authority and certificates for tests: right, expired, for another host, of another authority."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_ENCODING = serialization.Encoding.PEM
_PKCS8 = serialization.PrivateFormat.PKCS8


class Authority:
    """Signs certificates; their files are below `directory`."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = directory / f"{name}.pem"
        own = self._signed(self._name, self._key, (-1, 10)).add_extension(x509.BasicConstraints(True, None), True)
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(_ENCODING))

    def certificate(
        self, name: str, *, host: str | None = None, days: tuple[int, int] = (-1, 10), password: str | None = None
    ) -> Path:
        """A file with private key and certificate. `host` is a name or an address; `days` are from and to, from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._signed(subject, key, days)
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name(host)]), False)
        sealed = (
            serialization.BestAvailableEncryption(password.encode())
            if password is not None
            else serialization.NoEncryption()
        )
        file = self._directory / f"{name}.pem"
        certificate = builder.sign(self._key, hashes.SHA256())
        file.write_bytes(key.private_bytes(_ENCODING, _PKCS8, sealed) + certificate.public_bytes(_ENCODING))
        return file

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + days[0] * _DAY)
            .not_valid_after(now + days[1] * _DAY)
        )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
