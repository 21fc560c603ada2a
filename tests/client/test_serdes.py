"""SPEC C2: serializers and deserializers."""

import pytest

from ottla.base.errors import ConfigError
from ottla.client.errors import SerializationError
from ottla.client.serdes import deserializer, serialize, serializer


class Upper:
    """A serializer as a class."""

    def serialize(self, topic: str, data: str) -> bytes:
        return data.upper().encode()


def test_c2_serializers_are_callables_objects_or_classes() -> None:
    for given in (Upper, Upper(), lambda topic, data: data.upper().encode()):
        assert serialize(serializer("value.serializer", given), "t", "value", "a") == b"A"
    assert serializer("value.serializer", None) is None
    with pytest.raises(ConfigError, match=r"value\.deserializer"):
        deserializer("value.deserializer", 5)


def test_c2_what_cannot_be_serialized_names_the_topic() -> None:
    with pytest.raises(SerializationError, match=r"topic t: the value is a str: configure a value\.serializer"):
        serialize(None, "t", "value", "text")
    with pytest.raises(SerializationError, match="topic t: the key could not be serialized"):
        serialize(serializer("key.serializer", Upper), "t", "key", 5)
    assert serialize(None, "t", "value", bytearray(b"x")) == b"x"


def test_c2_bytes_of_a_kind_of_their_own_become_bytes() -> None:
    class Text(bytes):
        """As numpy's are."""

    for how in (None, lambda topic, data: data):
        assert type(serialize(how, "t", "value", Text(b"x"))) is bytes
