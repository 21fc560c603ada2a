"""What is wrong with a certificate, a key or a store, in words."""

import base64
import ssl
from pathlib import Path

import pytest

from ottla.base.pem import load_authorities, load_certificate
from ottla.base.secret import Secret
from tests.client.certificates import Authority

_JKS = b"\xfe\xed\xfe\xed\x00\x00\x00\x02"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pem")
    both = Authority(directory, "authority").certificate("both").read_text()
    at = both.index("-----BEGIN CERTIFICATE")
    (directory / "key.pem").write_text(both[:at])
    (directory / "certificate.pem").write_text(both[at:])
    (directory / "x.jks").write_bytes(_JKS)
    (directory / "x.der").write_bytes(base64.b64decode("".join(both[at:].splitlines()[1:-1])))
    (directory / "x.txt").write_text("hello")
    return directory


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("x.jks", "a JKS store, and PEM is needed: keytool -list -rfc"),
        ("x.der", "binary, a PKCS12 store or DER, and PEM is needed: keytool .*, or openssl x509 -inform der"),
        ("x.txt", "there is no certificate in it"),
        ("key.pem", "there is no certificate in it"),
    ],
)
def test_authorities_that_are_no_pem_are_told_how_to_convert(files: Path, name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_authorities(ssl.create_default_context(), str(files / name), None)


def test_so_are_authorities_in_a_text() -> None:
    with pytest.raises(ValueError, match="there is no certificate in it"):
        load_authorities(ssl.create_default_context(), None, "hello")


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        ("certificate.pem", None, "there is no private key: it may be in the certificate.s file, or in a file"),
        ("certificate.pem", "certificate.pem", "there is no private key"),
        ("key.pem", None, "there is no certificate in it"),
        ("x.jks", None, "a JKS store, and PEM is needed: keytool -importkeystore"),
        ("x.der", "key.pem", "binary, a PKCS12 store or DER"),
        ("certificate.pem", "x.der", "binary, a PKCS12 store or DER"),
        ("nowhere.pem", None, "there is no such file"),
    ],
)
def test_a_certificate_or_a_key_that_is_missing_is_told(
    files: Path, certificate: str, key: str | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        load_certificate(
            ssl.create_default_context(),
            file=str(files / certificate),
            text=None,
            key_file=None if key is None else str(files / key),
            key_text=None,
            password=None,
        )


def test_a_key_that_is_cut_is_told(files: Path) -> None:
    cut = Secret("-----BEGIN PRIVATE KEY-----\nMYSECRETKEY\n-----END PRIVATE KEY-----")
    with pytest.raises(ValueError, match="is the PEM whole") as told:
        load_certificate(
            ssl.create_default_context(),
            file=str(files / "certificate.pem"),
            text=None,
            key_file=None,
            key_text=cut,
            password=None,
        )
    assert "MYSECRETKEY" not in str(told.value)
