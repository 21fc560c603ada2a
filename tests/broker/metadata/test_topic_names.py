"""Names that are the same in metrics: found without a look at every topic."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.metadata.names import TopicNames, collision_key
from ottla.broker.metadata.records import RemoveTopicRecord, TopicRecord
from ottla.broker.metadata.rules import RefusedError, check_name


@given(st.lists(st.tuples(st.booleans(), st.text("ab._", min_size=1, max_size=4)), max_size=30), st.text("ab._"))
def test_they_are_found_as_by_a_look_at_every_name(steps: list[tuple[bool, str]], asked: str) -> None:
    names, there = TopicNames(), dict[str, None]()
    for is_new, name in steps:
        if is_new:
            names.add(name)
            there[name] = None
        else:
            names.remove(name)
            there.pop(name, None)
    alike = [each for each in there if collision_key(each) == collision_key(asked) and ("." in each or "_" in each)]
    assert sorted(names.alike(asked)) == sorted(alike)
    assert (asked in names) == (asked in there)


class _NotLookedThrough(dict[str, TopicImage]):
    def __iter__(self) -> Iterator[str]:
        raise AssertionError("every topic is looked at")


def test_a_check_looks_at_no_topic_of_another_name() -> None:
    """With 10,000 topics it took five milliseconds for each new name."""
    image = MetadataImage()
    image.topics = _NotLookedThrough()
    for number, name in enumerate(("a.b", "plain", "c_d")):
        image.apply(TopicRecord(name, bytes(15) + bytes([number])))
    coming = TopicNames()
    check_name("a.c", image, coming)
    coming.add("a.c")
    for name, twin in (("a_b", "a.b"), ("c.d", "c_d"), ("a_c", "a.c")):
        with pytest.raises(RefusedError, match=f"collides with existing topic: {twin}"):
            check_name(name, image, coming)
    with pytest.raises(RefusedError, match="already exists"):
        check_name("a.c", image, coming)
    image.apply(RemoveTopicRecord(bytes(16)))
    check_name("a_b", image, coming)
