"""`ottla certs`: an authority of your own, and certificates of a broker and its clients, for tests and small nets."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ottla.cli.common import CommandError, say

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

#: Clocks differ: a certificate counts from a little earlier on.
_EARLIER = timedelta(hours=1)


def certs(
    directory: Annotated[Path, typer.Argument(help="Where the files are; made when it is not there.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="A name or address of the broker, as clients write it."),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="A client; its principal is User:CN=NAME.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="How long certificates are good.")] = 365,
) -> None:
    """Make a test authority, and certificates of a broker and of clients, as PEM files.

    `ca.pem` is the authority, `ca-key.pem` its key; it is used again if it is there. `broker.pem` and `NAME.pem` have
    key and certificate in one file. A file that is there is never replaced.

    Example: `ottla certs secure --host kafka.example --host 127.0.0.1 --client alice`
    """
    try:
        import cryptography.x509  # noqa: F401 - only to see whether it is there
    except ImportError:
        raise CommandError("certificates need one more package: pip install 'ottla[certs]'") from None
    wanted: dict[str, tuple[str, ...]] = {"broker": tuple(host)} if host else {}
    for name in client or ():
        if name in ("ca", "ca-key", "broker") or Path(name).name != name or not name.isprintable():
            raise CommandError(f"--client {name!r}: it is the name of a file, too; choose another one")
        wanted[name] = ()
    if not wanted:
        raise CommandError("for whom? give --host NAME for a broker, --client NAME for a client, or both")
    for name in wanted:
        if (directory / f"{name}.pem").exists():
            raise CommandError(f"{directory / name}.pem is there already; remove it first, if you want a new one")
    ends = datetime.now(UTC) + timedelta(days=days)
    try:
        directory.mkdir(0o700, parents=True, exist_ok=True)  # users write passwords there, too
        authority = _authority(directory, ends)
        for name, hosts in wanted.items():
            _write(directory / f"{name}.pem", _certificate(authority, name, hosts, min(ends, authority.ends)))
    except OSError as fault:
        raise CommandError(f"{fault.filename or directory}: {fault.strerror}") from None
    good = f"for {days} day{'' if days == 1 else 's'}"
    if authority.ends < ends:
        good = f"until {authority.ends:%Y-%m-%d}, when the authority ends"
    say(f"{directory}: ca.pem, {', '.join(f'{name}.pem' for name in wanted)}; good {good}.")


class _Authority(NamedTuple):
    name: x509.Name
    key: ec.EllipticCurvePrivateKey
    ends: datetime


def _authority(directory: Path, ends: datetime) -> _Authority:
    """The authority that is there; a new one if there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    own, own_key = directory / "ca.pem", directory / "ca-key.pem"
    if own.exists() or own_key.exists():
        try:
            key = serialization.load_pem_private_key(own_key.read_bytes(), None)
            found = x509.load_pem_x509_certificate(own.read_bytes())
        except (ValueError, TypeError):
            raise CommandError(f"{own} and {own_key} are no authority that this command has made") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CommandError(f"{own_key} is no key that this command has made")
        if found.public_key() != key.public_key():
            raise CommandError(f"{own} and {own_key} do not belong together: the key is another authority's")
        if found.not_valid_after_utc <= datetime.now(UTC):
            raise CommandError(f"{own} is not good any more: remove it and {own_key} for a new authority")
        return _Authority(found.subject, key, found.not_valid_after_utc)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ottla test authority")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _begun(name, name, key, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(own_key, _pem(key))
    _write(own, certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(name, key, ends)


def _certificate(authority: _Authority, name: str, hosts: tuple[str, ...], ends: datetime) -> bytes:
    """Key and certificate. With hosts it is a server's, without a client's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    issuer, issuer_key, _ = authority
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64] if hosts else name)])
        names = [_host(each) for each in hosts]
    except ValueError as fault:
        raise CommandError(f"{name}: {fault}") from None
    use = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _begun(subject, issuer, key, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(identifier, critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return _pem(key) + certificate.public_bytes(serialization.Encoding.PEM)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _EARLIER)
        .not_valid_after(ends)
    )


def _host(text: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    """A new file that only this user can read. FileExistsError if there is one."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
        file.write(data)
