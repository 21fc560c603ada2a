"""What users import from `ottla` itself."""

import inspect

import ottla
from ottla.client import errors


def test_every_name_is_there() -> None:
    assert list(ottla.__all__) == sorted(ottla._EXPORTS)
    assert {getattr(ottla, name).__name__ for name in ottla.__all__} == set(ottla.__all__)


def test_every_exception_of_the_client_is_there() -> None:
    raised = {name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, ottla.OttlaError)}
    assert raised <= set(ottla.__all__)
