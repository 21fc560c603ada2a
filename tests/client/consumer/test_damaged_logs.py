"""SPEC C2: log files damaged under a broker. Good records come first, then an error; other partitions go on."""

import asyncio
from pathlib import Path

import pytest

from ottla import AsyncConsumer, AsyncProducer, CorruptRecordsError, TopicPartition
from ottla.testing import AsyncBroker
from ottla.wire.batch import HEADER_BYTES, iter_headers
from tests.client.journeys import PATIENCE_S

#: Records of a partition, each a batch of its own; ten of them fill a segment, and the damage is in the first.
_RECORDS = 24
_TPS = [TopicPartition("t", number) for number in range(3)]
_CONFIG = {"auto.create.topics.enable": "false"}


async def _fill(directory: Path) -> None:
    async with AsyncBroker(_CONFIG, data_dir=directory) as broker:
        await broker.node.topics.create("t", len(_TPS), {"segment.bytes": "1048576"})
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            for number in range(_RECORDS):
                sent = [await producer.send("t", b"%d" % number * 100_000, partition=tp.partition) for tp in _TPS]
                await asyncio.gather(*sent)


def _damage(directory: Path, kind: str) -> None:
    """Make the records of t-0 unreadable at offset 2 and, with some kinds, 3; at the end of the segment for a cut."""
    log = directory / "t-0" / f"{0:020}.log"
    data = log.read_bytes()
    starts = [pos for pos, _ in iter_headers(data)]
    begin, end = {
        "a header": (starts[2], starts[2] + HEADER_BYTES),
        "a whole batch": (starts[2], starts[3]),
        "the end of one, the start of the next": (starts[2] + 50_000, starts[3] + 50_000),
        "a body": (starts[2] + HEADER_BYTES, starts[3] - 1),
        "cut": (starts[2] + 50_000, len(data)),
    }[kind]
    with log.open("r+b") as file:
        if kind == "cut":
            file.truncate(begin)
        else:
            file.seek(begin)
            file.write(bytes(end - begin))


async def _poll(consumer: AsyncConsumer, how: str) -> list[tuple[int, int]]:
    """Partition and offset of what one poll returns."""
    if how == "columns":
        came = await consumer.poll_arrow(PATIENCE_S)
        return [(tp.partition, offset) for tp, rows in came.items() for offset in rows.column("offset").to_pylist()]
    if how == "iteration":
        async for record in consumer:
            return [(record.partition, record.offset)]
    return [(record.partition, record.offset) for record in await consumer.poll(PATIENCE_S)]


@pytest.mark.parametrize("how", ["records", "columns", "iteration"])
@pytest.mark.parametrize(
    "kind", ["a header", "a whole batch", "the end of one, the start of the next", "a body", "cut"]
)
async def test_c2_what_is_good_comes_before_the_error_and_other_partitions_go_on(
    tmp_path: Path, kind: str, how: str
) -> None:
    if how == "columns":
        pytest.importorskip("pyarrow")
    await _fill(tmp_path)
    _damage(tmp_path, kind)
    got: dict[int, list[int]] = {tp.partition: [] for tp in _TPS}
    errors: list[tuple[CorruptRecordsError, list[int]]] = []
    async with (
        AsyncBroker(_CONFIG, data_dir=tmp_path) as broker,
        AsyncConsumer(
            # so little that the damage is known long before the user comes to it
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "max.poll.records": 1,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 1,
            }
        ) as consumer,
    ):
        consumer.assign(_TPS)
        consumer.seek_to_beginning()
        while not errors or any(len(got[tp.partition]) < _RECORDS for tp in _TPS[1:]):
            try:
                for partition, offset in await _poll(consumer, how):
                    got[partition].append(offset)
            except CorruptRecordsError as error:
                errors.append((error, list(got[0])))
        assert got == {0: [0, 1], 1: [*range(_RECORDS)], 2: [*range(_RECORDS)]}
        assert {(e.partition, e.offset, *before) for e, before in errors} == {(_TPS[0], 2, 0, 1)}
        assert await consumer.position(_TPS[0]) == 2
        assert "t-0: what follows from offset 2 on is damaged" in str(errors[0][0])

        consumer.seek(_TPS[0], 10)
        behind = await _poll(consumer, how)
        while not behind:
            behind = await _poll(consumer, how)
        assert behind[0] == (0, 10)
