"""The cluster's metadata: topics, ids, configurations, producer-id blocks; durable in `__cluster_metadata-0`."""
