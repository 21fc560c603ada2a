"""Whose fault an error says it was."""


def chain(error: BaseException | None) -> list[BaseException]:
    """The error, what it was raised from, and so on."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def blames(error: BaseException, cause: BaseException) -> bool:
    """Whether `error` is `cause`, or was raised from it, or says it in words."""
    return any(one is cause or repr(cause) in str(one) for one in chain(error))
