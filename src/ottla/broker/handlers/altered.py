"""What both ways to change settings share: every resource is checked, then all changes are one batch of metadata."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.base.errors import StorageError
from ottla.broker.handlers.authorized import UNAUTHORIZED, UNAUTHORIZED_TEXT
from ottla.broker.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, MetadataImage
from ottla.broker.metadata.rules import RefusedError, check_changes
from ottla.broker.ports.access import Access, Asking
from ottla.broker.ports.topics import Topics
from ottla.broker.resources import ALTERABLE, Resource
from ottla.broker.runtime.slices import Slices
from ottla.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.errors import ErrorCode

A = TypeVar("A")
#: Kinds of resources with settings that belong to the cluster: brokers, their loggers, client metrics.
_OF_THE_CLUSTER = (BROKER_RESOURCE, 8, 16)
_NEEDED = {TOPIC_RESOURCE: ResourceType.TOPIC, GROUP_RESOURCE: ResourceType.GROUP}


class Asked(NamedTuple, Generic[A]):
    """A resource, and what is asked of its settings."""

    type: int
    name: str
    configs: Sequence[A]


class Altered(NamedTuple):
    """What became of a resource, in the order of the answer's fields."""

    error_code: int
    error_message: str | None
    type: int
    name: str


#: Whether what is asked of a resource's settings changes nothing; so it need not be one whose settings can be changed.
Idle = Callable[[int, str, Sequence[A]], bool]
#: The settings to set or, with None, to remove, once all is checked. RefusedError when they cannot be.
Changed = Callable[[Resource, Mapping[str, str], Sequence[A]], dict[str, str | None]]


async def alter_all(
    topics: Topics,
    image: MetadataImage,
    slices: Slices,
    asked: Sequence[Asked[A]],
    changed: Changed[A],
    check_access: Callable[[int, str], None],
    *,
    validate_only: bool,
    is_idle: Idle[A] = lambda kind, name, configs: False,
) -> list[Altered]:
    """Each resource is changed as a whole or not at all. A resource that is named twice is not changed."""
    results: list[Altered] = []
    wanted: dict[tuple[int, str], dict[str, str | None]] = {}
    await slices.run(_check_all(topics, image, asked, changed, check_access, is_idle, results, wanted))
    if validate_only:
        return results
    try:
        await topics.alter_all(wanted)
    except StorageError as fault:
        refused = ErrorCode.KAFKA_STORAGE_ERROR, str(fault)
        return [each if each.error_code else Altered(*refused, each.type, each.name) for each in results]
    return results


def _check_all(
    topics: Topics,
    image: MetadataImage,
    asked: Sequence[Asked[A]],
    changed: Changed[A],
    check_access: Callable[[int, str], None],
    is_idle: Idle[A],
    results: list[Altered],
    wanted: dict[tuple[int, str], dict[str, str | None]],
) -> Iterator[None]:
    """Check a resource in each step."""
    counts = Counter((each.type, each.name) for each in asked)
    for kind, name, configs in asked:
        try:
            if counts[kind, name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            check_access(kind, name)
            if not is_idle(kind, name, configs):
                topics.check_alterable(kind, name)
                check_changes(len(configs), "settings")
                wanted[kind, name] = changed(ALTERABLE[kind], image.own_configs(kind, name), configs)
            results.append(Altered(0, None, kind, name))
        except RefusedError as refused:
            results.append(Altered(refused.error, str(refused), kind, name))
        yield


def check_access(access: Access, asking: Asking, kind: int, name: str) -> None:
    """RefusedError where who asks may not change a resource's settings."""
    needed = ResourceType.CLUSTER if kind in _OF_THE_CLUSTER else _NEEDED.get(kind)
    if needed is None:
        return
    resource = CLUSTER_NAME if needed is ResourceType.CLUSTER else name
    if not access.allows(asking, AclOperation.ALTER_CONFIGS, needed, resource):
        raise RefusedError(UNAUTHORIZED[needed], UNAUTHORIZED_TEXT[needed])


def check_names(names: Iterable[str]) -> None:
    """RefusedError where a key is named twice."""
    if max(Counter(names).values(), default=0) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def check_values(without: Iterable[str]) -> None:
    """RefusedError where there are keys without the value that they need."""
    names = ",".join(without)
    if names:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {names}")
