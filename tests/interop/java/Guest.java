import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A client that sends a record and reads it again, as often as it is asked to.
 * Each line of standard input: a topic, then key=value settings, separated by tabs.
 * It answers each with one line: VALUE and what it has read, or REFUSED and what the exception and its causes say.
 */
public class Guest {
    private static final Duration WAIT = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t");
            Properties settings = new Properties();
            for (int i = 1; i < fields.length; i++) {
                int equals = fields[i].indexOf('=');
                settings.put(fields[i].substring(0, equals), fields[i].substring(equals + 1));
            }
            String answer;
            try {
                answer = "VALUE " + roundTrip(fields[0], settings);
            } catch (Exception refusal) {
                answer = "REFUSED " + said(refusal);
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static String roundTrip(String topic, Properties settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, "hello".getBytes(StandardCharsets.UTF_8))).get();
        }
        Properties reads = new Properties();
        reads.putAll(settings);
        reads.put("group.id", topic);
        reads.put("auto.offset.reset", "earliest");
        reads.put("enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(reads, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT);
            return new String(records.iterator().next().value(), StandardCharsets.UTF_8);
        }
    }

    private static String said(Throwable refusal) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = refusal; each != null; each = each.getCause()) {
            text.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append("; ");
        }
        return text.toString().replaceAll("\\s+", " ");
    }
}
