"""A process that copies a topic with `exactly_once`, and dies as of kill -9 after one step of its first batch.

    python -m tests.client.exactly_once_victim SERVERS SOURCE SINK STEP

STEP: `sent` (flushed, nothing else), `offsets` (they are in the transaction), `committed`, or `never`.
"""

import os
import signal
import sys
from collections.abc import Mapping

from ottla import AsyncProducer, ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, exactly_once
from ottla.client.exactly_once import work

STEPS = ("sent", "offsets", "committed")


class MortalProducer(AsyncProducer):
    """It ends the process after the step that was asked for."""

    step = "never"

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        self._die_at("sent")
        await super().send_offsets_to_transaction(offsets, group_metadata)
        self._die_at("offsets")

    async def commit_transaction(self) -> None:
        await super().commit_transaction()
        self._die_at("committed")

    def _die_at(self, step: str) -> None:
        if self.step == step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(servers: str, source: str, sink: str, step: str) -> None:
    """Copy until the end of the source, or until the step."""
    MortalProducer.step = step
    vars(work)["AsyncProducer"] = MortalProducer
    # static: a new process need not wait for the end of the dead one's session
    config = {"bootstrap.servers": servers, "group.id": sink, "group.instance.id": "one", "max.poll.records": 5}
    with exactly_once(source, sink, sink, config, until_end=True) as copies:
        for batch in copies:
            for record in batch:
                batch.send(record.value)
            batch.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
