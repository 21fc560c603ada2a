"""Java's properties files, as clients and brokers have them, read as `java.util.Properties.load` reads them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.base.errors import ConfigError

#: A key up to the first `=`, `:` or blank that is not escaped; then its value. No line is looked at twice.
_ENTRY: Final = re.compile(r"((?:[^\\=: \t\f]|\\.)+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)(.*)")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, object]:
    """Read a Java properties file: lines of `key=value`, `key: value` or `key value`; # and ! begin comments.

    A backslash at the end of a line continues it. Before any other character it means that one, but for `\\t`, `\\n`,
    `\\r`, `\\f` and `\\u0041`. Unlike Java, this reads UTF-8, and refuses a line without a value, which is most
    likely a mistake. Raises ConfigError; it does not repeat what is in the line, which may be a password.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise ConfigError(f"cannot read {path}: byte {fault.start} is not UTF-8") from None
    found: dict[str, object] = {}
    for number, line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ConfigError(f"{path}:{number}: expected key=value, got a line without a key or without = or :")
        try:
            found[_unescaped(entry[1])] = _unescaped(entry[2])
        except ConfigError as fault:
            raise ConfigError(f"{path}:{number}: {fault}") from None
    return found


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise ConfigError("\\u must be followed by four hexadecimal digits; a backslash is written as two")
        return _CONTROLS.get(escape[2], escape[2])

    plain = _ESCAPE.sub(character, text)
    # Java writes what lies beyond 16 bits as a pair of surrogates.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    pending, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first if pending else number
        if _ends_escaped(line):
            pending += line[:-1]
            continue
        yield first, _without_end(pending + line)
        pending = ""
    if pending:
        yield first, _without_end(pending)


def _ends_escaped(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _without_end(line: str) -> str:
    """The line without blanks at its end, unless they are escaped: they are not part of a value here."""
    bare = line.rstrip()
    return f"{bare} " if _ends_escaped(bare) and bare != line else bare
