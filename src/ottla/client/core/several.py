"""Lists of names that users give."""

from collections.abc import Iterable


def several(names: Iterable[str], what: str) -> list[str]:
    """The names. TypeError for one text, which would be taken for its letters, and for what is no text.

    `what` they are, in plural: "topics".
    """
    if isinstance(names, str):
        raise TypeError(f"a list of {what} is needed, not a str: write [{names!r}]")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be str, not {name!r}")
    return found
