"""What users import from `ottla` itself."""

import inspect

import ottla
from ottla.client import errors

#: Kafka's names of kinds that both sides use under a shorter one.
_ALSO = {"AclPatternType": "PatternType", "AclResourceType": "ResourceType"}


def test_every_name_is_there() -> None:
    assert list(ottla.__all__) == sorted(ottla._EXPORTS)
    names = {name: getattr(ottla, name).__name__ for name in ottla.__all__}
    assert names == {name: _ALSO.get(name, name) for name in ottla.__all__}


def test_every_exception_of_the_client_is_there() -> None:
    raised = {name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, ottla.OttlaError)}
    assert raised <= set(ottla.__all__)
