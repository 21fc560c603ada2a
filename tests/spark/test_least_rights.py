"""The ACLs that docs/spark.md names are enough for a source and a sink, and each is needed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from ottla import AclBinding, AclBindingFilter, AclOperation, AclPatternType, AclResourceType, Admin, OttlaError
from ottla.broker.config_keys import STANDARD_AUTHORIZER
from ottla.spark.ids import staging_topic
from ottla.spark.staging import INLINE_BYTES
from ottla.testing import Broker
from ottla.wire.acls import CLUSTER_NAME
from tests.spark.sink_world import SinkWorld
from tests.spark.source_world import World, batch_values

_ME = "User:ANONYMOUS"
_TOPIC, _GROUP, _TRANSACTION = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_LEDGER = "__ottla_ledger"
#: One client is both the pipeline and who looks at what it did: reading the output back is a right of its own.
_LOOK = AclBinding(_TOPIC, "words", _ME, _READ)


def _sinks_acls(sink: str) -> list[AclBinding]:
    return [
        AclBinding(_TOPIC, "words", _ME, _WRITE),
        AclBinding(_TOPIC, _LEDGER, _ME, _READ),
        AclBinding(_TOPIC, _LEDGER, _ME, _WRITE),
        AclBinding(_TRANSACTION, f"__ottla/{sink}/", _ME, _WRITE, pattern_type=AclPatternType.PREFIXED),
    ]


class Guarded:
    """A broker whose one user may do everything until `only` is called, and then what ACLs say, and change these."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_super = True
        self._broker = self._started(_ME, 0)

    def _started(self, super_user: str, port: int) -> Broker:
        settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": super_user}
        return Broker(settings, data_dir=self._directory, port=port).start()

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap_servers

    def only(self, acls: Sequence[AclBinding]) -> None:
        """From now on these are all the rights to topics, groups and transactional ids."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_acls([AclBindingFilter(kind) for kind in (_TOPIC, _GROUP, _TRANSACTION)])
            may_change = AclBinding(AclResourceType.CLUSTER, CLUSTER_NAME, _ME, AclOperation.ALTER)
            admin.create_acls([may_change, *acls])
        if self._is_super:
            self._is_super = False
            self._broker.stop()
            self._broker = self._started("User:admin", self._broker.port)

    def stop(self) -> None:
        self._broker.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    broker = Guarded(tmp_path / "data")
    yield broker
    broker.stop()


def test_a_sink_needs_its_topic_the_ledger_and_its_transactional_ids(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    world = SinkWorld.create(guarded.bootstrap, "words", tmp_path / "checkpoint")
    world.committer().commit(world.batch(world.driver(), 0, "a"), 0)  # makes the ledger; later it is read, too
    needed = _sinks_acls(world.sink)
    for left_out in needed:
        guarded.only([_LOOK, *(each for each in needed if each != left_out)])
        with pytest.raises(OttlaError, match="AUTHORIZATION_FAILED"):
            world.committer().commit(world.batch(world.driver(), 1, "never"), 1)
    guarded.only([_LOOK, *needed])
    world.committer().commit(world.batch(world.driver(), 2, "b", "c"), 2)
    assert world.output() == Counter(["a", "b", "c"])
    world.plan(3, 5, "g")
    with pytest.raises(OttlaError, match="AUTHORIZATION_FAILED"):
        world.committer().commit(world.batch(world.driver(), 3, "d"), 3)
    guarded.only([_LOOK, *needed, AclBinding(_GROUP, "g", _ME, _READ)])
    world.committer().commit(world.batch(world.driver(), 3, "d"), 3)
    assert world.group_offset("g") == 5


def test_the_same_rights_are_enough_to_abort_what_tasks_at_work_have_open(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    world = SinkWorld.create(guarded.bootstrap, "words", tmp_path / "checkpoint")
    world.committer().commit(world.batch(world.driver(), 0, "a"), 0)
    guarded.only([_LOOK, *_sinks_acls(world.sink)])
    driver = world.driver()
    world.batch(driver, 1, "b", "c")
    assert len(world.open_transactions()) == 2
    driver.abort([None, None])
    assert world.open_transactions() == []


def test_a_sink_of_whole_batches_needs_its_staging_topic_too(guarded: Guarded, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    world = SinkWorld.create(guarded.bootstrap, "words", tmp_path / "checkpoint")
    whole, long = {"atomicity": "batch"}, "x" * INLINE_BYTES
    world.committer(**whole).commit(world.batch(world.driver(**whole), 0, f"a {long}"), 0)  # makes both topics
    staging = [AclBinding(_TOPIC, staging_topic(world.sink), _ME, right) for right in (_READ, _WRITE)]
    for left_out in staging:
        guarded.only([_LOOK, *_sinks_acls(world.sink), *(each for each in staging if each != left_out)])
        with pytest.raises(OttlaError, match="AUTHORIZATION_FAILED"):
            world.committer(**whole).commit(world.batch(world.driver(**whole), 1, f"never {long}"), 1)
    guarded.only([_LOOK, *_sinks_acls(world.sink), *staging])  # without DELETE what was copied stays for a day
    world.committer(**whole).commit(world.batch(world.driver(**whole), 1, f"b {long}"), 1)
    assert world.output() == Counter({"a": 1, "b": 1, long: 2})


def test_a_source_needs_its_topics(guarded: Guarded) -> None:
    world = World(guarded.bootstrap, "lines")
    world.make(2)
    guarded.only([])
    with pytest.raises(OttlaError, match="AUTHORIZATION_FAILED"):
        batch_values(world.reader())
    guarded.only([AclBinding(_TOPIC, "lines", _ME, _READ)])
    assert batch_values(world.reader()) == world.rows(range(2), range(2))
