"""Worlds: one seed is one history, in any process; and the short run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sim.deletions import DELETER
from sim.loop import run
from sim.running import one
from sim.users.process import LONGEST_PAUSE_S
from sim.users.readers import Reader
from sim.world import SETTLE_S, Kind, Plan, World
from tests.house.tree import ROOT

pytestmark = pytest.mark.usefixtures("quiet")

#: Always the same: a drawn seed that fails would stop somebody whose change is not the cause. `make sim` draws.
#: Two of each kind: CI runs 300 in `make sim`.
_SEEDS = range(2)
#: Faults for a third of the usual time: what is tested here shows soon.
_SHORT = Plan(faults_s=30.0)


@pytest.mark.parametrize("kind", Kind)
def test_the_short_run_shows_no_anomaly(kind: Kind) -> None:
    for seed in _SEEDS:
        print(f"{kind.value} world {seed}")
        summary = one(seed, kind)
        assert not summary.names, f"make sim SEED={seed} KIND={kind.value}\n{summary.text}"


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        (Kind.GROUPS, 200000649),
        (Kind.GROUPS, 300000912),
        (Kind.GROUPS, 360011511),
        (Kind.BROKER_CONSUMER_GROUPS, 300004185),
        (Kind.BROKER_CONSUMER_GROUPS, 320000171),
        (Kind.BROKER_CONSUMER_GROUPS, 350008500),
        (Kind.BROKER_CONSUMER_GROUPS, 430025634),
        (Kind.BROKER_GROUPS, 520000719),
        (Kind.BROKER_POWER, 520001297),
        (Kind.BROKER_DAMAGE, 540000229),
        (Kind.BROKER_DAMAGE, 330002191),
        (Kind.BROKER_DAMAGE, 330005935),
        (Kind.BROKER_DAMAGE, 330015516),
        (Kind.BROKER_DAMAGE, 340000101),
        (Kind.BROKER_DAMAGE, 350002171),
        (Kind.BROKER_DAMAGE, 360000874),
        (Kind.BROKER_DAMAGE, 390000015),
        (Kind.BROKER_DAMAGE, 400009133),
        (Kind.BROKER_DAMAGE, 430003629),
        (Kind.BROKER_DAMAGE, 430004021),
        (Kind.BROKER_DAMAGE, 430019043),
        (Kind.BROKER_GROUPS, 340001916),
        (Kind.BROKER_GROUPS, 430016321),
        (Kind.BROKER_PIPELINE, 330021011),
        (Kind.BROKER_PIPELINE, 350008524),
        (Kind.BROKER_PIPELINE, 430005262),
        (Kind.EXACTLY_ONCE, 330011270),
        (Kind.PIPELINE, 430024479),
        (Kind.PLAIN, 430022558),
        (Kind.TRANSACTIONS, 10882),
        (Kind.TRANSACTIONS, 430027865),
    ],
)
def test_worlds_that_have_found_something(kind: Kind, seed: int) -> None:
    """Without deletion, which most of them did not have when they found something.

    A position that moved on while a new leader was asked about it was taken for one behind the end of the log.

    Metadata that was out of date for longer than a request may take was believed.
    Two commits of one member came on two connections, and the model told of them in the order of its answers.
    A static member took the place of one whose group was rebalancing, and nobody got the partitions.
    A consumer group became a classic one, and its log was loaded before the rebalance had ended.
    The log believed batches below the recovery point after kill -9, and a changed header hid the sound ones behind it.
    After the first checkpoint and kill -9 a file of the directory that was gone was not missed.
    The simulator read a batch that the broker serves to nobody (twice).
    A second process decided a transaction and was gone for good: in two-phase commit there is no second one any more.
    An InitProducerId that was repeated came late, and aborted a decided transaction (docs/two-phase-commit.md).
    The simulator changed the offset of a batch beside a hole, where no start can find it.
    A manifest that was made again did not say what the `.txnindex` files must hold until the next checkpoint.
    A reader skipped a damaged region offset by offset, and was not done in time.
    What an attempt to make a topic had left stopped every later one.
    A user waited for more than a minute in the middle of a transaction in two-phase commit; its readers had gone home.
    A late EndTxn of the first transaction protocol committed the next transaction.
    A consumer believed a deposed leader that an offset committed without a leader epoch was beyond the end of the log.
    A member that was expelled while it joined kept partitions that another had had meanwhile.
    A pipeline read 4,200 records of 174 second processes at its usual pace, and was not done in time.
    A producer believed a deposed leader that a batch whose answer was lost was not written (twice).
    A batch that was gone with a damaged file was out of order, and its producer wrote those behind it once more.
    After a clean stop a changed header hid the sound batches behind it, and one of them was written once more.
    The last reader's JoinGroup went to a connection that was cut, and the reader stopped before it could know.
    """
    assert one(seed, kind, Plan(absent=frozenset({DELETER}))).names == ()


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        (Kind.BROKER_DAMAGE, 34),
        (Kind.BROKER_DAMAGE, 520000277),
        (Kind.BROKER_DAMAGE, 530000037),
        (Kind.BROKER_DAMAGE, 530000098),
        (Kind.BROKER_DAMAGE, 530000340),
        (Kind.BROKER_DAMAGE, 560000895),
        (Kind.BROKER_DAMAGE, 900011979),
        (Kind.BROKER_DAMAGE, 1600000373),
        (Kind.BROKER_DAMAGE, 1610000844),
        (Kind.BROKER_DAMAGE, 1610000930),
        (Kind.BROKER_DAMAGE, 1620000736),
        (Kind.BROKER_DAMAGE, 1620000996),
        (Kind.BROKER_DAMAGE, 1620002077),
        (Kind.BROKER_DAMAGE, 1620002132),
        (Kind.BROKER_DAMAGE, 1620002245),
        (Kind.BROKER_DAMAGE, 1620002848),
        (Kind.BROKER_DAMAGE, 1620002930),
        (Kind.BROKER_DAMAGE, 1620003269),
        (Kind.BROKER_DAMAGE, 1630000930),
        (Kind.BROKER_DAMAGE, 1630002299),
        (Kind.BROKER_DAMAGE, 1640000542),
        (Kind.BROKER_DAMAGE, 1670001208),
        (Kind.BROKER_DAMAGE, 1800007383),
        (Kind.BROKER_DAMAGE, 2200025449),
        (Kind.BROKER_DAMAGE, 4400019749),
        (Kind.BROKER_CONSUMER_GROUPS, 700003650),
        (Kind.BROKER_CONSUMER_GROUPS, 700003986),
        (Kind.BROKER_CONSUMER_GROUPS, 830000846),
        (Kind.BROKER_CONSUMER_GROUPS, 3300007462),
        (Kind.BROKER_GROUPS, 39),
        (Kind.BROKER_PLAIN, 12),
        (Kind.BROKER_POWER, 520000177),
        (Kind.BROKER_POWER, 2400018303),
        (Kind.BROKER_POWER, 830000553),
        (Kind.BROKER_POWER, 520000471),
        (Kind.BROKER_POWER, 600100037),
        (Kind.BROKER_POWER, 600100167),
        (Kind.BROKER_POWER, 3800007789),
        (Kind.BROKER_POWER, 4100001665),
        (Kind.BROKER_POWER, 4400008323),
        (Kind.BROKER_STEPS, 17),
        (Kind.BROKER_STEPS, 3000028442),
    ],
)
def test_worlds_with_deletion_that_have_found_something(kind: Kind, seed: int) -> None:
    """All records were deleted, and after a restart the broker did not know their leader epoch any more.

    DeleteRecords was acknowledged though the disk had refused to write it down.
    The simulator took half a batch that a dying process had left for damage.
    After a restart the log knew only the last batch of a producer, because those before it were gone with a damaged
    file, or deleted by retention. One whose answer was lost was refused, and all of them were written once more.
    The simulator gave a transaction that was deleted, and had lost its marker, the end of its producer's next one.
    The simulator emptied the only log file where no start can tell it from one that retention has made (twice).
    The simulator's operator aborted a transaction that was going on, at offsets that were lost once and used again.
    A roll that the disk refused left an empty file, and retention deleted the one in front: the next start cut all.
    A deletion moved the recovery point, and what a loss of power took behind it was told as flushed and gone.
    The simulator took records that the power had taken for deleted, because somebody had asked for that (twice).
    Retention deleted the last batches of an epoch before a loss of power, and nobody knew the epoch then.
    The simulator did not know the records of a deleted file whose name a loss of power brought back.
    A changed leader epoch in the metadata log made the directory one of Apache Kafka's.
    A batch that had no answer yet was deleted, and the snapshot that knew it was damaged: it was written once more.
    The simulator read a batch whose base offset was changed as one of a later file.
    The simulator looked for what was deleted, though nothing was left that knew its producer, or its offsets (thrice).
    A log file behind a hole was emptied; its batches came from older copies before the hole, as far as these went.
    A changed leader epoch made the leader epochs begin too late, and the log with them (twice, once in an empty log).
    Readers of committed records were refused good ones, when a transaction had begun in the hole behind them.
    A changed leader epoch was committed with a position, which was reset then.
    A deletion was newer than the recovery point, and the other place that said where the log begins was damaged.
    The simulator forgot a coordinator's generations when the next one could not read its log.
    A changed length hid the whole batches behind it, up to the next entry of the index.
    The simulator's operator aborted what a lost marker had left open, when its producer was in the next transaction.
    """
    assert one(seed, kind).names == ()


def test_a_user_does_not_do_nothing_for_ever() -> None:
    """broker-groups 430024679 at 49dec98: for 139 s, and the world did not wait for so long."""
    world = World(1, Kind.GROUPS)
    user = Reader(world, "r")
    began_s = world.loop.time()
    run(user.pause(1_000_000.0), world.loop)
    assert world.loop.time() - began_s == LONGEST_PAUSE_S
    assert LONGEST_PAUSE_S * 2 < SETTLE_S


_DIGESTS = """
import logging
logging.disable(logging.ERROR)
from sim.world import Kind, Plan, World
for kind in Kind:
    print(kind.value, World(2, kind, Plan(faults_s=30.0)).run().digest)
"""


def test_one_seed_is_one_history_whatever_ran_before() -> None:
    """A seed that fails after a hundred others fails alone, too."""
    worlds = [(kind, 1) for kind in Kind]
    digests = {world: World(world[1], world[0], _SHORT).run().digest for world in worlds}
    assert {world: World(world[1], world[0], _SHORT).run().digest for world in reversed(worlds)} == digests


def test_one_seed_is_one_history_in_any_process() -> None:
    """No order of hashes, no address, no clock of the machine has a say."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].splitlines())) == len(Kind)
