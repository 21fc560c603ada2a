// franz-go against one broker: `franz BROKER NAME COMMAND [ARGUMENT]` prints one line of JSON, or fails.
//
// Topics, groups and transactional ids begin with NAME. The environment says how to get in: OTTLA_CA (a PEM file),
// OTTLA_MECHANISM, OTTLA_USER, OTTLA_SECRET.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type said = map[string]any

var (
	broker, name, argument string
	ctx, stop              = context.WithTimeout(context.Background(), 60*time.Second)
	commands               = map[string]func() said{
		"admin": admin, "records": records, "transactions": transactions, "exactly-once": exactlyOnce,
		"group": group, "stream": stream, "hello": hello, "member": member,
	}
	balancers = map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
)

func main() {
	defer stop()
	broker, name = os.Args[1], os.Args[2]
	if len(os.Args) > 4 {
		argument = os.Args[4]
	}
	line := must(json.Marshal(commands[os.Args[3]]()))
	fmt.Println(string(line))
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func must[A any](made A, err error) A {
	ok(err)
	return made
}

// code is the name of Kafka's error in an error, or what it says; "" if there is none.
func code(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func client(more ...kgo.Opt) *kgo.Client {
	return must(kgo.NewClient(append(entrance(), more...)...))
}

func entrance() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(broker), kgo.FetchMaxWait(200 * time.Millisecond), kgo.UnknownTopicRetries(20)}
	if file := os.Getenv("OTTLA_CA"); file != "" {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(must(os.ReadFile(file)))
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	user, secret := os.Getenv("OTTLA_USER"), os.Getenv("OTTLA_SECRET")
	switch os.Getenv("OTTLA_MECHANISM") {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: user, Pass: secret}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		opts = append(opts, kgo.SASL(oauth.Auth{Token: secret}.AsMechanism()))
	}
	return opts
}

func topic(stem string, partitions int32) string {
	made := kadm.NewClient(client())
	defer made.Close()
	ok(must(made.CreateTopic(ctx, partitions, 1, nil, name+stem)).Err)
	return name + stem
}

func read(topic string, count int, more ...kgo.Opt) []*kgo.Record {
	opts := []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	reader := client(append(opts, more...)...)
	defer reader.Close()
	var found []*kgo.Record
	for len(found) < count {
		fetched := reader.PollFetches(ctx)
		fetched.EachError(func(_ string, _ int32, err error) { panic(fmt.Errorf("%d of %d: %w", len(found), count, err)) })
		found = append(found, fetched.Records()...)
	}
	return found
}

func values(found []*kgo.Record) []string {
	told := []string{}
	for _, each := range found {
		told = append(told, string(each.Value))
	}
	return told
}

func numbers(count int) []*kgo.Record {
	var made []*kgo.Record
	for n := 0; n < count; n++ {
		made = append(made, &kgo.Record{Key: []byte(strconv.Itoa(n)), Value: []byte(strconv.Itoa(n))})
	}
	return made
}

func admin() said {
	adm := kadm.NewClient(client())
	defer adm.Close()
	made, group := topic("", 1), name+"-group"
	parts := kadm.TopicsSet{made: {0: {}}}
	told := said{}
	_, again := adm.CreateTopic(ctx, 1, 1, nil, made)
	told["again"] = code(again)
	told["grown"] = code(must(adm.CreatePartitions(ctx, 1, made))[made].Err)
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact,delete")}}
	told["set"] = code(must(adm.AlterTopicConfigs(ctx, set, made))[0].Err)
	for _, each := range must(adm.DescribeTopicConfigs(ctx, made))[0].Configs {
		if each.Key == "cleanup.policy" {
			told["policy"] = *each.Value
		}
	}
	producer := client(kgo.DefaultProduceTopic(made), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ok(producer.ProduceSync(ctx, numbers(9)...).FirstErr())
	producer.Close()
	told["deleted before"] = must(adm.DeleteRecords(ctx, must(adm.ListOffsetsAfterMilli(ctx, 0, made)).Offsets()))[made][0].LowWatermark
	told["end"] = must(adm.ListEndOffsets(ctx, made))[made][0].Offset
	told["newest"] = must(adm.ListMaxTimestampOffsets(ctx, made))[made][0].Offset >= 0
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: made, Partition: 0, At: 5, LeaderEpoch: 0, Metadata: "m"})
	ok(must(adm.CommitOffsets(ctx, group, offsets)).Error())
	found, _ := must(adm.FetchOffsets(ctx, group)).Lookup(made, 0)
	told["committed"] = []any{found.At, found.LeaderEpoch, found.Metadata}
	told["group"] = must(adm.DescribeGroups(ctx, group))[group].State
	told["missing group"] = code(must(adm.DescribeGroups(ctx, group+"-none"))[group+"-none"].Err)
	told["forgotten"] = code(must(adm.DeleteOffsets(ctx, group, parts))[made][0])
	told["group deleted"] = code(must(adm.DeleteGroups(ctx, group))[group].Err)
	told["elected"] = code(must(adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, parts))[made][0].Err)
	told["moving"] = len(must(adm.ListPartitionReassignments(ctx, parts)))
	moves := kadm.AlterPartitionAssignmentsReq{}
	moves.Assign(made, 0, []int32{99})
	told["moved"] = code(must(adm.AlterPartitionAssignments(ctx, moves))[made][0].Err)
	told["resource"] = false
	for _, each := range must(adm.ListConfigResources(ctx)).Resources {
		told["resource"] = told["resource"] == true || each.Name == made
	}
	told["directories"] = len(must(adm.DescribeAllLogDirs(ctx, parts)))
	told["deleted"] = code(must(adm.DeleteTopics(ctx, made))[made].Err)
	return told
}

