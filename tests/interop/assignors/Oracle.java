import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Apache Kafka's assignors on cases from standard input, and prints what each member got.
 *
 * One line a fact, fields separated by tabs, "-" for none:
 *   P topic partition rack,rack
 *   M member instance rack topic,topic owned generation user-data    (owned: topic:partition,…  user data: hexadecimal)
 *   RUN assignor
 *   TIME assignor times
 * RUN answers "member topic:partition ..." for each member, or "ERROR what", then "END", and forgets the case.
 * TIME assigns so often and answers the milliseconds of each time, separated by tabs, then "END".
 * Each case has a new assignor and a new HashMap of members, as a leader that has just joined would have.
 */
public class Oracle {
    private static final Map<String, Supplier<ConsumerPartitionAssignor>> ASSIGNORS = Map.of(
        "range", RangeAssignor::new, "roundrobin", RoundRobinAssignor::new,
        "sticky", StickyAssignor::new, "cooperative-sticky", CooperativeStickyAssignor::new);

    private static int nodes = 0;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, StandardCharsets.UTF_8);
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "P" -> partitions.add(partition(f[1], Integer.parseInt(f[2]), list(f[3])));
                case "M" -> members.put(f[1], subscription(f));
                case "TIME" -> out.print(time(f[1], Integer.parseInt(f[2]), partitions, members));
                default -> out.print(run(f[1], partitions, members));
            }
            if (!f[0].equals("P") && !f[0].equals("M")) {
                partitions = new ArrayList<>();
                members = new HashMap<>();
            }
        }
    }

    private static List<String> list(String field) {
        return field.equals("-") ? List.of() : List.of(field.split(","));
    }

    private static PartitionInfo partition(String topic, int number, List<String> racks) {
        Node[] replicas = racks.stream().map(rack -> new Node(nodes++, "host", 1, rack)).toArray(Node[]::new);
        return new PartitionInfo(topic, number, null, replicas, replicas);
    }

    private static Subscription subscription(String[] f) {
        Optional<String> rackId = f[3].equals("-") ? Optional.empty() : Optional.of(f[3].equals("\"\"") ? "" : f[3]);
        List<TopicPartition> owned = list(f[5]).stream().map(text -> {
            int colon = text.lastIndexOf(':');
            return new TopicPartition(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
        }).toList();
        ByteBuffer userData = f[7].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(f[7]));
        Subscription made = new Subscription(list(f[4]), userData, owned, Integer.parseInt(f[6]), rackId);
        made.setGroupInstanceId(f[2].equals("-") ? Optional.empty() : Optional.of(f[2]));
        return made;
    }

    private static Map<String, Assignment> assign(
        String name, List<PartitionInfo> partitions, Map<String, Subscription> members
    ) {
        Cluster cluster = new Cluster("id", List.of(), partitions, Set.of(), Set.of());
        return ASSIGNORS.get(name).get().assign(cluster, new GroupSubscription(members)).groupAssignment();
    }

    private static String run(String name, List<PartitionInfo> partitions, Map<String, Subscription> members) {
        StringBuilder text = new StringBuilder();
        try {
            assign(name, partitions, members).forEach((member, assignment) -> {
                text.append(member);
                for (TopicPartition each : assignment.partitions())
                    text.append('\t').append(each.topic()).append(':').append(each.partition());
                text.append('\n');
            });
        } catch (RuntimeException error) {
            text.setLength(0);
            text.append("ERROR\t").append(error.toString().replace('\n', ' ')).append('\n');
        }
        return text.append("END\n").toString();
    }

    private static String time(String name, int times, List<PartitionInfo> partitions, Map<String, Subscription> members) {
        Cluster cluster = new Cluster("id", List.of(), partitions, Set.of(), Set.of());
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < times; i++) {
            members.values().stream().map(Subscription::userData).filter(Objects::nonNull).forEach(ByteBuffer::rewind);
            ConsumerPartitionAssignor assignor = ASSIGNORS.get(name).get();
            long began = System.nanoTime();
            assignor.assign(cluster, new GroupSubscription(members));
            text.append(i == 0 ? "" : "\t").append((System.nanoTime() - began) / 1e6);
        }
        return text.append("\nEND\n").toString();
    }
}
