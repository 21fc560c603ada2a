"""Quotas, pure: what was used (`rates`), whose limit counts (`table`). What can be a quota: `metadata.quota_rules`."""