func records() said {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	told := said{}
	for codec, compression := range codecs {
		for wanted, ack := range acks {
			made := topic("-"+codec+"-"+wanted, 2)
			producer := client(kgo.RequiredAcks(ack), kgo.ProducerBatchCompression(compression),
				kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite())
			headers := []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte("x")}}
			ok(producer.ProduceSync(ctx,
				&kgo.Record{Topic: made, Partition: 1},
				&kgo.Record{Topic: made, Partition: 1, Key: []byte("k"), Value: []byte(strings.Repeat("v", 500)),
					Headers: headers, Timestamp: time.UnixMilli(1234567890123)},
			).FirstErr())
			producer.Close()
			found := read(made, 2)
			told[codec+" "+wanted] = found[0].Value == nil && found[0].Key == nil && found[1].Partition == 1 &&
				string(found[1].Value) == strings.Repeat("v", 500) && found[1].Timestamp.UnixMilli() == 1234567890123 &&
				len(found[1].Headers) == 2 && found[1].Headers[0].Value == nil
		}
	}
	return told
}

func transactions() said {
	made, told := topic("", 1), said{}
	producer := func() *kgo.Client { return client(kgo.DefaultProduceTopic(made), kgo.TransactionalID(name)) }
	send := func(by *kgo.Client, value string) {
		ok(by.BeginTransaction())
		ok(by.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr())
	}
	older := producer()
	defer older.Close()
	for n := 0; n < 4; n++ {
		send(older, strconv.Itoa(n))
		ok(older.EndTransaction(ctx, kgo.TransactionEndTry(n%2 == 0)))
	}
	send(older, "lost")
	newer := producer()
	defer newer.Close()
	send(newer, "new")
	told["fenced"] = code(older.EndTransaction(ctx, kgo.TryCommit))
	ok(newer.EndTransaction(ctx, kgo.TryCommit))
	told["committed"] = values(read(made, 3, kgo.FetchIsolationLevel(kgo.ReadCommitted())))
	told["all"] = values(read(made, 6))
	return told
}

// withProtocol makes members of a consumer group (KIP-848) if that is the argument.
func withProtocol() []kgo.Opt {
	if argument == "consumer" {
		return []kgo.Opt{kgo.WithContext(context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true))}
	}
	return []kgo.Opt{kgo.Balancers(balancers[argument])}
}

func exactlyOnce() said {
	source, target := topic("-source", 4), topic("-target", 1)
	seed := client(kgo.DefaultProduceTopic(source))
	ok(seed.ProduceSync(ctx, numbers(200)...).FirstErr())
	seed.Close()
	opts := append(append(entrance(), withProtocol()...), kgo.ConsumerGroup(name), kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.TransactionalID(name), kgo.DefaultProduceTopic(target),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())
	session := must(kgo.NewGroupTransactSession(opts...))
	for round, done := 0, 0; done < 200; {
		fetched := session.PollRecords(ctx, 30)
		ok(ctx.Err())
		if fetched.NumRecords() == 0 {
			continue
		}
		ok(session.Begin())
		for _, each := range fetched.Records() {
			session.Produce(ctx, &kgo.Record{Value: each.Value}, nil)
		}
		ok(session.Client().Flush(ctx))
		round++
		if must(session.End(ctx, kgo.TransactionEndTry(round != 1))) { // the first is aborted, and read again
			done += fetched.NumRecords()
		}
	}
	session.Close()
	once := map[string]bool{}
	for _, each := range values(read(target, 200, kgo.FetchIsolationLevel(kgo.ReadCommitted()))) {
		once[each] = true
	}
	adm, total := kadm.NewClient(client()), int64(0)
	defer adm.Close()
	must(adm.FetchOffsets(ctx, name)).Each(func(each kadm.OffsetResponse) { total += each.At })
	return said{"outputs": len(once), "offsets": total}
}

// crowd is what several members of one group have and have read; `changed` is told of each change.
type crowd struct {
	sync.Mutex
	changed *sync.Cond
	has     map[*kgo.Client]map[int32]bool
	seen    map[string]int
}

