"""Figures of Ottla beside its peers on the same machine, alternately; only ratios taken in one run mean anything.

    __main__         `make bench`: starts the brokers, runs the figures, prints the ratios, writes RESULTS.md
    worker           one figure in a process of its own
    broker_figures   a broker seen from outside, with librdkafka; `broker_cpu` counts what its process takes
    load_figures     what load costs a broker: CPU, many clients, waits under half load (`raw_reader`)
    group_figures    groups of eight, of a thousand, and ten thousand of them
    transaction_figures  1, 10 and 100 transactional producers, and a restart with many transactional ids
    group_members    members as raw requests; `wire` is their connection, `canary` another client meanwhile
    log_figures      the cleaner; `partition_figures`: 10,000 partitions and 5,000 topics, with starts
    client_figures   Python clients in every shape of records, on either broker; `clients/` has their loops
    client_memory    what a consumer keeps in memory while 1 GB waits
    spark_figures    Spark's source and sink, ours and its own connector's
    start_figures    how long a person waits for a command, the import of the client, a broker
    peers            the brokers as processes
    results          the ratios, as a table and as RESULTS.md

No figure is asserted in a test. Parts that only calculate are tested in `tests/bench`.
"""
