import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Runs Apache Kafka's assignors on cases from standard input, and prints what each member got.
 *
 * One line a fact, fields separated by tabs, "-" for none:
 *   P topic partition rack,rack     M member instance rack topic,topic     RUN assignor
 * RUN answers "member topic:partition ..." for each member, then "END", and forgets the case.
 */
public class Oracle {
    private static final Map<String, ConsumerPartitionAssignor> ASSIGNORS = Map.of(
        "range", new RangeAssignor(), "roundrobin", new RoundRobinAssignor());

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
                case "M" -> members.put(f[1], subscription(f[2], f[3], list(f[4])));
                default -> {
                    out.print(run(ASSIGNORS.get(f[1]), partitions, members));
                    partitions.clear();
                    members.clear();
                }
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

    private static Subscription subscription(String instance, String rack, List<String> topics) {
        Optional<String> rackId = rack.equals("-") ? Optional.empty() : Optional.of(rack.equals("\"\"") ? "" : rack);
        Subscription made = new Subscription(topics, null, List.of(), -1, rackId);
        made.setGroupInstanceId(instance.equals("-") ? Optional.empty() : Optional.of(instance));
        return made;
    }

    private static String run(
        ConsumerPartitionAssignor assignor, List<PartitionInfo> partitions, Map<String, Subscription> members
    ) {
        Cluster cluster = new Cluster("id", List.of(), partitions, Set.of(), Set.of());
        StringBuilder text = new StringBuilder();
        assignor.assign(cluster, new GroupSubscription(members)).groupAssignment().forEach((member, assignment) -> {
            text.append(member);
            for (TopicPartition each : assignment.partitions())
                text.append('\t').append(each.topic()).append(':').append(each.partition());
            text.append('\n');
        });
        return text.append("END\n").toString();
    }
}
