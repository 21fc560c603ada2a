"""The one mark that every secret of the tests has in it, and the search for it in what the suites have written.

A password, token, or key password of a test contains `MARK`: `alice-hunter2` (tests/house/test_marked.py holds it). At
the end of a run all that was written is searched for the mark (`tests/leaks.py`): as it is, in base64, in UTF-16.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

MARK: Final = "hunter2"
#: Where tests themselves put secrets: clients' and brokers' settings, keys, passwords.
_HOMES: Final = frozenset({".properties", ".pem", ".password", ".py", ".key"})
_CHUNK_BYTES: Final = 8 << 20
_AROUND: Final = 60


class Leak(NamedTuple):
    """Where a secret was found, and what stands around it."""

    where: str
    text: str


def _in_base64() -> Iterator[bytes]:
    """The mark's characters in base64, for each of the three places in a group of three bytes that it may begin at."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + MARK.encode())
        yield encoded[-(-before * 8 // 6) : (before + len(MARK)) * 8 // 6]


_FORMS: Final = (MARK.encode(), *_in_base64(), MARK.encode("utf-16-le"), b"PRIVATE KEY-----\n")
_ANY: Final = re.compile(b"|".join(re.escape(form) for form in _FORMS))


def leaks_in(content: bytes, where: str) -> list[Leak]:
    """The first secret in `content`, if there is one."""
    found = _ANY.search(content)
    if found is None:
        return []
    around = content[max(0, found.start() - _AROUND) : found.end() + _AROUND]
    return [Leak(where, ascii(around.decode("utf-8", "replace")))]


def leaks_below(directory: Path) -> Iterator[Leak]:
    """The first secret in each file below `directory`, but in those where tests keep their secrets."""
    for path in sorted(directory.rglob("*")):
        if path.suffix not in _HOMES and path.is_file() and not path.is_symlink():
            yield from _leaks_in_file(path)


def _leaks_in_file(path: Path) -> Iterable[Leak]:
    try:
        with path.open("rb") as file:
            tail = b""
            while chunk := file.read(_CHUNK_BYTES):
                found = leaks_in(tail + chunk, str(path))
                if found:
                    return found
                tail = chunk[-len(MARK) * 3 :]
    except OSError:  # a socket's name, or a file that a test has made unreadable
        pass
    return []
