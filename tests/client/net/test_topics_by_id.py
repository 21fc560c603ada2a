"""KIP-848: a target names topics by id. The client asks for those that it does not know, whatever else it tracks."""

import asyncio
import random

from ottla.client.config.producer import producer_config
from ottla.client.net.cluster import Cluster
from tests.client.scripted_broker import ScriptedBroker


async def test_a_topic_is_learnt_by_its_id_and_an_unknown_id_harms_nothing() -> None:
    async with ScriptedBroker({"t": 2, "u": 1}) as broker:
        cluster = Cluster(producer_config(broker.config()), random.Random(1), auto_create_topics=True)
        learnt = asyncio.Event()
        cluster.on_update(lambda before, after: learnt.set() if "t" in after.topics else None)
        await cluster.start()
        try:
            wanted = broker.kafka.topics["t"].topic_id
            cluster.learn_topics({wanted, b"?" * 16})
            async with asyncio.timeout(10):
                await learnt.wait()
            assert cluster.snapshot.names_by_id == {wanted: "t"}
            assert cluster.snapshot.partition_count("t") == 2
            await cluster.refreshed()
            assert "t" in cluster.snapshot.topics, "until somebody tracks it and lets it go"
            assert set(broker.kafka.topics) == {"t", "u"}, "nothing is made"
        finally:
            await cluster.close()
