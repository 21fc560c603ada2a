"""A text that must not be seen: a password, a private key, a token."""

from typing import Final, NoReturn

_SHOWN: Final = "[hidden]"


class Secret:
    """Holds a text. Only `reveal` gives it: `repr`, `str`, f-strings and `%s` show that it is hidden, as Kafka does.

    It cannot be pickled, so that it does not get into a Spark plan or another process unseen.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text. Give it only to what needs it, and keep it in no other object."""
        return self._text

    def __repr__(self) -> str:
        return _SHOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled: pass the configuration on, and read it again there")
