"""Distinguished names as Java writes them: what X500Principal.getName gives was taken from Java 17."""

from __future__ import annotations

import contextlib
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import CorruptDataError
from ottla.broker.authentication.names import distinguished_name

_KEY = ec.generate_private_key(ec.SECP256R1())


def _certificate(*rdns: list[x509.NameAttribute[str]]) -> bytes:
    name = x509.Name([x509.RelativeDistinguishedName(each) for each in rdns])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody else")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer).public_key(_KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def _of(kind: x509.ObjectIdentifier, value: str) -> list[x509.NameAttribute[str]]:
    return [x509.NameAttribute(kind, value)]


def test_the_last_part_comes_first_and_has_its_word() -> None:
    parts = (
        _of(NameOID.COUNTRY_NAME, "SI"),
        _of(NameOID.STATE_OR_PROVINCE_NAME, "Some State"),
        _of(NameOID.LOCALITY_NAME, "Ljubljana"),
        _of(NameOID.STREET_ADDRESS, "Street 1"),
        _of(NameOID.ORGANIZATION_NAME, "Org"),
        _of(NameOID.ORGANIZATIONAL_UNIT_NAME, "Unit"),
        _of(NameOID.DOMAIN_COMPONENT, "example"),
        _of(NameOID.USER_ID, "u1"),
        _of(NameOID.COMMON_NAME, "alice"),
    )
    told = "CN=alice,UID=u1,DC=example,OU=Unit,O=Org,STREET=Street 1,L=Ljubljana,ST=Some State,C=SI"
    assert distinguished_name(_certificate(*parts)) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a,b=c+d", "a\\,b\\=c\\+d"),
        ('<"x">;#\\', '\\<\\"x\\"\\>\\;\\#\\\\'),
        ("  two  ", "\\ \\ two\\ \\ "),
        (" ", "\\ "),
        ("in the middle", "in the middle"),
        ("a\0b", "a\\00b"),
        ("žaba 🐸", "žaba 🐸"),
    ],
)
def test_what_would_be_misread_is_escaped(value: str, told: str) -> None:
    assert distinguished_name(_certificate(_of(NameOID.COMMON_NAME, value))) == f"CN={told}"


def test_a_type_without_a_word_is_its_number_and_its_bytes() -> None:
    mail = x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b", _ASN1Type.IA5String)
    certificate = _certificate([mail], _of(NameOID.COMMON_NAME, "x"))
    assert distinguished_name(certificate) == "CN=x,1.2.840.113549.1.9.1=#1603614062"


def test_parts_of_one_place_are_joined() -> None:
    both = [*_of(NameOID.COMMON_NAME, "a"), *_of(NameOID.USER_ID, "b")]
    told = distinguished_name(_certificate(_of(NameOID.ORGANIZATION_NAME, "o"), both))
    assert told in ("CN=a+UID=b,O=o", "UID=b+CN=a,O=o")


def test_a_name_without_parts_is_empty() -> None:
    assert distinguished_name(_certificate()) == ""


@given(st.binary(max_size=300))
def test_what_is_no_certificate_is_an_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        distinguished_name(data)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_certificate_with_one_other_byte_is_read_or_an_error(at: int, byte: int) -> None:
    data = bytearray(_certificate(_of(NameOID.COMMON_NAME, "x" * 60)))
    data[at % len(data)] = byte
    with contextlib.suppress(CorruptDataError):
        assert isinstance(distinguished_name(bytes(data)), str)