func newCrowd() *crowd {
	it := &crowd{has: map[*kgo.Client]map[int32]bool{}, seen: map[string]int{}}
	it.changed = sync.NewCond(it)
	context.AfterFunc(ctx, it.changed.Broadcast)
	return it
}

// joins starts a member. What it was given is committed before it gives partitions up, and then told to `read`.
func (it *crowd) joins(made string, read func(*kgo.Record)) *kgo.Client {
	change := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, by *kgo.Client, partitions map[string][]int32) {
			it.Lock()
			defer it.Unlock()
			if it.has[by] == nil {
				it.has[by] = map[int32]bool{}
			}
			for _, each := range partitions[made] {
				delete(it.has[by], each)
				if has {
					it.has[by][each] = true
				}
			}
			it.changed.Broadcast()
		}
	}
	opts := append(withProtocol(), kgo.ConsumerGroup(name), kgo.ConsumeTopics(made), kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	member := client(opts...)
	go func() {
		for {
			fetched := member.PollFetches(ctx)
			if fetched.IsClientClosed() || ctx.Err() != nil {
				return
			}
			if member.CommitUncommittedOffsets(ctx) == nil {
				it.Lock()
				fetched.EachRecord(read)
				it.changed.Broadcast()
				it.Unlock()
			}
			member.AllowRebalance()
		}
	}()
	return member
}

// until waits for a condition, which is looked at under the lock.
func (it *crowd) until(condition func() bool) {
	it.Lock()
	defer it.Unlock()
	for !condition() {
		ok(ctx.Err())
		it.changed.Wait()
	}
}

// each says that all these members have so many partitions.
func (it *crowd) each(size int, members ...*kgo.Client) func() bool {
	return func() bool {
		for _, member := range members {
			if len(it.has[member]) != size {
				return false
			}
		}
		return true
	}
}

func group() said {
	made, all := topic("", 6), newCrowd()
	count := func(each *kgo.Record) { all.seen[string(each.Value)]++ }
	first, second, third := all.joins(made, count), all.joins(made, count), all.joins(made, count)
	all.until(all.each(2, first, second, third))
	producer := client(kgo.DefaultProduceTopic(made))
	defer producer.Close()
	ok(producer.ProduceSync(ctx, numbers(100)...).FirstErr())
	all.until(func() bool { return len(all.seen) == 100 })
	third.CloseAllowingRebalance()
	all.until(all.each(3, first, second))
	first.CloseAllowingRebalance()
	second.CloseAllowingRebalance()
	adm, committed, most := kadm.NewClient(client()), int64(0), 0
	defer adm.Close()
	must(adm.FetchOffsets(ctx, name)).Each(func(each kadm.OffsetResponse) { committed += each.At })
	for _, times := range all.seen {
		most = max(most, times)
	}
	return said{"committed": committed, "most": most, "state": must(adm.ListGroups(ctx))[name].State}
}

// member is one of a group of others, on the topic of the group's name: it says what it HAS and GOT, and that it lives.
// It leaves when a line comes on standard input.
func member() said {
	all, line := newCrowd(), make(chan string)
	it := all.joins(name, func(each *kgo.Record) { fmt.Printf("GOT %d:%d\n", each.Partition, each.Offset) })
	go func() {
		said, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		line <- said
	}()
	for alive := time.Tick(50 * time.Millisecond); ; {
		select {
		case <-line:
			it.CloseAllowingRebalance()
			return said{}
		case <-alive:
			all.Lock()
			fmt.Println("HAS", strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(all.has[it]))), "[]"))
			all.Unlock()
		}
	}
}

// stream sends numbers with idempotence while lines come on standard input; each line is a number that it answers with
// when all up to it are acknowledged. Behind the last line it says what is in the topic.
func stream() said {
	made, next := topic("", 1), 0
	producer := client(kgo.DefaultProduceTopic(made), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RecordDeliveryTimeout(50*time.Second))
	fmt.Println("READY")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		end := must(strconv.Atoi(lines.Text()))
		fmt.Println("SENDING")
		for ; next < end; next++ {
			producer.Produce(ctx, kgo.StringRecord(strconv.Itoa(next)), func(_ *kgo.Record, err error) { ok(err) })
		}
		ok(producer.Flush(ctx))
		fmt.Println("ACKNOWLEDGED")
	}
	producer.Close()
	told := said{"records": next, "in order": true}
	found := values(read(made, next))
	for n, value := range found {
		told["in order"] = told["in order"] == true && value == strconv.Itoa(n)
	}
	adm := kadm.NewClient(client())
	defer adm.Close()
	told["end"] = must(adm.ListEndOffsets(ctx, made))[made][0].Offset
	return told
}

func hello() said {
	sender := client(kgo.AllowAutoTopicCreation())
	defer sender.Close()
	ok(sender.ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("hello")}).FirstErr())
	return said{"read": values(read(name, 1, kgo.ConsumerGroup(name)))}
}
