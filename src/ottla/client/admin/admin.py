"""The admin client for asyncio; the calls are in the modules beside this one, by what they are about."""

from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.admin.transactions import TransactionCalls


class AsyncAdmin(TopicCalls, RecordCalls, GroupCalls, TransactionCalls):
    """Looks after topics, records, groups and transactions.

    async with AsyncAdmin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        await admin.create_topics([NewTopic("words", num_partitions=4)])
    """
