import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Says every configuration key of Kafka's clients: client, key and default, separated by tabs. */
public class Keys {
    public static void main(String[] arguments) {
        say("consumer", ConsumerConfig.configDef());
        say("producer", ProducerConfig.configDef());
        say("admin", AdminClientConfig.configDef());
    }

    private static void say(String client, ConfigDef keys) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys.configKeys()).values()) {
            if (!key.internalConfig) {
                System.out.println(client + "\t" + key.name + "\t" + (key.hasDefault() ? key.defaultValue : "REQUIRED"));
            }
        }
    }
}
