"""Mutants: bugs that are put into the code on purpose, in memory, to show that the checkers find them.

A test says which checker finds which mutant.
"""

from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from sim.mutants import broker, cleaner, clients, cluster, damage, deletion, power, sequencing
from sim.world import Kind


class Mutant(NamedTuple):
    """One bug."""

    #: The kind of worlds that show it.
    kind: Kind
    #: The names of the anomalies that it shows as.
    caught_as: frozenset[str]
    #: The bug is in the code as long as this context lasts.
    bug: AbstractContextManager[None]
    #: The seed to begin with. Few worlds show some bugs; from this seed on the first one comes soon.
    first_seed: int = 0


_TWICE: Final = frozenset({"duplicate"})


def mutants() -> dict[str, Mutant]:
    """All mutants, by name. Each context may be entered once."""
    return {**_of_clients(), **_of_the_cluster(), **_of_the_broker(), **_of_the_cleaner(), **_of_deletion()}


def _of_clients() -> dict[str, Mutant]:
    """Bugs of the clients."""
    return {
        "epoch-raised-in-doubt": Mutant(Kind.PLAIN, _TWICE, sequencing.epoch_raised_in_doubt(), first_seed=120),
        "retried-with-a-new-sequence": Mutant(Kind.PLAIN, _TWICE, sequencing.retried_with_a_new_sequence()),
        "twenty-in-flight": Mutant(Kind.PLAIN, _TWICE, sequencing.twenty_in_flight()),
        "core-stops": Mutant(Kind.PLAIN, frozenset({"unexpected-exception"}), clients.core_stops()),
        "tells-of-no-failure": Mutant(Kind.PLAIN, frozenset({"never-settled"}), clients.tells_of_no_failure()),
        "consumers-core-stops": Mutant(
            Kind.GROUPS, frozenset({"unexpected-exception"}), clients.consumers_core_stops()
        ),
        "cancels-its-user": Mutant(Kind.PLAIN, frozenset({"unexpected-exception"}), clients.cancels_its_user()),
        "commits-in-spite-of-a-lost-batch": Mutant(
            Kind.TRANSACTIONS, frozenset({"torn-transaction", "lost-write"}), clients.commits_in_spite_of_a_lost_batch()
        ),
        "every-answer-counts": Mutant(
            Kind.GROUPS,
            frozenset({"false-reset", "nonmonotonic-poll", "poll-skip"}),
            clients.every_answer_counts(),
            first_seed=100,
        ),
        "commits-ahead": Mutant(Kind.GROUPS, frozenset({"commit-ahead"}), clients.commits_ahead()),
        "begins-again-at-a-new-leader": Mutant(
            Kind.GROUPS, frozenset({"false-reset"}), clients.begins_again_at_a_new_leader()
        ),
        "loop-does-not-go-back": Mutant(Kind.EXACTLY_ONCE, frozenset({"lost-write"}), clients.loop_does_not_go_back()),
        "loop-commits-an-old-epoch": Mutant(
            Kind.EXACTLY_ONCE, frozenset({"false-reset"}), clients.loop_commits_an_old_epoch(), first_seed=45
        ),
        "loop-keeps-its-offsets": Mutant(Kind.EXACTLY_ONCE, _TWICE | {"unprocessed"}, clients.loop_keeps_its_offsets()),
        "positions-of-nobody": Mutant(Kind.PIPELINE, frozenset({"unfenced-commit"}), clients.positions_of_nobody()),
    }


def _of_the_cluster() -> dict[str, Mutant]:
    """Bugs of the modelled cluster, and of the world itself."""
    return {
        "broker-remembers-no-batch": Mutant(Kind.PLAIN, _TWICE, cluster.remembers_no_batch()),
        "unclean-election": Mutant(Kind.PLAIN, frozenset({"lost-write"}), cluster.unclean_election(), first_seed=48),
        "no-aborted-list": Mutant(Kind.GROUPS, frozenset({"aborted-read"}), cluster.no_aborted_list(), first_seed=7),
        "reads-open-transactions": Mutant(
            Kind.GROUPS, frozenset({"aborted-read", "vanished-read"}), cluster.reads_open_transactions(), first_seed=14
        ),
        "reads-before-the-commit": Mutant(
            Kind.GROUPS, frozenset({"precommitted-read"}), cluster.reads_open_transactions(), first_seed=17
        ),
        "reads-a-part-of-a-transaction": Mutant(
            Kind.GROUPS, frozenset({"intermediate-read"}), cluster.reads_open_transactions(), first_seed=17
        ),
        "any-generation-commits": Mutant(
            Kind.GROUPS,
            frozenset({"commit-regression", "unseen"}),
            cluster.any_generation_commits(),
            first_seed=90,
        ),
        "half-of-the-markers": Mutant(
            Kind.TRANSACTIONS, frozenset({"stuck-lso", "lost-write"}), cluster.half_of_the_markers()
        ),
        "acknowledged-by-the-leader-alone": Mutant(
            Kind.PLAIN, frozenset({"lost-write"}), cluster.acknowledged_by_the_leader_alone()
        ),
        "gives-an-offset-twice": Mutant(
            Kind.PLAIN, frozenset({"inconsistent-offsets"}), cluster.acknowledged_by_the_leader_alone()
        ),
        "takes-any-sequence": Mutant(Kind.PLAIN, frozenset({"nonmonotonic-send"}), cluster.takes_any_sequence()),
        "breaks-the-world": Mutant(Kind.PLAIN, frozenset({"broken-world"}), cluster.breaks_the_world()),
        "answers-twice": Mutant(Kind.PLAIN, frozenset({"unheard-exception"}), cluster.answers_twice()),
        "gives-all-the-same": Mutant(Kind.GROUPS, frozenset({"two-owners"}), cluster.gives_all_the_same()),
    }


