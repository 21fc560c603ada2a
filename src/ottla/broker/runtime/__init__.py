"""The shell around the pure rooms: partitions and who waits for them, coordinator shards, timers."""
