"""The admin client for ordinary, blocking code: an AsyncAdmin that lives on a loop in a background thread."""

from collections.abc import Iterable, Mapping
from types import TracebackType

from ottla.base.types import TopicPartition
from ottla.client.admin.acls import AclBinding, AclBindingFilter
from ottla.client.admin.admin import AsyncAdmin
from ottla.client.admin.open_transactions import OpenTransaction, PartitionHold
from ottla.client.admin.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter
from ottla.client.admin.types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupLag,
    GroupListing,
    NewTopic,
    ProducerDescription,
    TopicDescription,
    TopicListing,
    TransactionDescription,
    TransactionListing,
    TransactionOutcome,
)
from ottla.client.admin.users import DeleteScramCredential, ScramMechanism, SetScramCredential
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.unclosed import Unclosed
from ottla.client.core.offsets import OffsetAndMetadata, OffsetAndTimestamp
from ottla.client.core.producer.handle import TransactionHandle
from ottla.client.core.producer.identity import ProducerIdentity


class Admin:
    """Lists, describes and changes topics, records, groups, transactions, ACLs. `AsyncAdmin` says what calls raise.

    with Admin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        admin.create_topics([NewTopic("words", num_partitions=4)])
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        """Raises ConfigError. Does not wait for a broker."""
        self._admin = AsyncAdmin(config)
        self._thread = LoopThread("ottla-admin")
        self._unclosed = Unclosed(self, self._admin, self._thread)

    def close(self) -> None:
        """Disconnect. Idempotent."""
        if self._thread.is_running:
            self._thread.run(self._admin.close())
        self._unclosed.closed()
        self._thread.stop()

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # topics, configurations, the cluster

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, bytes]:
        """Create topics; name → topic id. Raises the first refusal, TopicAlreadyExistsError among them."""
        return self._thread.run(self._admin.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms))

    def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics by name. Raises the first refusal, UnknownTopicOrPartitionError among them."""
        self._thread.run(self._admin.delete_topics(names, timeout_ms=timeout_ms))

    def create_partitions(self, counts: Mapping[str, int], *, timeout_ms: int | None = None) -> None:
        """Give topics more partitions: name → new total."""
        self._thread.run(self._admin.create_partitions(counts, timeout_ms=timeout_ms))

    def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """Every topic, by name; with `internal` also Kafka's own."""
        return self._thread.run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Topics with their partitions. Raises UnknownTopicOrPartitionError when one does not exist."""
        return self._thread.run(self._admin.describe_topics(names))

    def describe_configs(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configurations of topics, brokers or groups, by key."""
        return self._thread.run(self._admin.describe_configs(resources))

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool = False
    ) -> None:
        """Change single keys of configurations (KIP-339)."""
        self._thread.run(self._admin.incremental_alter_configs(changes, validate_only=validate_only))

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""
        return self._thread.run(self._admin.describe_cluster())

    # groups and offsets

    def list_groups(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Groups on all coordinators, by id."""
        return self._thread.run(self._admin.list_groups(states, types))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members."""
        return self._thread.run(self._admin.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete empty groups with their offsets."""
        self._thread.run(self._admin.delete_groups(group_ids))

    def remove_members(
        self, group_id: str, members: Iterable[str] | None = None, *, instances: Iterable[str] = (), reason: str = ""
    ) -> list[str]:
        """Remove members by id or `group.instance.id`, or all; returns the ids of those that were removed."""
        return self._thread.run(self._admin.remove_members(group_id, members, instances=instances, reason=reason))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's committed offsets: those of `partitions`, or all."""
        return self._thread.run(self._admin.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set committed offsets of a group that has no members."""
        self._thread.run(self._admin.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of partitions whose topics no member subscribes to."""
        self._thread.run(self._admin.delete_group_offsets(group_id, partitions))

    def list_group_lags(self, group_id: str, also: Iterable[TopicPartition] = ()) -> dict[TopicPartition, GroupLag]:
        """How far a group is behind: in partitions that it has committed offsets of, and in `also`."""
        return self._thread.run(self._admin.list_group_lags(group_id, also))

    def list_offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of a time (ms since the epoch, or an `OffsetSpec`) in each partition; -1 where there is none."""
        return self._thread.run(self._admin.list_offsets(times, read_committed=read_committed))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset in each partition, -1 for all; returns the new log start offsets."""
        return self._thread.run(self._admin.delete_records(before))

    # transactions

    def list_transactions(
        self, pattern: str | None = None, states: Iterable[str] = (), *, producer_ids: Iterable[int] = ()
    ) -> list[TransactionListing]:
        """Transactional ids on all coordinators whose whole id matches the regex `pattern`."""
        return self._thread.run(self._admin.list_transactions(pattern, states, producer_ids=producer_ids))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """The state of transactional ids."""
        return self._thread.run(self._admin.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], *, leave_out_gone: bool = False
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The producers each partition's leader remembers, and where their open transactions begin."""
        return self._thread.run(self._admin.describe_producers(partitions, leave_out_gone=leave_out_gone))

    def open_transactions(self, partitions: Iterable[TopicPartition] | None = None) -> list[OpenTransaction]:
        """What is open in partitions, or (None) anywhere, and whether it hangs: no coordinator will end it."""
        return self._thread.run(self._admin.open_transactions(partitions))

    def find_hanging_transactions(self, partitions: Iterable[TopicPartition] | None = None) -> list[OpenTransaction]:
        """Transactions that no coordinator will end, in `partitions` or anywhere."""
        return self._thread.run(self._admin.find_hanging_transactions(partitions))

    def who_holds(
        self, partitions: Iterable[TopicPartition], *, groups: bool = True
    ) -> dict[TopicPartition, PartitionHold]:
        """Where `read_committed` readers of partitions have to stop, because of whom, and which groups wait."""
        return self._thread.run(self._admin.who_holds(partitions, groups=groups))

    def end_hanging_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, *, commit: bool = False
    ) -> OpenTransaction:
        """Write the marker that a hanging transaction waits for. Raises NotHangingError if it does not hang."""
        return self._thread.run(
            self._admin.end_hanging_transaction(partition, producer_id, producer_epoch, commit=commit)
        )

    def end_transaction(
        self, handle: TransactionHandle, *, commit: bool, timeout_ms: int | None = None
    ) -> TransactionOutcome:
        """Commit or abort a transaction that another producer left open; may be repeated."""
        return self._thread.run(self._admin.end_transaction(handle, commit=commit, timeout_ms=timeout_ms))

    def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Write an abort marker into one partition, whatever its coordinator knows."""
        self._thread.run(self._admin.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch))

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity]:
        """Raise the epoch of transactional ids and abort what is open."""
        return self._thread.run(self._admin.fence_producers(transactional_ids))

    # ACLs

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs; one that is there already stays."""
        self._thread.run(self._admin.create_acls(acls))

    def describe_acls(self, wanted: AclBindingFilter = AclBindingFilter()) -> list[AclBinding]:  # noqa: B008
        """The ACLs that the filter means, sorted."""
        return self._thread.run(self._admin.describe_acls(wanted))

    def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that any of the filters means; returns them, sorted."""
        return self._thread.run(self._admin.delete_acls(filters))

    # users with SCRAM credentials

    def describe_user_scram_credentials(self, users: Iterable[str] = ()) -> dict[str, dict[ScramMechanism, int]]:
        """The iterations of each mechanism, by user; all users if none is named."""
        return self._thread.run(self._admin.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(self, changes: Iterable[SetScramCredential | DeleteScramCredential]) -> None:
        """Set and delete credentials; one change a user."""
        self._thread.run(self._admin.alter_user_scram_credentials(changes))

    # quotas

    def describe_client_quotas(
        self,
        wanted: ClientQuotaFilter = ClientQuotaFilter(),  # noqa: B008
    ) -> dict[ClientQuotaEntity, dict[str, float]]:
        """The quotas of the entities that the filter means."""
        return self._thread.run(self._admin.describe_client_quotas(wanted))

    def alter_client_quotas(self, alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool = False) -> None:
        """Set and remove quotas."""
        self._thread.run(self._admin.alter_client_quotas(alterations, validate_only=validate_only))
