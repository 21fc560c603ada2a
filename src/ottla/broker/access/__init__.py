"""Who may do what: ACLs as Apache Kafka's StandardAuthorizer has them. Pure.

`acls` holds the ACLs and finds those that matter for one question; `authorizer` answers it.
"""
