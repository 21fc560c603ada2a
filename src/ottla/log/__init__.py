"""One partition's log (pure): Kafka's segments, indexes and snapshots, producer state, transactions, retention.

partition    PartitionLog: what a broker calls                 results     what it is asked and answers
validation   what a client's batch must be                     producers   idempotence and transactions (P3, T8)
segments     which segment holds an offset                     segment     one .log and its indexes
index        .index and .timeindex                             txn_index   .txnindex
snapshot     .snapshot                                         epochs      leader-epoch-checkpoint
recovery     opening a directory after any kind of end         history     batches that a snapshot does not hold
timestamps   ListOffsets by time                               retention   which segments are deleted
checkpoint   Kafka's small text files                          config      the settings
storage      the port to the files                             memory      the port's twin with crashes
"""
