import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group that says on standard output what it has and what it reads:
 *   HAS partition ...        whenever that changes
 *   READ partition offset    after it was committed
 *   POLLED                   after every poll
 * It leaves when a line, or the end, comes on standard input.
 * Arguments: bootstrap servers, topic, then key=value settings.
 */
public class Member {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        for (int i = 2; i < arguments.length; i++) {
            int equals = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, equals), arguments[i].substring(equals + 1));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            Set<TopicPartition> had = Set.of();
            while (System.in.available() == 0) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                if (!records.isEmpty())
                    commit(consumer);
                for (ConsumerRecord<byte[], byte[]> record : records)
                    System.out.println("READ " + record.partition() + " " + record.offset());
                if (!consumer.assignment().equals(had)) {
                    had = Set.copyOf(consumer.assignment());
                    StringBuilder line = new StringBuilder("HAS");
                    had.forEach(each -> line.append(' ').append(each.partition()));
                    System.out.println(line);
                }
                System.out.println("POLLED");
                System.out.flush();
            }
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            consumer.commitSync();
        } catch (RebalanceInProgressException soon) {
            // the next commit has these offsets too
        }
    }
}