def _of_the_broker() -> dict[str, Mutant]:
    """Bugs of the real broker."""
    return {
        "acknowledges-before-the-sync": Mutant(
            Kind.BROKER_POWER, frozenset({"lost-write"}), power.acknowledges_before_the_sync()
        ),
        "keeps-its-leaders": Mutant(Kind.BROKER_POWER, frozenset({"one-epoch-twice"}), power.keeps_its_leaders()),
        "tells-nothing": Mutant(
            Kind.BROKER_DAMAGE, frozenset({"silent-damage"}), damage.tells_nothing(), first_seed=12
        ),
        "believes-any-cluster": Mutant(
            Kind.BROKER_DAMAGE, frozenset({"silent-damage"}), damage.believes_any_cluster(), first_seed=120
        ),
        "cuts-the-metadata": Mutant(
            Kind.BROKER_DAMAGE,
            frozenset({"lost-write", "unexpected-exception"}),
            damage.cuts_the_metadata(),
            first_seed=4,
        ),
        "dedup-window-of-four": Mutant(Kind.BROKER_PLAIN, _TWICE, broker.dedup_window_of_four()),
        "marks-before-it-decides": Mutant(
            Kind.BROKER_STEPS, frozenset({"torn-transaction"}), broker.marks_before_it_decides(), first_seed=282
        ),
        "raises-no-epoch": Mutant(
            Kind.BROKER_TRANSACTIONS, frozenset({"lost-write", "torn-transaction"}), broker.raises_no_epoch()
        ),
        "two-phase-times-out": Mutant(
            Kind.BROKER_TRANSACTIONS, frozenset({"decided-lost"}), broker.two_phase_times_out(), first_seed=12
        ),
        "broker-takes-any-generation": Mutant(
            Kind.BROKER_GROUPS, frozenset({"commit-regression"}), cluster.any_generation_commits(), first_seed=72
        ),
        "any-generation-commits-to-the-broker": Mutant(
            Kind.BROKER_PIPELINE, _TWICE, cluster.any_generation_commits(), first_seed=165
        ),
        "hands-over-at-once": Mutant(
            Kind.BROKER_CONSUMER_GROUPS, frozenset({"two-owners"}), broker.hands_over_at_once(), first_seed=3
        ),
        "any-epoch-commits": Mutant(
            Kind.BROKER_CONSUMER_GROUPS,
            frozenset({"commit-regression", "duplicate"}),
            broker.any_epoch_commits(),
            first_seed=27,
        ),
        "reads-beyond-open-transactions": Mutant(
            Kind.BROKER_GROUPS, frozenset({"aborted-read"}), broker.reads_beyond_open_transactions(), first_seed=5
        ),
        "keeps-a-torn-tail": Mutant(
            Kind.BROKER_POWER, frozenset({"lost-write", "unreadable-log"}), broker.keeps_a_torn_tail(), first_seed=25
        ),
        "syncs-nothing": Mutant(
            Kind.BROKER_POWER, frozenset({"lost-write", "lost-flushed", "unreadable-log"}), broker.syncs_nothing()
        ),
    }


def _of_the_cleaner() -> dict[str, Mutant]:
    """Bugs of the broker's cleaner."""
    return {
        "cleaner-removes-the-last-record": Mutant(
            Kind.BROKER_CONSUMER_GROUPS,
            frozenset({"commit-regression", "duplicate"}),
            cleaner.removes_the_last_record(),
            first_seed=17,
        ),
        "cleaner-takes-aborted-for-committed": Mutant(
            Kind.BROKER_PIPELINE,
            frozenset({"commit-regression", "unprocessed", "unseen"}),
            cleaner.takes_aborted_for_committed(),
            first_seed=204,
        ),
        "cleaner-gives-up-its-segments": Mutant(
            Kind.BROKER_STEPS,
            frozenset({"forgotten", "lost-write"}),
            cleaner.gives_up_its_segments(),
            first_seed=55,
        ),
    }


def _of_deletion() -> dict[str, Mutant]:
    """Bugs of the broker's deletion of records."""
    return {
        "deletion-is-answered-before-it-is-written": Mutant(
            Kind.BROKER_PLAIN, frozenset({"undeleted"}), deletion.answers_before_it_writes()
        ),
        "start-believed-too-high": Mutant(
            Kind.BROKER_PLAIN, frozenset({"lost-write"}), deletion.believes_a_start_too_high(), first_seed=12
        ),
    }
