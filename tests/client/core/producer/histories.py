"""Histories of a producer: steps that a network, its brokers and its user take, and what has to hold after them."""

import random

from ottla.client.core.producer.transaction_state import TxnInput, TxnState
from ottla.client.errors import AbortableTransactionError, RequestTimeoutError
from ottla.wire.errors import ErrorCode
from tests.client.core.producer.world import COORDINATOR, PARTITIONS, World

#: What happens, and to how many, or at which broker or partition.
Step = tuple[str, int]


def take(world: World, step: str, number: int) -> None:
    match step.split():
        case ["produce"]:
            world.send(0, number)
        case ["produce", "elsewhere"]:
            world.send(1, number)
        case ["round", "trips"]:
            for _ in range(number):
                world.send(0, 1)
                world.serve(world.led_by[0])
                world.hear(world.led_by[0])
        case ["serve"]:
            world.serve(number)
        case ["hear"]:
            world.hear(number)
        case ["refuse"]:
            world.serve(number, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        case ["refuse", "after", "append"]:
            world.serve(number, ErrorCode.NOT_LEADER_OR_FOLLOWER, after_append=True)
        case ["too", "large"]:
            world.serve(number, ErrorCode.MESSAGE_TOO_LARGE)
        case ["invalid"]:
            world.serve(number, ErrorCode.INVALID_RECORD)
        case ["break", served]:
            world.break_connection(number, int(served))
        case ["move", *untold]:
            world.move(number, told=not untold)
        case ["depose"]:
            world.depose(number)
        case ["tell", "next"]:
            world.tell_next(number)
        case ["leave", "behind"]:
            world.leave_behind(number)
        case ["haunt"]:
            world.haunt()
        case ["wait"]:
            world.pass_time(number / 1000)
        case ["expire"]:
            world.pass_time(5.0)
        case _:
            raise AssertionError(f"no such step: {step}")


def run(steps: list[Step], **config: object) -> World:
    world = World(**config)  # type: ignore[arg-type]
    world.serve(COORDINATOR)
    world.send(0, 1)
    world.serve(COORDINATOR)
    world.hear(COORDINATOR)
    for step, number in steps:
        take(world, step, number)
    world.settle()
    return world


def assert_nothing_is_harmed(world: World) -> None:
    """What was acknowledged is there once and in order; what failed is there once or not at all."""
    for partition, leader in world.leaders.items():
        log = leader.values
        assert log == sorted(set(log)), "twice, or out of order"
        for record in world.records:
            assert record.delivery.done()
            if record.partition == partition and record.delivery.exception() is None:
                assert record.value in log


def assert_no_acknowledged_record_is_harmed(world: World) -> None:
    """The same, where what failed may be written late: a new producer id does not fence what the old one has sent."""
    succeeded = set(acknowledged(world))
    for partition, leader in world.leaders.items():
        log = leader.values
        assert len(log) == len(set(log)), "twice"
        here = {record.value for record in world.records if record.partition == partition} & succeeded
        assert [value for value in log if value in here] == sorted(here), "lost, or out of order"


def acknowledged(world: World) -> list[int]:
    return [record.value for record in world.records if record.delivery.exception() is None]


class TransactionalUser:
    """Opens, fills and ends transactions, as a careful user does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number = 0
        self.ending: tuple[object, bool] | None = None
        #: Transactions and what the user heard of them: committed, aborted, or (None) unknown as yet.
        self.heard: dict[int, bool | None] = {}

    @property
    def state(self) -> TxnState:
        assert self.world.core.transactions is not None
        return self.world.core.transactions.state

    def begin(self) -> None:
        if self.state is TxnState.READY and self.ending is None:
            self.world.call(self.world.core.begin_transaction)
            self.world.transaction = self.number
            self.heard[self.number] = None
            self.number += 1

    def end(self, *, commit: bool) -> None:
        if self.world.transaction is not None and self.ending is None:
            self.ending = (
                self.world.call(self.world.core.end_transaction, TxnInput.COMMIT if commit else TxnInput.ABORT),
                commit,
            )

    def look(self) -> None:
        """Has the end come? A failed commit is followed by an abort, one that took too long by another."""
        if self.ending is None or self.ending[0] not in self.world.finished:
            return
        token, commit = self.ending
        error = self.world.finished.pop(token).error
        self.ending = None
        transaction = self.world.transaction
        if error is None:
            assert transaction is not None
            self.heard[transaction] = commit
            self.world.transaction = None
        elif isinstance(error, RequestTimeoutError):
            self.end(commit=commit)
        else:
            assert isinstance(error, AbortableTransactionError), error
            self.end(commit=False)


def run_transactions(steps: list[Step], *, implicit: bool) -> tuple[World, TransactionalUser]:
    world = World(transactional=True, implicit=implicit)
    user = TransactionalUser(world)
    for _ in range(3):
        world.step_of_peace()
    user.begin()
    for step, number in steps:
        match step:
            case "begin":
                user.begin()
            case "commit":
                user.end(commit=True)
            case "abort":
                user.end(commit=False)
            case "round":
                for _ in range(number):
                    world.step_of_peace()
            case "produce" | "produce elsewhere" | "round trips" if user.ending is not None:
                pass
            case "produce" | "produce elsewhere" | "round trips" if user.state is not TxnState.IN_TRANSACTION:
                pass
            case _:
                take(world, step, number)
        user.look()
    finish(world, user)
    return world, user


def finish(world: World, user: TransactionalUser) -> None:
    """End what is open; then one more transaction has to succeed at once."""
    user.end(commit=user.state is TxnState.IN_TRANSACTION)
    for _ in range(600):
        world.step_of_peace()
        user.look()
        if world.transaction is None and world.quiet:
            break
    assert user.state is TxnState.READY, f"stuck: {user.state}"
    user.begin()
    for partition in range(PARTITIONS):
        world.send(partition, 1)
    user.end(commit=True)
    for _ in range(200):
        world.step_of_peace()
        if user.ending is not None and user.ending[0] in world.finished:
            break
    assert user.ending is not None
    assert world.finished[user.ending[0]].error is None, "the next transaction is not harmed by the last"
    user.look()


def assert_transactions_are_whole(world: World, user: TransactionalUser) -> None:
    for partition, leader in world.leaders.items():
        seen = world.coordinator.seen(partition)
        assert seen == sorted(set(seen)), "twice, or out of order"
        assert leader.values == sorted(set(leader.values)), "twice in the log"
        for number, committed in user.heard.items():
            sent = {r.value for r in world.records if r.transaction == number and r.partition == partition}
            assert committed is not None
            assert sent & set(seen) == (sent if committed else set()), f"transaction {number} is torn"


#: A batch is on a connection that breaks; its repetition is refused for good. The broker may read the first one yet.
READ_LATE: list[Step] = [("round trips", 6), ("produce", 3), ("leave behind", 1), ("wait", 20), ("invalid", 1)]

#: What brings a producer to leaders that were deposed: metadata is old, an answer is lost, time passes.
_AMONG_THE_DEPOSED: list[list[Step]] = [
    [],
    [("depose", 0), ("depose", 0)],
    [("tell next", 0)],
    [("wait", 500)],
    [("produce", 1), ("break 1", 1)],
    [("produce", 1), ("break 1", 2)],
    [("serve", 2), ("hear", 2)],
    [("serve", 1), ("hear", 1)],
]

# histories drawn from a generator of random numbers

_NODE_STEPS = (
    "leave behind",
    "haunt",
    "serve",
    "hear",
    "refuse",
    "refuse after append",
    "break 0",
    "break 1",
    "break 2",
    "break 5",
)


def _draw(rng: random.Random, *, give_ups: bool, transactions: bool) -> Step:
    nodes = [1, 2, COORDINATOR] if transactions else [1, 2]
    kinds = ["produce", "produce", "round trips", "move", "wait", *_NODE_STEPS]
    kinds += ["too large", "invalid", "expire"] if give_ups else []
    kinds += ["commit", "abort", "begin", "round", "round"] if transactions else []
    match rng.choice(kinds):
        case "produce" | "round trips" as kind:
            return kind, rng.randint(1, 3 if kind == "produce" else 6)
        case "move":
            return "move", rng.randrange(PARTITIONS)
        case "wait":
            return "wait", rng.choice([1, 20, 500, 2_500])
        case "round":
            return "round", rng.randint(1, 4)
        case "too large" | "invalid" as kind:
            return kind, rng.choice([1, 2])
        case "refuse" | "refuse after append" as kind:
            return kind, rng.choice([1, 2])
        case kind:
            return kind, rng.choice(nodes)


def _steps(rng: random.Random, *, give_ups: bool = False, transactions: bool = False) -> list[Step]:
    return [_draw(rng, give_ups=give_ups, transactions=transactions) for _ in range(rng.randint(5, 50))]


def explore_losses(rng: random.Random) -> list[Step]:
    """One history without a batch that is given up on: every record is acknowledged."""
    steps = _steps(rng)
    world = run(steps, delivery_timeout_ms=600_000)
    assert_nothing_is_harmed(world)
    assert acknowledged(world) == [record.value for record in world.records]
    return steps


def explore_deposed_leaders(rng: random.Random) -> list[Step]:
    """One history with leaders that do not know that they were deposed, and metadata that is out of date."""
    steps: list[Step] = []
    for step in _steps(rng):
        steps += rng.choice(_AMONG_THE_DEPOSED)
        steps.append(step)
    world = run(steps, delivery_timeout_ms=600_000)
    assert_nothing_is_harmed(world)
    assert acknowledged(world) == [record.value for record in world.records]
    return steps


def explore_give_ups(rng: random.Random) -> list[Step]:
    """One history with batches that are given up on."""
    steps = _steps(rng, give_ups=True)
    assert_nothing_is_harmed(run(steps))
    return steps


def explore_late_readings(rng: random.Random) -> list[Step]:
    """One history in which a broker reads late what was sent over a connection that broke."""
    steps = [*READ_LATE, *_steps(rng)[:8], ("haunt", 1)]
    assert_nothing_is_harmed(run(steps))
    return steps


def explore_transactions(rng: random.Random) -> list[Step]:
    """One history of transactions."""
    steps = _steps(rng, give_ups=True, transactions=True)
    assert_transactions_are_whole(*run_transactions(steps, implicit=True))
    return steps
