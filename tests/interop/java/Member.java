import java.time.Duration;
import java.util.*;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group that says on standard output what it does and is told, as members of Python do
 * (tests/interop/spoken.py):
 *   READY                    before it joins; it waits for a line
 *   NOTE {...}               an event of its history (ottla.testing.history.lines)
 *   HAS topic:partition ...  whenever that changes
 *   POLLED                   after every poll
 * It leaves when one more line, or the end, comes on standard input.
 * Arguments: its name, bootstrap servers, a topic (or a pattern that begins with ^), then key=value settings.
 */
public class Member implements ConsumerRebalanceListener {
    private final String who;
    private final Properties settings = new Properties();
    private final Map<TopicPartition, Long> next = new TreeMap<>(
        Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
    private final String group;
    private KafkaConsumer<byte[], byte[]> consumer;
    private int commits = 0;
    private volatile boolean leaves = false;

    public static void main(String[] arguments) throws Exception {
        new Member(arguments).run(arguments[2]);
    }

    private Member(String[] arguments) {
        who = arguments[0];
        settings.put("bootstrap.servers", arguments[1]);
        for (int i = 3; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        group = settings.getProperty("group.id");
    }

    private void run(String wanted) throws Exception {
        say("READY");
        awaitLine();
        Thread waits = new Thread(() -> {
            awaitLine();
            leaves = true;
        });
        waits.setDaemon(true);
        waits.start();
        try (KafkaConsumer<byte[], byte[]> opened =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer = opened;
            subscribe(wanted);
            Set<TopicPartition> had = Set.of();
            while (!leaves) {
                read(consumer.poll(Duration.ofMillis(100)));
                if (!consumer.assignment().equals(had)) {
                    had = Set.copyOf(consumer.assignment());
                    say(had.stream().map(tp -> " " + tp.topic() + ":" + tp.partition()).collect(Collectors.joining("", "HAS", "")));
                }
                say("POLLED");
            }
        }
    }

    private void subscribe(String wanted) {
        if (!wanted.startsWith("^"))
            consumer.subscribe(List.of(wanted), this);
        else if ("consumer".equals(settings.getProperty("group.protocol")))
            consumer.subscribe(new SubscriptionPattern(wanted), this);
        else
            consumer.subscribe(Pattern.compile(wanted), this);
    }

    private void read(ConsumerRecords<byte[], byte[]> records) {
        if (records.isEmpty())
            return;
        StringJoiner reads = new StringJoiner(", ", "[", "]");
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String uid = record.topic() + ":" + new String(record.value());
            reads.add("[\"%s\", %d, %d, \"%s\"]".formatted(record.topic(), record.partition(), record.offset(), uid));
            next.put(new TopicPartition(record.topic(), record.partition()), record.offset() + 1);
        }
        note("Polled", "\"group\": \"%s\", \"records\": %s, \"read_committed\": false".formatted(group, reads));
        commit();
    }

    private void commit() {
        String call = who + " commit " + ++commits;
        String offsets = next.entrySet().stream()
            .map(each -> "[\"%s\", %d, %d]".formatted(each.getKey().topic(), each.getKey().partition(), each.getValue()))
            .collect(Collectors.joining(", ", "[", "]"));
        ConsumerGroupMetadata member = consumer.groupMetadata();
        String outcome = "committed";
        note("Called", "\"call\": \"%s\"".formatted(call));
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException | CommitFailedException | RetriableException passing) {
            outcome = "unknown"; // the next commit, or the next owner's, has these offsets too
        } catch (KafkaException failed) {
            throw new KafkaException("a commit failed", failed);
        }
        note("Returned", "\"call\": \"%s\"".formatted(call));
        String by = "\"member_id\": \"%s\", \"generation\": %d".formatted(member.memberId(), member.generationId());
        note("Committed", "\"group\": \"%s\", \"offsets\": %s, %s, \"outcome\": \"%s\", \"call\": \"%s\""
            .formatted(group, offsets, by, outcome, call));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        String instance = settings.getProperty("group.instance.id");
        String more = instance == null ? "" : ", \"instance_id\": \"" + instance + "\"";
        note("Assigned", of(partitions, consumer.groupMetadata().generationId()) + more);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(next::remove);
        note("Revoked", of(partitions, -1));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(next::remove);
        note("Revoked", of(partitions, -1) + ", \"lost\": true");
    }

    private String of(Collection<TopicPartition> partitions, int generation) {
        String each = partitions.stream()
            .map(tp -> "[\"%s\", %d]".formatted(tp.topic(), tp.partition()))
            .collect(Collectors.joining(", ", "[", "]"));
        return "\"group\": \"%s\", \"generation\": %d, \"partitions\": %s".formatted(group, generation, each);
    }

    /** The times are those of the machine's monotonic clock, as Python's. */
    private void note(String fact, String fields) {
        String form = "NOTE {\"at_s\": %.9f, \"who\": \"%s\", \"fact\": \"%s\", %s}";
        say(String.format(Locale.ROOT, form, System.nanoTime() / 1e9, who, fact, fields));
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void awaitLine() {
        try {
            for (int read = System.in.read(); read != '\n' && read != -1; read = System.in.read()) { }
        } catch (java.io.IOException gone) {
            // as the end
        }
    }
}
