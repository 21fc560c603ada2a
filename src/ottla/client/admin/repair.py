"""Admin calls that find what holds back a partition, and end transactions that hang (SPEC T14, KIP-664)."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from ottla.base.types import TopicPartition
from ottla.client.admin.arguments import check_producer
from ottla.client.admin.group_offsets import GroupOffsetCalls
from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.open_transactions import (
    OpenTransaction,
    PartitionHold,
    WaitingGroup,
    made_up_ids,
    open_in,
    still_open,
    with_coordinators,
)
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.admin.transactions import TransactionCalls
from ottla.client.admin.types import CLASSIC, CONSUMER, OffsetSpec, ProducerDescription, TransactionDescription
from ottla.client.core.metadata import NO_LEADER
from ottla.client.errors import KafkaError, NotHangingError, UnknownTopicOrPartitionError, raise_for
from ottla.client.net.record_times import first_timestamps
from ottla.client.net.requests import only, together
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

_TRANSACTION_STATE = "__transaction_state"
#: Groups that are asked about at once.
_GROUPS_AT_ONCE = 8
_NEEDS_DESCRIBE = (
    "only who may DESCRIBE all transactional ids can tell which transactions hang: one that may not be described looks "
    "as if no coordinator had it"
)


class RepairCalls(TopicCalls, RecordCalls, GroupCalls, GroupOffsetCalls, TransactionCalls):
    """Open transactions: who has them, who waits for them, and how they end."""

    async def open_transactions(self, partitions: Iterable[TopicPartition] | None = None) -> list[OpenTransaction]:
        """What is open in partitions (None: in all, Kafka's own among them), sorted by partition and start offset.

        `is_hanging` is proved: it was open, no coordinator had it, and it was open still. Raises KafkaError while
        nobody can tell: with COORDINATOR_NOT_AVAILABLE if a partition of `__transaction_state` has no leader, or its
        coordinator has not read it; with TRANSACTIONAL_ID_AUTHORIZATION_FAILED without DESCRIBE on all transactional
        ids. A right that is missing for some ids only is not seen: their transactions would be told as hanging.
        """
        everywhere = partitions is None
        wanted = await self._all_partitions() if partitions is None else list(partitions)
        return await self._judged(await self.describe_producers(wanted, leave_out_gone=everywhere))

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> list[OpenTransaction]:
        """Transactions that no coordinator will end, in `partitions` or in all. Raises as `open_transactions` does."""
        return [each for each in await self.open_transactions(partitions) if each.is_hanging]

    async def who_holds(
        self, partitions: Iterable[TopicPartition], *, groups: bool = True
    ) -> dict[TopicPartition, PartitionHold]:
        """Where `read_committed` readers of partitions have to stop, and because of whom.

        With `groups` every group of the cluster is asked what it has committed there: this costs some requests each.
        Raises what `open_transactions` does.
        """
        wanted = list(dict.fromkeys(partitions))
        opened = await self.open_transactions(wanted)
        starts = await self.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        stable = await self.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), read_committed=True)
        ends = await self.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        held = {tp: stable[tp].offset for tp in wanted if stable[tp].offset < ends[tp].offset}
        waiting = await self._waiting_groups(held) if groups and held else {}
        found = {}
        for tp in wanted:
            # Where a transaction holds: its first record may have been deleted. Below the LSO it has ended meanwhile.
            at = {each: max(each.start_offset, starts[tp].offset) for each in opened if each.partition == tp}
            open_here = tuple(each for each, offset in at.items() if offset >= stable[tp].offset)
            holder = next((each for each in open_here if tp in held and at[each] == held[tp]), None)
            found[tp] = PartitionHold(
                tp, stable[tp].offset, ends[tp].offset, open_here, holder, tuple(waiting.get(tp, ()))
            )
        return found

    async def end_hanging_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, *, commit: bool = False
    ) -> OpenTransaction:
        """Write the marker that a hanging transaction waits for into one partition; returns what it has ended.

        With `commit` its records become visible to `read_committed` readers, else never. It cannot be undone. Raises
        NotHangingError, and writes nothing, if nothing is open there with this producer id and epoch, or if a
        coordinator has it, or there is no such partition; TypeError and ValueError for numbers that no producer has;
        else what `open_transactions` does, and KafkaError when the leader refuses the marker.
        """
        check_producer(producer_id, producer_epoch)
        producers = await self.describe_producers([partition], leave_out_gone=True)
        if partition not in producers:
            raise NotHangingError(f"there is no partition {partition}; nothing was written")
        opened = await self._judged(producers)
        found = next((each for each in opened if each.producer_id == producer_id), None)
        if found is None or not found.is_hanging or found.producer_epoch != producer_epoch:
            raise NotHangingError(_why_not(partition, producer_id, producer_epoch, found))
        await self._write_marker(partition, producer_id, producer_epoch, found.coordinator_epoch, commit=commit)
        return found

    # inside

    async def _judged(self, producers: Mapping[TopicPartition, list[ProducerDescription]]) -> list[OpenTransaction]:
        opened = open_in(producers)
        if not opened:
            return []
        await self._check_coordinators()
        owners = {
            each.producer_id: each.transactional_id
            for each in await self.list_transactions(producer_ids={each.producer_id for each in opened})
        }
        described = await together(self._described(each) for each in sorted(set(owners.values())))
        judged = with_coordinators(opened, owners, {each.transactional_id: each for each in described if each})
        suspects = [each for each in judged if each.is_hanging]
        again = await self.describe_producers({each.partition for each in suspects}, leave_out_gone=True)
        hanging = await self._dated(still_open(suspects, again))
        return sorted([*(each for each in judged if not each.is_hanging), *hanging])

    async def _all_partitions(self) -> list[TopicPartition]:
        topics = await self.list_topics(internal=True)
        return [TopicPartition(each.name, number) for each in topics for number in range(each.partitions)]

    async def _check_coordinators(self) -> None:
        """Raises KafkaError if a coordinator is missing: what it knows would look as if nobody knew it."""
        try:
            described = (await self.describe_topics([_TRANSACTION_STATE]))[_TRANSACTION_STATE]
        except UnknownTopicOrPartitionError:
            return  # there has never been a coordinator
        missing = [each.partition for each in described.partitions if each.leader == NO_LEADER]
        if missing:
            raise _nobody_can_tell(missing[0], "has no leader")
        ids = made_up_ids(len(described.partitions))
        unread = await self._requests.repeat(partial(self._unread, ids), "a look for the coordinators of transactions")
        if unread is not None:
            raise _nobody_can_tell(unread, "has a leader that does not coordinate it: perhaps its log cannot be read")

    async def _unread(self, ids: Mapping[str, int]) -> int | None:
        """A partition of `__transaction_state` whose leader says that it is not available; None if there is none."""
        by_leader: dict[int, list[str]] = {}
        for transactional_id, number in ids.items():
            leader = await self._requests.leader(TopicPartition(_TRANSACTION_STATE, number))
            by_leader.setdefault(leader, []).append(transactional_id)
        answers: list[DescribeTransactionsResponse] = await together(
            self._cluster.request(leader, ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(tuple(asked)))
            for leader, asked in by_leader.items()
        )
        codes = {each.transactional_id: each.error_code for answer in answers for each in answer.transaction_states}
        for transactional_id, number in ids.items():
            code = only([codes[transactional_id]] if transactional_id in codes else [], transactional_id)
            if code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                return number
            if code == ErrorCode.NOT_COORDINATOR:
                self._cluster.request_update()
            if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise KafkaError.of(code, _NEEDS_DESCRIBE)
            if code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise_for(code, f"{_TRANSACTION_STATE}-{number}")
        return None

    async def _described(self, transactional_id: str) -> TransactionDescription | None:
        try:
            return (await self.describe_transactions([transactional_id]))[transactional_id]
        except KafkaError as error:
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise

    async def _dated(self, hanging: list[OpenTransaction]) -> list[OpenTransaction]:
        """With the times of their first records. Several of one partition are asked for one after the other."""
        dated = []
        for each in hanging:
            wanted = {each.partition: range(each.start_offset, each.start_offset + 1)}
            async with self._requests.ready() as deadline:
                since = await first_timestamps(self._cluster, wanted, timeout_ms=deadline.left_ms)
            dated.append(each._replace(since_ms=since.get(each.partition)))
        return dated

    async def _waiting_groups(self, held: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[WaitingGroup]]:
        turns = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def one(group_id: str) -> list[tuple[TopicPartition, WaitingGroup]]:
            async with turns:
                try:
                    return await self._waits(group_id, held)
                except KafkaError as error:
                    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # gone meanwhile
                        return []
                    raise

        listed = [each for each in await self.list_groups() if each.type.lower() in ("", CLASSIC, CONSUMER)]
        waiting: dict[TopicPartition, list[WaitingGroup]] = {}
        for found in await together(one(each.group_id) for each in listed):
            for tp, group in found:
                waiting.setdefault(tp, []).append(group)
        return waiting

    async def _waits(
        self, group_id: str, held: Mapping[TopicPartition, int]
    ) -> list[tuple[TopicPartition, WaitingGroup]]:
        committed = await self.list_group_offsets(group_id, held)
        described = (await self.describe_groups([group_id]))[group_id]
        readers = {tp: member.client_id for member in described.members for tp in member.partitions}
        return [
            (tp, WaitingGroup(group_id, committed[tp].offset if tp in committed else None, readers.get(tp)))
            for tp, stable in held.items()
            if (committed[tp].offset <= stable if tp in committed else tp in readers)
        ]


def _nobody_can_tell(partition: int, why: str) -> KafkaError:
    what = f"{_TRANSACTION_STATE}-{partition} {why}, so nobody can tell which transactions hang"
    return KafkaError.of(ErrorCode.COORDINATOR_NOT_AVAILABLE, what)


def _why_not(partition: TopicPartition, producer_id: int, producer_epoch: int, found: OpenTransaction | None) -> str:
    if found is None:
        return f"producer {producer_id} has no open transaction in {partition}; nothing was written"
    if not found.is_hanging:
        ends = (
            "ends it"
            if found.state == "Ongoing"
            else "is writing its markers: if it stays so, its broker's log says why"
        )
        return (
            f"the transaction of producer {producer_id} in {partition} is not hanging: its coordinator has it as "
            f"{found.transactional_id}, {found.state}, and {ends}; nothing was written"
        )
    return (
        f"producer {producer_id} hangs in {partition} with epoch {found.producer_epoch}, not {producer_epoch}; "
        "nothing was written"
    )
