"""Who is at the other end: by a certificate (`tls`, `names`, `mapping`)."""
