import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

/**
 * An instance of a Kafka Streams application with state of every kind. Of its topics:
 *   words                 values are words: each is counted (through a repartition topic) into `counts`, and by the
 *                         minute into `minutes`; `counts` joined with the table `names` is `named`
 *   orders, payments      those with the same key are joined into `paid`
 * Nothing is cached, so each change of a count is a record: 1, 2, 3, and none of them twice.
 * It says STATE and each new state, FAILED and why it ends. SIGTERM closes it.
 * Arguments: key=value settings.
 */
public class Tally {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        for (String each : arguments) {
            int equals = each.indexOf('=');
            settings.put(each.substring(0, equals), each.substring(equals + 1));
        }
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("statestore.cache.max.bytes", "0");
        StreamsBuilder topology = new StreamsBuilder();
        count(topology);
        join(topology);
        KafkaStreams streams = new KafkaStreams(topology.build(), settings);
        streams.setStateListener((now, before) -> say("STATE " + now));
        streams.setUncaughtExceptionHandler(failure -> {
            say("FAILED " + said(failure));
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30))));
        streams.start();
    }

    private static void count(StreamsBuilder topology) {
        KGroupedStream<String, String> words =
            topology.<String, String>stream("words").groupBy((key, word) -> word, Grouped.as("by-word"));
        KTable<String, Long> counts = words.count(Materialized.as("counted"));
        counts.toStream().mapValues(String::valueOf).to("counts");
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
            .count(Materialized.as("by-minute"))
            .toStream((window, n) -> window.key() + "@" + window.window().start())
            .mapValues(String::valueOf).to("minutes");
        KTable<String, String> names = topology.table("names");
        counts.join(names, (n, name) -> name + " " + n).toStream().to("named");
    }

    private static void join(StreamsBuilder topology) {
        Duration hour = Duration.ofHours(1);
        KStream<String, String> payments = topology.stream("payments");
        topology.<String, String>stream("orders")
            .join(payments, (order, payment) -> order + " " + payment, JoinWindows.ofTimeDifferenceAndGrace(hour, hour))
            .to("paid");
    }

    private static String said(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = failure; each != null; each = each.getCause()) {
            text.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append("; ");
        }
        return text.toString().replaceAll("\\s+", " ");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
