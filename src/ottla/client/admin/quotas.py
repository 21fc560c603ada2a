"""Admin calls about quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.base.errors import ConfigError
from ottla.client.admin.base import AdminBase
from ottla.client.errors import raise_for
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

#: The name of the entity that stands for all that have no quota of their own. No entity of Kafka is named so.
DEFAULT: Final = ""
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_TYPES: Final = ("user", "client-id", "ip")


class ClientQuotaEntity(NamedTuple):
    """Who has a quota: a user, a client id, both, or an address. A name of "" is the default for all others; None:
    the entity does not have this part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name or '<default>'}" for kind, name in zip(_TYPES, self, strict=True) if name is not None
        )


class ClientQuotaAlteration(NamedTuple):
    """Quotas that an entity is to have, by Kafka's names, in bytes a second, percent of a thread's time, partitions a
    second, or connections a second; None removes one."""

    entity: ClientQuotaEntity
    quotas: Mapping[str, float | None]


class ClientQuotaFilter(NamedTuple):
    """Which entities are meant: those with these parts, by name ("" for the default), or with any name (`any_user` …).

    With `strict` only those that have no other part. An empty filter means all.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    any_user: bool = False
    any_client_id: bool = False
    any_ip: bool = False
    strict: bool = False


class QuotaCalls(AdminBase):
    """Quotas."""

    async def describe_client_quotas(
        self,
        wanted: ClientQuotaFilter = ClientQuotaFilter(),  # noqa: B008
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas of the entities that the filter means, sorted. What counts for others may be a default's.

        Raises KafkaError: INVALID_REQUEST for an address together with a user or client id.
        """
        request = DescribeClientQuotasRequest(tuple(_components(wanted)), wanted.strict)

        async def attempt() -> dict[ClientQuotaEntity, dict[str, float]]:
            answer: DescribeClientQuotasResponse = await self._requests.ask_controller(
                ApiKey.DESCRIBE_CLIENT_QUOTAS, request
            )
            raise_for(answer.error_code, answer.error_message or "quotas cannot be seen")
            found = {
                _entity({part.entity_type: part.entity_name or DEFAULT for part in each.entity}): {
                    value.key: value.value for value in each.values
                }
                for each in answer.entries or ()
            }
            return dict(sorted(found.items(), key=lambda item: str(item[0])))

        return await self._requests.repeat(attempt, "describe_client_quotas")

    async def alter_client_quotas(
        self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False
    ) -> None:
        """Set and remove quotas; with `validate_only` it is only said whether that could be done.

        Raises KafkaError of the first that is refused; the others are carried out. ConfigError for an entity of no
        parts.
        """
        entries = tuple(_entry(each) for each in alterations)
        request = AlterClientQuotasRequest(entries, validate_only)

        async def attempt() -> None:
            answer: AlterClientQuotasResponse = await self._requests.ask_controller(ApiKey.ALTER_CLIENT_QUOTAS, request)
            for each in answer.entries:
                of = _entity({part.entity_type: part.entity_name or DEFAULT for part in each.entity})
                raise_for(ErrorCode(each.error_code), f"quotas of {of}: {each.error_message}")

        await self._requests.repeat(attempt, "alter_client_quotas")


def _entity(names: Mapping[str, str]) -> ClientQuotaEntity:
    return ClientQuotaEntity(*(names.get(kind) for kind in _TYPES))


def _entry(alteration: ClientQuotaAlteration) -> EntryData:
    parts = tuple(
        EntityData(kind, name or None) for kind, name in zip(_TYPES, alteration.entity, strict=True) if name is not None
    )
    if not parts:
        raise ConfigError("quotas of whom? An entity has a user, a client id, or an address")
    return EntryData(parts, tuple(OpData(key, value or 0.0, value is None) for key, value in alteration.quotas.items()))


def _components(wanted: ClientQuotaFilter) -> Iterable[ComponentData]:
    for kind, name, any_name in zip(_TYPES, wanted[:3], wanted[3:6], strict=True):
        if name is not None:
            yield ComponentData(kind, _EXACT if name else _DEFAULT, name or None)
        elif any_name:
            yield ComponentData(kind, _ANY, None)
