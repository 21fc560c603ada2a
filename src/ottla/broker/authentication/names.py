"""The subject of a certificate as Kafka writes it: RFC 2253, in the form of Java's `X500Principal.getName`. Pure.

Python's `ssl` gives the parts of a name under OpenSSL's words, and not their types. So this walks the certificate's own
bytes (X.690 DER, RFC 5280) to its subject. OpenSSL has verified the certificate before: this reads and judges nothing.
"""

from collections.abc import Iterator
from typing import Final

from ottla.base.errors import CorruptDataError

_VERSION: Final = 0xA0
#: The types that RFC 2253 has words for. Others are written as their numbers, and the value in hexadecimal digits.
_WORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: PrintableString, T61String, IA5String, GeneralString, BMPString, UniversalString, UTF8String.
_TEXTS: Final = (19, 20, 22, 27, 30, 28, 12)
_ESCAPED: Final = ',=+<>#;"\\'
_BLANKS: Final = " \r"


def distinguished_name(certificate: bytes) -> str:
    """The subject of a certificate in DER: `CN=alice,OU=x,O=y`. CorruptDataError if it is none."""
    try:
        return _name(_subject(certificate))
    except (IndexError, ValueError) as fault:
        raise CorruptDataError(f"the subject of a certificate cannot be read: {fault}") from None


def _subject(certificate: bytes) -> bytes:
    (whole,) = _parts(certificate)
    signed, *_ = (contents for _, contents in _parts(whole[1]))
    fields = [each for each in _parts(signed) if each[0] != _VERSION]
    # serial number, signature algorithm, issuer, validity, subject
    return fields[4][1]


def _name(subject: bytes) -> str:
    """The last part comes first."""
    return ",".join("+".join(_attribute(each) for _, each in _parts(rdn)) for _, rdn in reversed(list(_parts(subject))))


def _attribute(pair: bytes) -> str:
    (_, kind), (tag, value) = _parts(pair)
    number = _number(kind)
    word = _WORDS.get(number)
    if word is None or tag not in _TEXTS:
        header = len(pair) - len(value) - _header_bytes(len(value))
        return f"{word or number}=#{pair[header:].hex()}"
    return f"{word}={_escaped(value.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join("\\00" if each == "\0" else f"\\{each}" if each in _ESCAPED else each for each in text)
    bare = escaped.lstrip(_BLANKS)
    before, inner = escaped[: len(escaped) - len(bare)], bare.rstrip(_BLANKS)
    after = bare[len(inner) :]
    return "".join(f"\\{each}" for each in before) + inner + "".join(f"\\{each}" for each in after)


def _number(kind: bytes) -> str:
    """An object identifier, with dots."""
    numbers, value = [], 0
    for byte in kind:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and contents of each element."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size >= 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + size > len(data):
            raise ValueError(f"an element of {size} bytes, and {len(data) - at} are left")
        yield tag, data[at : at + size]
        at += size


def _header_bytes(size: int) -> int:
    return 2 if size < 0x80 else 2 + (size.bit_length() + 7) // 8
