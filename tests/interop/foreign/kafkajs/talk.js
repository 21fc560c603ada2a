// kafkajs against one broker: `node talk.js BROKER NAME COMMAND [ARGUMENT]` prints one line of JSON, or fails.
//
// Topics, groups and transactional ids begin with NAME. The environment says how to get in: OTTLA_CA (a PEM file),
// OTTLA_MECHANISM, OTTLA_USER, OTTLA_SECRET.
'use strict'

const fs = require('fs')
const readline = require('readline')
const kafkajs = require('kafkajs')

kafkajs.CompressionCodecs[kafkajs.CompressionTypes.Snappy] = require('kafkajs-snappy')

const [, , broker, name, command, argument] = process.argv
const { OTTLA_CA, OTTLA_MECHANISM, OTTLA_USER, OTTLA_SECRET } = process.env
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

function sasl() {
  if (!OTTLA_MECHANISM) return undefined
  const mechanism = OTTLA_MECHANISM.toLowerCase()
  if (mechanism === 'oauthbearer') return { mechanism, oauthBearerProvider: async () => ({ value: OTTLA_SECRET }) }
  return { mechanism, username: OTTLA_USER, password: OTTLA_SECRET }
}

const kafka = new kafkajs.Kafka({
  clientId: 'kafkajs',
  brokers: [broker],
  ssl: OTTLA_CA ? { ca: [fs.readFileSync(OTTLA_CA, 'utf8')] } : false,
  sasl: sasl(),
  logLevel: kafkajs.logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 60 },
})
const admin = kafka.admin()

// The name of Kafka's error, of the first one where there are several; '' if there is none.
function code(error) {
  if (!error) return ''
  const found = error.errors?.[0] ?? error.groups?.[0]?.error ?? error
  return found.type ?? error.type ?? `${error.name}: ${error.message}`
}

const failed = (promise) => promise.then(() => '', code)

async function topic(stem = '', numPartitions = 1) {
  await admin.createTopics({ topics: [{ topic: name + stem, numPartitions }] })
  return name + stem
}

// A promise with its two ends; its end by time says how far it came.
function expected(progress) {
  const it = {}
  it.promise = new Promise((resolve, reject) => Object.assign(it, { resolve, reject }))
  const timer = setTimeout(() => it.reject(new Error(`not in time: ${JSON.stringify(progress())}`)), 40000)
  it.promise.finally(() => clearTimeout(timer)).catch(() => {})
  return it
}

async function consumerOf(topicName, groupId, more = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 200, sessionTimeout: 10000, ...more })
  await consumer.connect()
  await consumer.subscribe({ topics: [topicName], fromBeginning: true })
  return consumer
}

let readers = 0

async function read(topicName, count, readUncommitted = false) {
  const consumer = await consumerOf(topicName, `${name}-reader-${readers++}`, { readUncommitted })
  const found = []
  const all = expected(() => found.length)
  consumer.on(consumer.events.CRASH, ({ payload }) => all.reject(payload.error))
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      found.push({ partition, ...message })
      if (found.length >= count) all.resolve()
    },
  })
  await all.promise
  await consumer.disconnect()
  return found
}

async function producerOf(settings = {}) {
  const producer = kafka.producer(settings)
  await producer.connect()
  return producer
}

const numbers = (count) => Array.from({ length: count }, (_, n) => ({ key: `${n}`, value: `${n}` }))
const values = (messages) => messages.map((each) => each.value.toString())

