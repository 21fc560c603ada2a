"""Anomalies whose cause is known and told, so that a night's run shows what is new. The list only shrinks.

Each entry recognises its own story in the history and nothing else; a fixed test holds the same bug.
"""

from sim.check import Anomaly
from sim.history import Answered, Event


def known(anomaly: Anomaly, events: list[Event]) -> str | None:
    """Why the anomaly is expected for now; None for one that is news."""
    return None


def _repetition_overtook(anomaly: Anomaly, events: list[Event]) -> bool:
    """late-first-attempt: a batch was sent, its connection broke, and its repetition was refused as out of order behind
    batches that were given up on. The producer counts it again in a new epoch; then the first attempt arrives.
    """
    stories = [event.data for event in events if isinstance(event.data, Answered)]
    for uid in anomaly.around[:-1]:
        seen = [story for story in stories if uid in story.uids()]
        written = [story for story in seen if story.error == "NONE"]
        if not written or written[0].epoch == written[-1].epoch:
            continue
        before = seen[: seen.index(written[0])]
        if any(s.error == "OUT_OF_ORDER_SEQUENCE_NUMBER" and s.epoch == written[0].epoch for s in before):
            return True
    return False
