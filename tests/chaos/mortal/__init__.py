"""A broker that dies (SIGKILL) at a system call that changes its data directory: before it, in the middle, after it."""
