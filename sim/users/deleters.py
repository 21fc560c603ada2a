"""A user of the admin client who deletes old records."""

from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition
from ottla.client.admin.admin import AsyncAdmin
from ottla.client.admin.types import OffsetSpec
from ottla.client.errors import KafkaError, OffsetOutOfRangeError, RequestTimeoutError
from sim.deletions import Deletions
from sim.seam import make_admin
from sim.users.process import Process

if TYPE_CHECKING:
    from sim.world import World


class Deleter(Process):
    """Asks now and then for DeleteRecords up to an offset between the start of a log and its high watermark."""

    def __init__(self, world: "World", name: str, deletions: Deletions) -> None:
        super().__init__(world, name)
        self._deletions = deletions
        #: Those of killed lives too: nothing of them is collected, and says so, before the world's end.
        self._admins: list[AsyncAdmin] = []

    @property
    def may_run_twice(self) -> bool:
        return False

    async def live(self) -> None:
        draw = self.rng.choice
        config = {
            "bootstrap.servers": self.world.served.bootstrap,
            "client.id": self.who,
            "request.timeout.ms": draw((300, 1_000, 5_000)),
            "default.api.timeout.ms": draw((2_000, 10_000)),
        }
        admin = make_admin(config, self.rng, self.crashed)
        self._admins.append(admin)
        mean_s = draw((1.0, 4.0, 10.0))
        while not self.world.users_stopped:
            await self.pause(mean_s)
            topic = draw(self.world.topics)
            await self._delete(admin, TopicPartition(topic, self.rng.randrange(self.world.numbered[topic])))
        await admin.close()
        self.note("closed")

    async def _delete(self, admin: AsyncAdmin, tp: TopicPartition) -> None:
        try:
            start = (await admin.list_offsets({tp: OffsetSpec.EARLIEST}))[tp].offset
            end = (await admin.list_offsets({tp: OffsetSpec.LATEST}))[tp].offset
            offset = start + round((end - start) * self.rng.choice((0.1, 0.5, 1.0)) * self.rng.random())
            self._deletions.ask(self.who, tp, offset)
            low_watermark = (await admin.delete_records({tp: offset}))[tp]
        except (OffsetOutOfRangeError, RequestTimeoutError) as error:  # a damaged file may have taken the log's end
            self.note("not deleted", repr(error))
        except KafkaError as error:
            if not error.retriable:
                raise
            self.note("not deleted", repr(error))
        else:
            self._deletions.answered(self.who, tp, max(offset, low_watermark))
