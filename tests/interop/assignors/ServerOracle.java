import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Runs the group coordinator's assignors of Apache Kafka on cases from standard input, and prints what each member got.
 *
 * One line a fact, fields separated by tabs, "-" for none:
 *   T topic-id partitions
 *   M member instance topic-id,topic-id topic-id:partition,…    (the last: the target before, in the order of its record)
 *   RUN assignor subscription-type
 * RUN answers "member topic-id:partition ..." for each member, or "ERROR what", then "END", and forgets the case.
 */
public class ServerOracle {
    private static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
        Map.of("range", new RangeAssignor(), "uniform", new UniformAssignor());

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        java.io.PrintStream out = new java.io.PrintStream(System.out, false, StandardCharsets.UTF_8);
        Map<Uuid, Integer> topics = new HashMap<>();
        Map<String, String[]> members = new HashMap<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "T" -> topics.put(Uuid.fromString(f[1]), Integer.parseInt(f[2]));
                case "M" -> members.put(f[1], f);
                default -> {
                    run(ASSIGNORS.get(f[1]), SubscriptionType.valueOf(f[2]), topics, members, out);
                    topics = new HashMap<>();
                    members = new HashMap<>();
                }
            }
        }
        out.flush();
    }

    private static String[] list(String field) {
        return field.equals("-") ? new String[0] : field.split(",");
    }

    /** As the coordinator reads it from a record. */
    private static Map<Uuid, Set<Integer>> target(String field) {
        Map<Uuid, List<Integer>> read = new LinkedHashMap<>();
        for (String partition : list(field)) {
            int colon = partition.lastIndexOf(':');
            read.computeIfAbsent(Uuid.fromString(partition.substring(0, colon)), x -> new ArrayList<>())
                .add(Integer.parseInt(partition.substring(colon + 1)));
        }
        Map<Uuid, Set<Integer>> target = new HashMap<>();
        read.forEach((id, numbers) -> target.put(id, new HashSet<>(numbers)));
        return target;
    }

    private static void run(
        ConsumerGroupPartitionAssignor assignor, SubscriptionType type, Map<Uuid, Integer> topics,
        Map<String, String[]> members, java.io.PrintStream out) {
        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (String[] f : members.values()) {
            Optional<String> instance = f[2].equals("-") ? Optional.empty() : Optional.of(f[2]);
            Set<Uuid> ids = new HashSet<>();
            for (String id : list(f[3])) ids.add(Uuid.fromString(id));
            Map<Uuid, Set<Integer>> has = target(f[4]);
            has.forEach((id, numbers) -> numbers.forEach(
                number -> owners.computeIfAbsent(id, x -> new HashMap<>()).put(number, f[1])));
            specs.put(f[1], new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, ids, new Assignment(has)));
        }
        try {
            GroupAssignment answer = assignor.assign(
                new GroupSpecImpl(Collections.unmodifiableMap(specs), type, owners), new Describer(topics));
            for (String member : members.keySet()) {
                var given = answer.members().get(member);
                StringBuilder text = new StringBuilder(member);
                if (given != null) given.partitions().forEach((id, numbers) -> {
                    List<Integer> sorted = new ArrayList<>(numbers);
                    Collections.sort(sorted);
                    sorted.forEach(number -> text.append('\t').append(id).append(':').append(number));
                });
                out.println(text);
            }
        } catch (RuntimeException fault) {
            out.println("ERROR\t" + fault.getMessage());
        }
        out.println("END");
    }

    private record Describer(Map<Uuid, Integer> topics) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid topicId) {
            return topics.getOrDefault(topicId, -1);
        }

        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }
}
