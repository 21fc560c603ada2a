"""The model of `test_core_model` sees what it is there for: each seeded bug is found within 3,000 histories."""

import random
from collections.abc import Callable

import pytest

from ottla.client.core.producer import answers, sequencing
from ottla.client.core.producer.answers import Action, Reply, SentAs, Standing
from ottla.client.core.producer.identity import ProducerIdentity
from ottla.client.core.producer.sequencing import Sequencer
from tests.client.core.producer import histories
from tests.client.core.producer.histories import Step

_HISTORIES = 3_000


def _no_doubt(patch: pytest.MonkeyPatch) -> None:
    """The epoch is raised while the oldest batch may have been written."""
    patch.setattr(sequencing._Partition, "in_doubt", property(lambda self: False))


def _moved_means_not_written(patch: pytest.MonkeyPatch) -> None:
    """NOT_LEADER_OR_FOLLOWER is taken for "not written"."""
    actions = dict(answers.ACTIONS)
    for (standing, sent_as, reply), action in answers.ACTIONS.items():
        if reply is Reply.DOUBTFUL:
            actions[standing, sent_as, reply] = {
                Action.REPEAT_IN_DOUBT: Action.REPEAT,
                Action.GIVE_UP_IN_DOUBT: Action.GIVE_UP,
            }.get(action, action)
    patch.setattr(answers, "ACTIONS", actions)


def _every_gap_begins_again(patch: pytest.MonkeyPatch) -> None:
    """The echo of an older batch's refusal is taken for a loss."""
    actions = dict(answers.ACTIONS)
    actions[Standing.BEHIND, SentAs.PLAIN, Reply.GAP] = Action.GIVE_UP
    patch.setattr(answers, "ACTIONS", actions)


def _window_without_bound(patch: pytest.MonkeyPatch) -> None:
    """More batches go behind an unanswered one than a broker remembers."""
    patch.setattr(sequencing, "MAX_UNANSWERED", 50)


def _halves_begin_again(patch: pytest.MonkeyPatch) -> None:
    """Halves of a batch that may have been written are counted again."""
    actions = dict(answers.ACTIONS)
    actions[Standing.PART, SentAs.PLAIN, Reply.GAP] = Action.BEGIN_AGAIN
    patch.setattr(answers, "ACTIONS", actions)
    begin_again = Sequencer.begin_again

    def without_doubt(self: Sequencer, batch: sequencing.Sequenced) -> None:
        batch.whole_perhaps_written = False
        begin_again(self, batch)

    patch.setattr(Sequencer, "begin_again", without_doubt)


def _a_refusal_proves_what_it_does_not(patch: pytest.MonkeyPatch) -> None:
    """A doubtful batch behind a doubtful one that was given up on is counted again ."""
    actions = dict(answers.ACTIONS)
    actions[Standing.UNPROVED, SentAs.PLAIN, Reply.GAP] = Action.BEGIN_AGAIN
    patch.setattr(answers, "ACTIONS", actions)


def _a_deposed_leader_is_believed(patch: pytest.MonkeyPatch) -> None:
    """A doubtful batch is counted again because one broker does not have what another one has acknowledged."""
    actions = dict(answers.ACTIONS)
    actions[Standing.ELSEWHERE, SentAs.PLAIN, Reply.GAP] = Action.BEGIN_AGAIN
    patch.setattr(answers, "ACTIONS", actions)


def _first_batch_does_not_go_alone(patch: pytest.MonkeyPatch) -> None:
    """A second batch goes before the broker knows the producer (KAFKA-14359)."""
    created = sequencing._Partition.__init__

    def introduced(self: sequencing._Partition, identity: ProducerIdentity) -> None:
        created(self, identity)
        self.introduced_as = identity.producer_id

    patch.setattr(sequencing._Partition, "__init__", introduced)


def _transaction_is_not_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was open in an aborted transaction is still asked for in the next."""
    patch.setattr(Sequencer, "_forget_transaction", lambda self: None)


@pytest.mark.parametrize(
    ("bug", "explore"),
    [
        (_no_doubt, histories.explore_give_ups),
        (_moved_means_not_written, histories.explore_give_ups),
        (_every_gap_begins_again, histories.explore_losses),
        (_window_without_bound, histories.explore_losses),
        (_halves_begin_again, histories.explore_give_ups),
        (_a_refusal_proves_what_it_does_not, histories.explore_late_readings),
        (_a_deposed_leader_is_believed, histories.explore_deposed_leaders),
        (_first_batch_does_not_go_alone, histories.explore_losses),
        (_transaction_is_not_forgotten, histories.explore_transactions),
    ],
)
def test_a_seeded_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None],
    explore: Callable[[random.Random], list[Step]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(20)
    bug(monkeypatch)
    for _ in range(_HISTORIES):
        try:
            explore(rng)
        except AssertionError:
            return
    pytest.fail(f"no history of {_HISTORIES} shows it")
