"""Which quota counts for whom, as Apache Kafka's DefaultQuotaCallback says it. Pure.

A quota is set for an entity: a user, a client id, both, or an address; each by name or as the default for those who
have none of their own. For a request of a user with a client id the first of these counts that has the quota:

    1. this user and client id      4. any user and this client id      7. this client id
    2. this user and any client id  5. any user and any client id       8. any client id
    3. this user                    6. any user

Who shares a quota follows from it: all connections of the user in 3 and 6, of the client id in 7 and 8, of the user
with the client id in the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ottla.broker.quotas.connections import plain_address

_K = TypeVar("_K")

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (CLIENT_ID, IP, USER)

#: Pairs of a type and a name, in order; the name None is the default.
Entity: TypeAlias = tuple[tuple[str, str | None], ...]


class QuotaKey(StrEnum):
    """What a quota limits, by Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    CONTROLLER = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"


class Sharers(NamedTuple):
    """Who shares a quota; an empty name stands for all."""

    user: str
    client_id: str


class Component(NamedTuple):
    """What a filter asks of a type of entity: a name (None: the default), or any (`is_any`)."""

    type: str
    name: str | None
    is_any: bool = False


#: In `_own`, for a type that an entity does not have. No name is empty.
_ABSENT: Final = ""


def entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity of these parts; the types are all different."""
    return tuple(sorted(parts, key=lambda part: part[0]))


class QuotaTable:
    """All quotas. `is_on` says whether there is any of users or client ids, `has_addresses` of addresses."""

    def __init__(self) -> None:
        self.is_on = False
        self.has_addresses = False
        #: Called after each change.
        self.changed: Callable[[], None] = _nobody
        self._entities: dict[Entity, dict[str, float]] = {}
        #: By what is limited, then by user and client id.
        self._own: dict[str, dict[tuple[str | None, str | None], float]] = {}
        self._of_addresses: dict[str | None, float] = {}

    def set(self, of: Entity, key: str, value: float | None) -> None:
        """Set a quota, or remove it with None."""
        values = self._entities.setdefault(of, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self._entities[of]
        names = dict(of)
        if IP in names:
            name = names[IP]
            _put(self._of_addresses, None if name is None else plain_address(name), value)
        else:
            own = self._own.setdefault(key, {})
            _put(own, (names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT)), value)
            if not own:
                del self._own[key]
        self.is_on = bool(self._own)
        self.has_addresses = bool(self._of_addresses)
        self.changed()

    def values(self, of: Entity) -> Mapping[str, float]:
        """What is set for an entity itself."""
        return self._entities.get(of, {})

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(self._entities.items())

    def matching(
        self, components: Iterable[Component], *, strict: bool
    ) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        """The entities that have what each component asks for; with `strict` those that have no other type.

        They are those of the moment of the call, with what is set for them when they are taken.
        """
        wanted = {each.type: each for each in components}
        there = tuple(self._entities.items())
        return (
            (of, values)
            for of, values in there
            if values and (not strict or len(of) == len(wanted)) and _has_all(dict(of), wanted.values())
        )

    def limit(self, key: QuotaKey, user: str, client_id: str) -> tuple[Sharers, float] | None:
        """Who shares the quota that counts for this client, and what it is; None where there is none."""
        own = self._own.get(key)
        if own is None:
            return None
        for of_user in (user, None):
            for of_client in (client_id, None, _ABSENT):
                if (of_user, of_client) in own:
                    return _with(own, Sharers(user, "" if of_client == _ABSENT else client_id))
        return _with(own, Sharers("", client_id))

    def is_by_default(self, key: QuotaKey, user: str, client_id: str) -> bool:
        """Whether the quota that counts for this client is for any client id, and not for this one."""
        own = self._own.get(key, {})
        return not any((of_user, client_id) in own for of_user in (user, None, _ABSENT))

    def of_address(self, address: str) -> float | None:
        """The quota of an address (`plain_address`), its own or the default."""
        return self._of_addresses.get(address, self._of_addresses.get(None))


def _put(values: dict[_K, float], key: _K, value: float | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _with(own: Mapping[tuple[str | None, str | None], float], sharers: Sharers) -> tuple[Sharers, float] | None:
    """The limit of those who share it. An empty client id is none: only quotas of users count for it."""
    user, client_id = sharers
    places: tuple[tuple[str | None, str | None], ...]
    if user and client_id:
        places = ((user, client_id), (user, None), (None, client_id), (None, None))
    elif user:
        places = ((user, _ABSENT), (None, _ABSENT))
    elif client_id:
        places = ((_ABSENT, client_id), (_ABSENT, None))
    else:
        return None
    for place in places:
        if place in own:
            return sharers, own[place]
    return None


def _has_all(names: Mapping[str, str | None], wanted: Iterable[Component]) -> bool:
    return all(each.type in names and (each.is_any or names[each.type] == each.name) for each in wanted)


def _nobody() -> None:
    """Nobody wants to know."""
