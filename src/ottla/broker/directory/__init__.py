"""A data directory that no broker runs on: what is in it, whether it is sound, and mending it (`ottla storage`).

`overlay` lets the recovery of a start run without changing a file. `survey` runs it, and then has `log.examination`
read every byte that is left. `repair` runs the same recovery on the directory itself. `foreign` looks at a directory
that this broker cannot start on: Apache Kafka's, or one whose metadata log is damaged.
"""
