"""`ottla assign`: who would get which partition, and why."""
