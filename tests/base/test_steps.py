"""Steps with one of them in front again."""

from collections.abc import Generator

import pytest

from ottla.base.steps import behind


def _steps(ended: list[bool]) -> Generator[int, None, None]:
    try:
        yield from range(4)
    finally:
        ended.append(True)


def test_the_step_that_was_taken_comes_again_and_the_others_behind_it() -> None:
    steps = _steps([])
    assert next(steps) == 0
    assert list(behind(next(steps), steps)) == [1, 2, 3]


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_who_closes_it_closes_them(taken: int) -> None:
    """Wherever it is, and whoever else knows them."""
    ended: list[bool] = []
    steps = _steps(ended)
    again = behind(next(steps), steps)
    for _ in range(taken):
        next(again)
    assert isinstance(again, Generator)
    again.close()
    assert ended == [True]