const commands = {
  async admin() {
    const made = await topic()
    const groupId = `${name}-group`
    const told = { again: await admin.createTopics({ topics: [{ topic: made }] }) }
    told.grown = await failed(admin.createPartitions({ topicPartitions: [{ topic: made, count: 2 }] }))
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: made }
    const configEntries = [{ name: 'cleanup.policy', value: 'compact,delete' }]
    told.set = await failed(admin.alterConfigs({ resources: [{ ...resource, configEntries }] }))
    const described = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['cleanup.policy'] }] })
    told.policy = described.resources[0].configEntries[0].configValue
    const producer = await producerOf()
    await producer.send({ topic: made, messages: numbers(9).map((each) => ({ ...each, partition: 0 })) })
    await producer.disconnect()
    await admin.fetchTopicMetadata({ topics: [made] })
    told.end = (await admin.fetchTopicOffsets(made)).find((each) => each.partition === 0).high
    await admin.setOffsets({ groupId, topic: made, partitions: [{ partition: 0, offset: '5', metadata: 'm' }] })
    const [fetched] = await admin.fetchOffsets({ groupId, topics: [made] })
    told.committed = fetched.partitions.find((each) => each.partition === 0).offset
    told.group = (await admin.describeGroups([groupId])).groups[0].state
    told['group deleted'] = await failed(admin.deleteGroups([groupId]))
    told.moving = (await admin.listPartitionReassignments({})).topics.length
    const partitionAssignment = [{ partition: 0, replicas: [99] }]
    told.moved = await failed(admin.alterPartitionReassignments({ topics: [{ topic: made, partitionAssignment }] }))
    told.deleted = await failed(admin.deleteTopics({ topics: [made] }))
    return told
  },

  async records() {
    const { None, GZIP, Snappy } = kafkajs.CompressionTypes
    const told = {}
    for (const [codec, compression] of Object.entries({ none: None, gzip: GZIP, snappy: Snappy })) {
      for (const [wanted, acks] of Object.entries({ 0: 0, 1: 1, all: -1 })) {
        const made = await topic(`-${codec}-${wanted}`, 2)
        const producer = await producerOf()
        const value = 'v'.repeat(500)
        const headers = { h: ['', 'x'], bytes: Buffer.from([0, 255]) }
        const messages = [
          { key: null, value: null, partition: 1 },
          { key: 'k', value, partition: 1, headers, timestamp: '1234567890123' },
        ]
        await producer.send({ topic: made, acks, compression, messages })
        await producer.disconnect()
        const [first, second] = await read(made, 2)
        told[`${codec} ${wanted}`] =
          first.key === null && first.value === null && second.partition === 1 && second.value.toString() === value &&
          second.timestamp === '1234567890123' && second.headers.h.length === 2 && second.headers.bytes[1] === 255
      }
    }
    return told
  },

  async transactions() {
    const made = await topic()
    const settings = { transactionalId: name, maxInFlightRequests: 1, idempotent: true }
    const begin = async (producer, value) => {
      const open = await producer.transaction()
      await open.send({ topic: made, messages: [{ value }] })
      return open
    }
    const older = await producerOf(settings)
    for (let n = 0; n < 4; n++) {
      const open = await begin(older, `${n}`)
      await (n % 2 ? open.abort() : open.commit())
    }
    const lost = await begin(older, 'lost')
    const newer = await producerOf(settings)
    const open = await begin(newer, 'new')
    const told = { fenced: await failed(lost.commit()) }
    await open.commit()
    await Promise.all([older.disconnect(), newer.disconnect()])
    told.committed = values(await read(made, 3))
    told.all = values(await read(made, 6, true))
    return told
  },

  async 'exactly-once'() {
    const source = await topic('-source', 4)
    const target = await topic('-target')
    const seed = await producerOf()
    await seed.send({ topic: source, messages: numbers(200) })
    await seed.disconnect()
    const producer = await producerOf({ transactionalId: name, maxInFlightRequests: 1, idempotent: true })
    const consumer = await consumerOf(source, name)
    let done = 0
    let round = 0
    const all = expected(() => done)
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset }) => {
        const open = await producer.transaction()
        await open.send({ topic: target, messages: batch.messages.map(({ value }) => ({ value })) })
        if (round++ === 0) { // the first is aborted, and read again
          await open.abort()
          throw new kafkajs.KafkaJSError('once more', { retriable: true })
        }
        const offset = `${Number(batch.lastOffset()) + 1}`
        const partitions = [{ partition: batch.partition, offset }]
        await open.sendOffsets({ consumerGroupId: name, topics: [{ topic: source, partitions }] })
        await open.commit()
        resolveOffset(batch.lastOffset())
        done += batch.messages.length
        if (done >= 200) all.resolve()
      },
    })
    await all.promise
    await consumer.disconnect()
    await producer.disconnect()
    const outputs = new Set(values(await read(target, 200))).size
    const [fetched] = await admin.fetchOffsets({ groupId: name, topics: [source] })
    return { outputs, offsets: fetched.partitions.reduce((sum, each) => sum + Number(each.offset), 0) }
  },

  async group() {
    const made = await topic('', 6)
    const seen = {}
    const has = []
    const members = []
    let check = () => {}
    for (let n = 0; n < 3; n++) {
      const member = await consumerOf(made, name)
      member.on(member.events.GROUP_JOIN, ({ payload }) => {
        has[n] = payload.memberAssignment[made]?.length ?? 0
        check()
      })
      await member.run({ eachMessage: async ({ message }) => {
        seen[message.value] = (seen[message.value] ?? 0) + 1
        check()
      } })
      members.push(member)
    }
    const reached = (condition) => {
      const wait = expected(() => ({ has, seen: Object.keys(seen).length }))
      check = () => condition() && wait.resolve()
      check()
      return wait.promise
    }
    await reached(() => has.every((size) => size === 2) && has.length === 3)
    const producer = await producerOf()
    await producer.send({ topic: made, messages: numbers(100) })
    await reached(() => Object.keys(seen).length === 100)
    await producer.disconnect()
    await members.pop().disconnect()
    has.pop()
    await reached(() => has.every((size) => size === 3))
    await Promise.all(members.map((member) => member.disconnect()))
    const [fetched] = await admin.fetchOffsets({ groupId: name, topics: [made] })
    const committed = fetched.partitions.reduce((sum, each) => sum + Number(each.offset), 0)
    const state = (await admin.describeGroups([name])).groups[0].state
    return { committed, most: Math.max(...Object.values(seen)), state }
  },

  // One of a group of others, on the topic of the group's name: it says what it HAS and GOT, and that it lives. It leaves
  // when a line comes on standard input. kafkajs has one strategy, under a name of its own; here it has the others' name.
  async member() {
    const { MemberMetadata } = kafkajs.AssignerProtocol
    const protocol = ({ topics }) => ({
      name: argument,
      metadata: MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
    })
    const named = (config) => ({ ...kafkajs.PartitionAssigners.roundRobin(config), name: argument, protocol })
    const member = await consumerOf(name, name, { partitionAssigners: [named] })
    let has = []
    member.on(member.events.GROUP_JOIN, ({ payload }) => { has = payload.memberAssignment[name] ?? [] })
    await member.run({
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, uncommittedOffsets, commitOffsetsIfNecessary }) => {
        batch.messages.forEach(({ offset }) => resolveOffset(offset))
        await commitOffsetsIfNecessary(uncommittedOffsets())
        batch.messages.forEach(({ offset }) => console.log(`GOT ${batch.partition}:${offset}`))
      },
    })
    setInterval(() => console.log('HAS', ...has), 50)
    await new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve))
    await member.disconnect()
    return {}
  },

  // Numbers with idempotence while lines come on standard input; each line is a number that it answers with when all up to
  // it are acknowledged. Behind the last line it says what is in the topic.
  async stream() {
    const made = await topic()
    const producer = await producerOf({ idempotent: true, maxInFlightRequests: 1, retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 80 } })
    let next = 0
    console.log('READY')
    for await (const line of readline.createInterface({ input: process.stdin })) {
      console.log('SENDING')
      while (next < Number(line)) {
        const end = Math.min(next + 50, Number(line))
        await producer.send({ topic: made, messages: numbers(end).slice(next) })
        next = end
      }
      console.log('ACKNOWLEDGED')
    }
    await producer.disconnect()
    const found = values(await read(made, next))
    const [{ high }] = await admin.fetchTopicOffsets(made)
    return { records: next, 'in order': found.every((value, n) => value === `${n}`), end: Number(high) }
  },

  async hello() {
    const producer = await producerOf({ allowAutoTopicCreation: true })
    await producer.send({ topic: name, messages: [{ value: 'hello' }] })
    await producer.disconnect()
    return { read: values(await read(name, 1)) }
  },
}

async function main() {
  await admin.connect()
  const told = await commands[command]()
  await admin.disconnect()
  console.log(JSON.stringify(told))
}

main().then(() => process.exit(0), (error) => {
  console.error(error)
  process.exit(1)
})
