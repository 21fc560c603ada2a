"""What can be a quota, and what AlterClientQuotas decides: the rules of Kafka's ClientQuotaControlManager. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla.base.errors import kept
from ottla.broker.metadata.rules import RefusedError
from ottla.broker.quotas.table import CLIENT_ID, ENTITY_TYPES, IP, USER, Component, Entity, QuotaKey, QuotaTable, entity
from ottla.wire.errors import ErrorCode

_LONG_MAX: Final = 2.0**63
_INT_MAX: Final = 2**31 - 1
_ROUNDING: Final = 1e-6
#: The largest value of each quota; None for those that need not be whole numbers.
_OF_CLIENTS: Final[Mapping[str, float | None]] = {
    QuotaKey.PRODUCE: _LONG_MAX,
    QuotaKey.FETCH: _LONG_MAX,
    QuotaKey.REQUEST: None,
    QuotaKey.CONTROLLER: None,
}
_OF_ADDRESSES: Final[Mapping[str, float | None]] = {QuotaKey.CONNECTIONS: _INT_MAX}
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")

#: How a filter's component is matched (Kafka's `match_type`).
MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2


class Alteration(NamedTuple):
    """Quotas that an entity is to have, by their keys; None removes one."""

    parts: tuple[tuple[str, str | None], ...]
    values: tuple[tuple[str, float | None], ...]


class Change(NamedTuple):
    """One quota as it is to be; None for no more."""

    entity: Entity
    key: str
    value: float | None


def decide(
    table: QuotaTable, alterations: Iterable[Alteration], results: dict[Entity, RefusedError | None]
) -> Iterator[Change | None]:
    """What is to be changed, one after the other, because there may be very many; None where nothing is.

    `results` gets what is wrong with each entity's alteration, None if nothing is. An entity is changed whole or not at
    all. As in Kafka, one that is named twice is changed as it was named first, and answered with an error.
    """
    for parts, values in alterations:
        of = entity(parts)
        try:
            if of in results:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_told(of)}")
            results[of] = None
            changes = _changes(table, of, values)
        except RefusedError as refused:
            results[of] = kept(refused)
        else:
            yield from changes
        yield None


def _changes(table: QuotaTable, of: Entity, values: Iterable[tuple[str, float | None]]) -> list[Change]:
    wanted: dict[str, float | None] = {}
    for key, value in values:
        if key in wanted:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {key} of {_told(of)}")
        wanted[key] = value
    largest = _keys_of(of)
    there = table.values(of)
    for key, value in wanted.items():
        if value is not None:
            _check(largest, key, value)
    return [Change(of, key, value) for key, value in wanted.items() if value != there.get(key)]


def _keys_of(of: Entity) -> Mapping[str, float | None]:
    """Which quotas such an entity can have."""
    names = dict(of)
    if not of:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if len(names) < len(of):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid client quota entity, twice the same type: {_told(of)}")
    for kind, name in of:
        if kind not in ENTITY_TYPES:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "An IP entity cannot be combined with a user or client id")
    address = names[IP]
    if address is not None and not _is_host(address):
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")
    return _OF_ADDRESSES


def _check(largest: Mapping[str, float | None], key: str, value: float) -> None:
    if key not in largest:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not value > 0:  # nor is it "not a number"
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    most = largest[key]
    if most is None:
        return
    if value > most:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large")
    if value % 1.0 > _ROUNDING:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def _is_host(name: str) -> bool:
    """Whether it is an address. Kafka asks DNS for other names; we only look whether it can be one."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _HOST_NAME.fullmatch(name) is not None and not name.replace(".", "").isdigit()
    return True


def read_filter(components: Iterable[tuple[str, int, str | None]]) -> list[Component]:
    """The components of DescribeClientQuotas: type, `match_type` and name. RefusedError for what makes no sense."""
    wanted: dict[str, Component] = {}
    for kind, how, name in components:
        if not kind:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown match type {how}")
        if (name is None) is (how == MATCH_EXACT):
            problem = "no name" if name is None else "a name"
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"A filter of match type {how} has {problem} to match.")
        wanted[kind] = Component(kind, name, how == MATCH_ANY)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "An IP filter component cannot be used with one of users or client ids."
        )
    return list(wanted.values())


def _told(of: Entity) -> str:
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in of)
