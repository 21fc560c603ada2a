"""The shell around the pure rooms: partitions and the fetches that wait for them, coordinator shards, timers."""
