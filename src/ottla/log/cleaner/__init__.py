"""The cleaner: of a compacted log, the last record of each key stays (`cleanup.policy=compact`).

Theory of operation. A log has a clean part, a dirty part, and a part that cannot be cleaned yet (`choice`): the active
segment, what comes after the last stable offset, and what is younger than `min.compaction.lag.ms`. One pass goes twice
over it (`cleaning`). First it reads the dirty part, and notes the offset of each key's last record (`offset_map`). The
map has a fixed size; when it is full, the pass ends there and the next one goes on. Then it reads all segments from the
log's start to that offset and writes what stays into new ones, several small ones into one.

What stays of a batch is decided by `batches`, and which markers are still needed by `transactions`. Both follow Apache
Kafka's cleaner, so either broker can go on where the other has stopped:

- a record goes if the map knows a later one with its key, or if it has no key;
- records of aborted transactions go; a marker stays while there is a batch of its transaction;
- a tombstone, or a marker that is no longer needed, gets a time until which it stays: `delete.retention.ms` from the
  pass that sees it first. The batch's header holds that time (KIP-534);
- the last batch of each producer that the log knows stays, if need be without records, because it holds the sequence;
  and so does the batch at the end of the pass, because it holds the offset;
- offsets and timestamps stay as they are.

New segments replace old ones by Kafka's names (`swap`): `.cleaned` while one is written, `.swap` when it is whole. From
then on it replaces the old ones, whatever happens. The owner of the log switches over between two of its calls
(`compaction`); readers that hold the old files read on.
"""
