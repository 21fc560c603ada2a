"""Mutants: bugs that are put into the code on purpose, in memory, to show that the checkers find them.

A test says which checker finds which mutant.
"""

from contextlib import AbstractContextManager
from typing import NamedTuple

from sim.mutants import cluster, sequencing
from sim.world import Kind


class Mutant(NamedTuple):
    """One bug."""

    #: The kind of worlds that show it.
    kind: Kind
    #: The names of the anomalies that it shows as.
    caught_as: frozenset[str]
    #: The bug is in the code as long as this context lasts.
    bug: AbstractContextManager[None]


def mutants() -> dict[str, Mutant]:
    """All mutants, by name. Each context may be entered once."""
    twice = frozenset({"duplicate"})
    return {
        "epoch-raised-in-doubt": Mutant(Kind.PLAIN, twice, sequencing.epoch_raised_in_doubt()),
        "retried-with-a-new-sequence": Mutant(Kind.PLAIN, twice, sequencing.retried_with_a_new_sequence()),
        "twenty-in-flight": Mutant(Kind.PLAIN, twice, sequencing.twenty_in_flight()),
        "broker-remembers-no-batch": Mutant(Kind.PLAIN, twice, cluster.remembers_no_batch()),
        "unclean-election": Mutant(Kind.PLAIN, frozenset({"lost-write"}), cluster.unclean_election()),
        "no-aborted-list": Mutant(Kind.GROUPS, frozenset({"aborted-read"}), cluster.no_aborted_list()),
        "reads-open-transactions": Mutant(
            Kind.GROUPS, frozenset({"aborted-read", "vanished-read"}), cluster.reads_open_transactions()
        ),
        "any-generation-commits": Mutant(
            Kind.GROUPS, frozenset({"commit-regression", "unseen"}), cluster.any_generation_commits()
        ),
        "half-of-the-markers": Mutant(
            Kind.TRANSACTIONS, frozenset({"stuck-lso", "lost-write"}), cluster.half_of_the_markers()
        ),
        "acknowledged-by-the-leader-alone": Mutant(
            Kind.PLAIN, frozenset({"lost-write"}), cluster.acknowledged_by_the_leader_alone()
        ),
    }
