"""Who is at the other end: by a certificate (`tls`, `names`, `mapping`), or by SASL (`sasl`, `users`)."""
