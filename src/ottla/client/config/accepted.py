"""Keys of Apache Kafka 4.3's Java clients that Ottla's clients do not use, as tables (`ottla.base.config_table`).

So a Java client's properties file works as it is, or says what in it cannot be kept.
"""

from typing import Final

from ottla.base.config_table import read_table

_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_LOGINS: Final = "|".join(f"{_OAUTH}.{each}OAuthBearerLoginCallbackHandler" for each in ("", "secured."))
_RETRIEVERS: Final = "|".join(f"{_OAUTH}.{each}JwtRetriever" for each in ("Default", "ClientCredentials", "File"))
_VALIDATORS: Final = "|".join(f"{_OAUTH}.{each}JwtValidator" for each in ("Default", "Client"))

_COMMON: Final = f"""\
[the clients keep no metrics yet]
enable.metrics.push boolean true
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int 2 1..
metrics.recording.level string INFO INFO|DEBUG|TRACE
metrics.sample.window.ms long 30000 0..
[the system's own sizes are used, which grow with the connection]
receive.buffer.bytes int 65536 -1..
send.buffer.bytes int 131072 -1..
[a connect is given up after socket.connection.setup.timeout.ms each time]
socket.connection.setup.timeout.max.ms long 30000 0..
[Java's own: TLS is Python's]
security.providers string -
ssl.keymanager.algorithm string SunX509 some
ssl.protocol string TLSv1.3
ssl.provider string -
ssl.secure.random.implementation string -
ssl.trustmanager.algorithm string PKIX some
[only Kerberos uses it]
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
[a token is asked for when a connection needs one]
sasl.login.refresh.buffer.seconds short 300 0..3600
sasl.login.refresh.min.period.seconds short 60 0..900
sasl.login.refresh.window.factor double 0.8 0.5..1.0
sasl.login.refresh.window.jitter double 0.05 0.0..0.25
[!Java classes cannot be called; wrap the client's methods instead]
interceptor.classes list ""
[!Java classes cannot be called; put the values themselves into the configuration]
config.providers list ""
[!Java classes cannot be called; oauth_cb takes a function that gives a token]
sasl.client.callback.handler.class string -
sasl.login.class string -
[Kafka's own do what happens here anyway; other Java classes cannot be called: oauth_cb takes a function]
sasl.login.callback.handler.class string - {_LOGINS}
sasl.oauthbearer.jwt.retriever.class string {_OAUTH}.DefaultJwtRetriever {_RETRIEVERS}
sasl.oauthbearer.jwt.validator.class string {_OAUTH}.DefaultJwtValidator {_VALIDATORS}
[!Java classes cannot be called; ssl.* with PEM files says what TLS needs]
ssl.engine.factory.class string -
[!ssl.enabled.protocols chooses the versions, and Python's ssl the ciphers of each]
ssl.cipher.suites list ""
[!Kerberos (GSSAPI) is not there; SCRAM and OAUTHBEARER are]
sasl.kerberos.service.name string -
[!tokens come by client credentials (sasl.oauthbearer.token.endpoint.url), or from the function oauth_cb]
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
[a broker uses it to check tokens]
sasl.oauthbearer.clock.skew.seconds int 30
sasl.oauthbearer.expected.audience list ""
sasl.oauthbearer.expected.issuer string -
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100
sasl.oauthbearer.jwks.endpoint.url string -
sasl.oauthbearer.scope.claim.name string scope
sasl.oauthbearer.sub.claim.name string sub
"""

_CONSUMER: Final = """\
[for share groups, which Ottla does not have]
share.acknowledgement.mode string implicit implicit|explicit
share.acquire.mode string BATCH_OPTIMIZED ~batch_optimized|record_limit
"""

_PRODUCER: Final = """\
[records without a key stay with a partition until its batch is full; where a broker is slow, batches wait]
partitioner.adaptive.partitioning.enable boolean true
partitioner.availability.timeout.ms long 0 0..
"""

_ADMIN: Final = """\
[!brokers are asked, and find their controllers; bootstrap.servers names brokers]
bootstrap.controllers list ""
"""

COMMON: Final = tuple(read_table(_COMMON))
CONSUMER: Final = tuple(read_table(_CONSUMER))
PRODUCER: Final = tuple(read_table(_PRODUCER))
ADMIN: Final = tuple(read_table(_ADMIN))
