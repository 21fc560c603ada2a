"""The admin client for asyncio. Its calls are in the modules beside this one, sorted by subject."""

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.repair import RepairCalls
from ottla.client.admin.users import UserCalls


class AsyncAdmin(RepairCalls, AclCalls, UserCalls, QuotaCalls):
    """Lists, describes and changes topics, records, groups, transactions, ACLs, users and quotas.

    A call is repeated while its error is retriable, for `default.api.timeout.ms`; then it raises RequestTimeoutError.
    An error that is not retriable is raised as KafkaError, or as the subclass that the call names.

    async with AsyncAdmin({"bootstrap.servers": "127.0.0.1:9092"}) as admin:
        await admin.create_topics([NewTopic("words", num_partitions=4)])
    """
