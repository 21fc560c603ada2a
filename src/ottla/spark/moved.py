"""A query that wrote under another sink id: its checkpoint was moved, or is named in another way.

Who sets no `sink.id` gets one from the query's name or the checkpoint's location (`sink_client.default_sink_id`). When
those change, so does the id, and the new sink knows nothing of what the query has decided under the former one: it
would write a replay again. But the query's id is in the checkpoint, and stays, and the ledger has the decisions of all
sinks under it. So the ledger is asked:

* The location written in another way is the same one. Versions before made other ids of it, which several places could
  share. A sink that is known under such an id keeps it.
* Who has decided the batch before this one, or this one, has not moved: another sink that is ahead is that of a copy.
* Another place, or another name, may be a copy of the checkpoint whose query still runs. To go on under the former id
  would stop that one, and to go on under the new one could write a batch twice: the query is refused, and told what to
  set.

Pure, as the protocol is.
"""

from collections.abc import Sequence

from ottla.base.errors import ConfigError
from ottla.spark.ledger import BatchKey, Ledger, QueryPast
from ottla.spark.protocol import Claim
from ottla.spark.requests import ReadLedger, Steps


def sink_in_use(known: Sequence[str], query: str | None) -> Steps:
    """Under which of its default ids `query` goes on; None is a query that could not be found.

    The first one is today's, the others are those of versions before, the later ones first. Returns one of them.
    """
    return in_use((yield ReadLedger()), known, query)


def in_use(ledger: Ledger, known: Sequence[str], query: str | None) -> str:
    """What `sink_in_use` finds in this ledger."""
    if query is None:
        return next((sink for sink in known if ledger.has_decided(sink)), known[0])
    sinks = ledger.sinks_of(query)
    return max(known, key=lambda sink: sinks.get(sink, -1))


def check_not_moved(claim: Claim, key: BatchKey) -> Steps:
    """Raise ConfigError if the claim's sink has missed batches of this query that another one has. Returns None."""
    known = claim.past.get(key.query, QueryPast()).latest
    if known >= 0 and known >= key.batch - 1:
        return  # it goes on where it was; another sink that is ahead is a copy's, with a sink.id of its own
    ledger: Ledger = yield ReadLedger()
    sinks = ledger.sinks_of(key.query)
    sinks.pop(claim.sink, None)
    if not sinks:
        return
    other = max(sinks, key=lambda sink: sinks[sink])
    if sinks[other] > known:
        raise ConfigError(
            f"query {key.query} has no sink.id, and by its name or checkpoint it is {claim.sink} now; but the ledger "
            f"has its batch {sinks[other]} under the sink {other}. What is committed there would be written again. If "
            f"the checkpoint was moved, or the query renamed, make sure that no driver writes through {other} any "
            f"more, and set sink.id to {other}. If the checkpoint is a copy, and its query is to write by itself, give "
            "it a sink.id of its own"
        )
