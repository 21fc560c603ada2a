"""Keys that are known and not in force, written as a table: names, types, defaults and ranges.

Under `[why]` are keys that are accepted and have no effect; no user relies on what they do. Under `[!why]` are keys
that must keep their default: to accept another value and ignore it would break a promise.

A line is: name, type, default (`-` for none, `""` for empty). Then come the values that are allowed, if not all are:
`low..high` (either may be missing), `one|of|these` (with `~` in front: upper or lower case), or `some` for not empty.
`internal` marks keys that DescribeConfigs does not show.
"""

from collections.abc import Iterator

from ottla.base.config import ConfigKey, ConfigType, Standing, Validator, between, convert, each_of, not_empty, one_of


def read_table(table: str) -> Iterator[ConfigKey]:
    """The keys of such a table."""
    refused, why = False, ""
    for line in table.splitlines():
        if line.startswith("["):
            refused, why = line.startswith("[!"), line.strip("[!]")
        elif line:
            yield _key(line.split(" "), why, refused=refused)


def _key(words: list[str], why: str, *, refused: bool) -> ConfigKey:
    name, kind, default, *rest = words
    internal = rest[-1:] == ["internal"]
    kind_type = ConfigType(kind)
    return ConfigKey(
        name,
        kind_type,
        None if default == "-" else convert(kind_type, default.strip('"')),
        why,
        _validator(rest[0], kind_type) if len(rest) > internal else None,
        sensitive=kind_type is ConfigType.PASSWORD,
        internal=internal,
        standing=Standing.DEFAULT_ONLY if refused else Standing.WITHOUT_EFFECT,
    )


def _validator(text: str, kind: ConfigType) -> Validator:
    if text == "some":
        return not_empty
    if ".." in text:
        low, high = text.split("..")
        number = float if kind is ConfigType.DOUBLE else int
        return between(number(low) if low else None, number(high) if high else None)
    words = text.removeprefix("~").split("|")
    if kind is ConfigType.LIST:
        return each_of(*words)
    return one_of(*words, any_case=text.startswith("~"))
