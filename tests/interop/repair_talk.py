"""Raw requests about producers, markers and transactions, good and bad, and what a broker answers to each of them."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client.admin.types import OffsetSpec
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.broker.wire_client import WireClient
from tests.client.hanging import Address

_COMMITTED = 1
#: A producer that nobody knows, and that writes nothing either.
_STRANGER = 8_999_999


class RepairTalk:
    """One conversation. `said` is the transcript, which does not depend on what else is on the broker."""

    def __init__(self, servers: str, topic: str, producer_id: int, transactional_id: str) -> None:
        """`producer_id` hangs with epoch 3 in partitions 0 and 1 of `topic`; `transactional_id` has done nothing."""
        self.said: list[str] = []
        self._servers = servers
        self._topic, self._producer_id, self._transactional_id = topic, producer_id, transactional_id

    def run(self) -> list[str]:
        """All of it; the transcript."""
        asyncio.run(self._run())
        return self.said

    async def _run(self) -> None:
        async with WireClient(Address.of(self._servers)) as client:
            self._client = client
            await self._producers_of((self._topic, (0, 1)))
            await self._producers_of((self._topic, (0, 0)), (self._topic, (9,)), (f"{self._topic}-no", (0,)))
            await self._producers_of(("not a name", (0,)), ("", (0,)), (self._topic, ()))
            await self._markers()
            await self._transactions()

    async def _markers(self) -> None:
        topic, known = self._topic, self._producer_id
        for version in (1, 2):
            await self._mark(version)
            await self._mark(version, (known, 2, True, 0, 0, topic, (0,)))  # an older epoch
            await self._mark(version, (known, -1, True, 0, 0, topic, (0,)))
            await self._mark(version, (known, 3, True, 0, 0, f"{topic}-no", (0,)))
            await self._mark(version, (known, 3, True, 0, 0, topic, (7,)))
            await self._mark(version, (_STRANGER, 0, False, 0, 0, topic, (0,)))
        await self._mark(2, (_STRANGER, 0, True, 0, 0, topic, (1,)), (-1, 0, True, 0, 0, topic, (7, 0)))
        await self._mark(2, (-1, 0, True, 0, 0, topic, (7,)), (_STRANGER, -1, True, 0, 0, topic, (8,)))
        await self._mark(2, (_STRANGER, -1, True, 0, 0, topic, (1,)), (_STRANGER, 0, True, 0, 0, topic, (1,)))
        await self._mark(2, (known, 3, False, 0, 2, topic, (0,)))  # as after KIP-890: the epoch should be higher
        await self._mark(2, (known, 3, False, 5, 0, topic, (0, 7, 1)), (_STRANGER, 0, True, 0, 0, topic, (1,)))
        await self._producers_of((topic, (0, 1)))
        await self._mark(2, (known, 3, True, 4, 0, topic, (0,)))  # an older coordinator
        await self._mark(2, (known, 3, True, 5, 0, topic, (0,)))  # nothing is open any more
        await self._mark(1, (known, 9, True, 5, 0, topic, (0,)), (known, 9, True, 5, 0, topic, (0,)))
        await self._producers_of((topic, (0, 1)))

    async def _transactions(self) -> None:
        known = self._transactional_id
        await self._ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest((known, "", f"{known}-no", known)), 0)
        await self._ask(ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(()), 0)
        for version, request in (
            (0, ListTransactionsRequest((), (_STRANGER,))),
            (0, ListTransactionsRequest(("Asleep", "Ongoing"), (_STRANGER,))),
            (1, ListTransactionsRequest(("ongoing",), (_STRANGER,), 0)),
            (2, ListTransactionsRequest((), (), -1, known)),
            (2, ListTransactionsRequest(("Empty",), (), -1, f"{known[:-1]}.")),
            (2, ListTransactionsRequest(("Ongoing",), (), -1, known)),
            (2, ListTransactionsRequest((), (), 3_600_000, known)),
            (2, ListTransactionsRequest((), (), -1, "(")),
            (2, ListTransactionsRequest((), (_STRANGER,), -1, "")),
        ):
            await self._ask(ApiKey.LIST_TRANSACTIONS, request, version)

    async def _producers_of(self, *topics: tuple[str, tuple[int, ...]]) -> None:
        await self._ask(
            ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest(tuple(TopicRequest(*each) for each in topics)), 0
        )

    async def _mark(self, version: int, *markers: tuple[int, int, bool, int, int, str, tuple[int, ...]]) -> None:
        """Producer id and epoch, commit, coordinator epoch, transaction version, topic, partitions."""
        request = WriteTxnMarkersRequest(
            tuple(
                WritableTxnMarker(
                    producer_id,
                    epoch,
                    commit,
                    (WritableTxnMarkerTopic(topic, partitions),),
                    coordinator_epoch,
                    transaction_version if version >= 2 else 0,
                )
                for producer_id, epoch, commit, coordinator_epoch, transaction_version, topic, partitions in markers
            )
        )
        await self._ask(ApiKey.WRITE_TXN_MARKERS, request, version)
        ends = []
        for isolation in (0, _COMMITTED):
            asked = tuple(ListOffsetsPartition(number, -1, OffsetSpec.LATEST) for number in (0, 1))
            offsets = ListOffsetsRequest(-1, isolation, (ListOffsetsTopic(self._topic, asked),))
            answer = await self._client.ask(ApiKey.LIST_OFFSETS, offsets, 8)
            ends += [each.offset for each in sorted(answer.topics[0].partitions)]
        self.said.append(f"  ends {ends}")

    async def _ask(self, api: ApiKey, request: tuple[Any, ...], version: int) -> None:
        answer = await self._client.ask(api, request, version)
        self.said += [self._neutral(f"{api.name} {version} {request}"), self._neutral(f"  {_in_order(answer)}")]

    def _neutral(self, text: str) -> str:
        names = ((self._transactional_id, "TX"), (self._topic, "TOPIC"), (str(self._producer_id), "PID"))
        for name, neutral in names:
            text = text.replace(name, neutral)
        return text


def _in_order(value: Any) -> Any:
    """The same answer, with what has no order in one. Times, and ids that a broker chose, are only known or not."""
    if hasattr(value, "_asdict"):
        fields = {name: _in_order(each) for name, each in value._asdict().items()}
        if "current_txn_start_offset" in fields:
            fields["last_timestamp"] = min(0, fields["last_timestamp"])
        if "transactional_id" in fields:
            fields["producer_id"] = min(0, fields["producer_id"])
        return fields
    return sorted((_in_order(each) for each in value), key=repr) if isinstance(value, tuple) else value
