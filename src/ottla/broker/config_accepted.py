"""Kafka 4.3's broker keys that Ottla does not use, as one table (`ottla.base.config_table`)."""

from typing import Final

from ottla.base.config_table import read_table

_TABLE: Final = """\
[!TLS is Python's ssl, which has no such choice]
security.providers string -
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.endpoint.identification.algorithm string https
ssl.engine.factory.class class -
ssl.keymanager.algorithm string SunX509
ssl.protocol string TLSv1.3
ssl.provider string -
ssl.secure.random.implementation string -
ssl.trustmanager.algorithm string PKIX

[!SASL has PLAIN, SCRAM and OAUTHBEARER here: no Kerberos, no delegation tokens, no Java classes; users of PLAIN are in listener.name.<name>.plain.sasl.jaas.config]
delegation.token.secret.key password -
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
sasl.client.callback.handler.class class -
sasl.jaas.config password -
sasl.kerberos.kinit.cmd string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long 60000
sasl.kerberos.principal.to.local.rules list DEFAULT
sasl.kerberos.service.name string -
sasl.kerberos.ticket.renew.jitter double 0.05
sasl.kerberos.ticket.renew.window.factor double 0.8
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds short 300
sasl.login.refresh.min.period.seconds short 60
sasl.login.refresh.window.factor double 0.8
sasl.login.refresh.window.jitter double 0.05
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.oauthbearer.assertion.algorithm string RS256 ~ES256|RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.client.credentials.client.id string -
sasl.oauthbearer.client.credentials.client.secret password -
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string -
sasl.oauthbearer.token.endpoint.url string -

[!Java classes cannot be run]
alter.config.policy.class.name class -
client.quota.callback.class class -
config.providers list ""
create.topic.policy.class.name class -

[!there is one data directory, and it is in use]
cordoned.log.dirs list ""

[!there is no tiered storage]
remote.log.storage.system.enable boolean false

[Tunes tiered storage, which is not there.]
follower.fetch.last.tiered.offset.enable boolean false
log.local.retention.bytes long -2 -2..
log.local.retention.ms long -2 -2..
remote.fetch.max.wait.ms int 500 1..
remote.list.offsets.request.timeout.ms long 30000 1..
remote.log.index.file.cache.total.size.bytes long 1073741824 1..
remote.log.index.file.cache.ttl.ms long 900000 -1.. internal
remote.log.manager.copier.thread.pool.size int 10 1..
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1..
remote.log.manager.copy.quota.window.num int 11 1..
remote.log.manager.copy.quota.window.size.seconds int 1 1..
remote.log.manager.expiration.thread.pool.size int 10 1..
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num int 11 1..
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
remote.log.manager.follower.thread.pool.size int 2 1..
remote.log.manager.task.interval.ms long 30000 1..
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. internal
remote.log.manager.task.retry.backoff.ms long 500 1.. internal
remote.log.manager.task.retry.jitter double 0.2 0..0.5 internal
remote.log.manager.thread.pool.size int 2 1..
remote.log.metadata.custom.metadata.max.bytes int 128 0..
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager some
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config. some
remote.log.metadata.manager.listener.name string - some
remote.log.reader.max.pending.tasks int 100 1..
remote.log.reader.threads int 10 1..
remote.log.storage.manager.class.name string - some
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config. some

[Tunes delegation tokens, which are not there.]
delegation.token.expiry.check.interval.ms long 3600000 1..
delegation.token.expiry.time.ms long 86400000 1..
delegation.token.max.lifetime.ms long 604800000 1..
early.start.listeners list -

[Threads and queues; one event loop does the work.]
background.threads int 10 1..
delete.records.purgatory.purge.interval.requests int 1
fetch.purgatory.purge.interval.requests int 1000
group.coordinator.background.threads int 2 1..
group.coordinator.threads int 4 1..
log.cleaner.threads int 1 0..
num.io.threads int 8 1..
num.network.threads int 3 1..
num.replica.alter.log.dirs.threads int -
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500 1..
share.coordinator.threads int 1 1..
share.fetch.purgatory.purge.interval.requests int 1000
unstable.feature.versions.enable boolean false internal

[Metrics; none are kept yet.]
kafka.metrics.polling.interval.secs int 10 1..
kafka.metrics.reporters list ""
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int 2 1..
metrics.recording.level string INFO
metrics.sample.window.ms long 30000 1..
telemetry.max.bytes int 1048576 1..

[Tunes quotas of replication; there are no replicas.]
alter.log.dirs.replication.quota.window.num int 11 1..
alter.log.dirs.replication.quota.window.size.seconds int 1 1..
replication.quota.window.num int 11 1..
replication.quota.window.size.seconds int 1 1..

[Share and streams groups are not there yet.]
group.share.assignment.interval.ms int 1000 0..
group.share.assignors list simple
group.share.delivery.count.limit int 5 2..10
group.share.heartbeat.interval.ms int 5000 1..
group.share.initialize.retry.interval.ms int 30000 1.. internal
group.share.max.assignment.interval.ms int 15000 0..
group.share.max.delivery.count.limit int 10 5..25
group.share.max.heartbeat.interval.ms int 15000 1..
group.share.max.partition.max.record.locks int 4000 2000..10000
group.share.max.record.lock.duration.ms int 60000 30000..3600000
group.share.max.session.timeout.ms int 60000 1..
group.share.max.share.sessions int 2000 1..
group.share.max.size int 200 1..1000
group.share.min.assignment.interval.ms int 0 0..
group.share.min.delivery.count.limit int 2 2..5
group.share.min.heartbeat.interval.ms int 5000 1..
group.share.min.partition.max.record.locks int 100 100..2000
group.share.min.record.lock.duration.ms int 15000 1000..30000
group.share.min.session.timeout.ms int 45000 1..
group.share.partition.max.record.locks int 2000 100..10000
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister internal
group.share.record.lock.duration.ms int 30000 1000..3600000
group.share.session.timeout.ms int 45000 1..
group.streams.assignment.interval.ms int 1000 0..
group.streams.heartbeat.interval.ms int 5000 1..
group.streams.initial.rebalance.delay.ms int 3000 0..
group.streams.max.assignment.interval.ms int 15000 0..
group.streams.max.heartbeat.interval.ms int 15000 1..
group.streams.max.session.timeout.ms int 60000 1..
group.streams.max.size int 2147483647 1..
group.streams.max.standby.replicas int 2 0..
group.streams.min.assignment.interval.ms int 0 0..
group.streams.min.heartbeat.interval.ms int 5000 1..
group.streams.min.session.timeout.ms int 45000 1..
group.streams.num.standby.replicas int 0 0..
group.streams.session.timeout.ms int 45000 1..
share.coordinator.append.linger.ms int -1 -1..
share.coordinator.cached.buffer.max.bytes int 1048588 524288..
share.coordinator.cold.partition.snapshot.interval.ms int 300000 1.. internal
share.coordinator.load.buffer.size int 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500
share.coordinator.state.topic.compression.codec int 0 0..4
share.coordinator.state.topic.min.isr short 2 1..
share.coordinator.state.topic.num.partitions int 50 1..
share.coordinator.state.topic.prune.interval.ms int 300000 1.. internal
share.coordinator.state.topic.replication.factor short 3 1..
share.coordinator.state.topic.segment.bytes int 104857600 1..
share.coordinator.write.timeout.ms int 5000 1..

[The page cache and the system's own buffers do this.]
group.coordinator.append.linger.ms int -1 -1..
group.coordinator.cached.buffer.max.bytes int 1048588 524288..
log.flush.offset.checkpoint.interval.ms int 60000 0..
log.flush.start.offset.checkpoint.interval.ms int 60000 0..
log.initial.task.delay.ms long 30000 0.. internal
log.preallocate boolean false
offsets.load.buffer.size int 5242880 1..
offsets.topic.compression.codec int 0 0..4
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
transaction.state.log.load.buffer.size int 5242880 1..

[Files go at once; a reader keeps an open file, not a name.]
log.segment.delete.delay.ms long 60000 0..

[Segments roll without jitter.]
log.roll.jitter.hours int 0 0..
log.roll.jitter.ms long - 0..

[The LZ4 library has one level.]
compression.lz4.level int 9 1..17

[A transaction is aborted at the millisecond.]
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1..

[One node is the cluster: no quorum, no other replicas.]
add.partitions.to.txn.retry.backoff.max.ms int 100 0..
add.partitions.to.txn.retry.backoff.ms int 20 1..
auto.leader.rebalance.enable boolean true
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
controlled.shutdown.enable boolean true
controller.performance.always.log.threshold.ms long 2000 0.. internal
controller.performance.sample.period.ms long 60000 100.. internal
controller.quorum.append.linger.ms int 25 0..
controller.quorum.auto.join.enable boolean false
controller.quorum.election.backoff.max.ms int 1000 0..
controller.quorum.election.timeout.ms int 1000 0..
controller.quorum.fetch.max.bytes int 1048576 1..
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
controller.quorum.fetch.timeout.ms int 2000 0..
controller.quorum.request.timeout.ms int 2000 0..
controller.quorum.retry.backoff.ms int 20 0..
controller.socket.timeout.ms int 30000
initial.broker.registration.timeout.ms int 60000
inter.broker.listener.name string -
internal.metadata.delete.delay.millis long 60000 internal
internal.metadata.log.segment.bytes int - internal
internal.metadata.max.batch.size.in.bytes int 8388608 internal
leader.imbalance.check.interval.seconds long 300 1..
log.dir.failure.timeout.ms long 30000 1..
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520 1..
metadata.log.max.snapshot.interval.ms long 3600000 0..
metadata.log.segment.bytes int 1073741824 8388608..
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500 0..
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
min.insync.replicas int 1 1..
num.replica.fetchers int 1 1..
offsets.commit.timeout.ms int 5000 1..
offsets.topic.replication.factor short 1 1..
replica.fetch.backoff.ms int 1000 0..
replica.fetch.max.bytes int 1048576 0..
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760 0..
replica.fetch.wait.max.ms int 500
replica.high.watermark.checkpoint.interval.ms long 5000
replica.lag.time.max.ms long 30000
replica.selector.class string -
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
request.timeout.ms int 30000
sasl.mechanism.inter.broker.protocol string GSSAPI
security.inter.broker.protocol string PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
server.max.startup.time.ms long 9223372036854775807 0.. internal
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
transaction.state.log.min.isr int 1 1..
transaction.state.log.replication.factor short 1 1..
unclean.leader.election.enable boolean false
unclean.leader.election.interval.ms long 300000 1.. internal
"""  # noqa: E501

ACCEPTED: Final = tuple(read_table(_TABLE))
