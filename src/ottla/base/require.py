"""Invariants that stay on in production (STYLE.md, three kinds of error)."""


class InvariantError(AssertionError):
    """Ottla's own logic is wrong: stop before anything half-right is written."""


def require(condition: object, message: str) -> None:
    """Raise InvariantError with `message` unless `condition` holds."""
    if not condition:
        raise InvariantError(message)
