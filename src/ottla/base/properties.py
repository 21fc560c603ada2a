"""Java's properties files: `key=value`, as clients and brokers have them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.base.errors import ConfigError

#: A key up to the first `=` or `:` that is not escaped; then its value.
_ENTRY: Final = re.compile(r"((?:[^\\=:]|\\.)+?)\s*[=:]\s*(.*)")
_ESCAPED: Final = frozenset("\\:=#! ")


def read_properties(path: Path) -> dict[str, object]:
    """Read a Java properties file: `key=value` or `key: value` lines, # and ! comments, `\\` continues a line.

    A backslash before one of `:=#!`, a blank or a backslash means that character itself, as `Properties.store` writes
    it; other escapes are refused.
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
            # What it says is not shown: it may be a line of a private key.
            raise ConfigError(f"{path}:{number}: expected key=value, got a line without = or :")
        try:
            found[_unescaped(entry[1])] = _unescaped(entry[2])
        except ConfigError as fault:
            raise ConfigError(f"{path}:{number}: {fault}") from None
    return found


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[1] not in _ESCAPED:
            raise ConfigError(f"{escape[0]!r} is no escape that is read here; a backslash is written as two")
        return escape[1]

    return re.sub(r"\\(.?)", character, text)


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
