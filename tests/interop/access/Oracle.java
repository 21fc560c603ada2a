import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * Asks Apache Kafka's StandardAuthorizer. One line a fact or a question, fields separated by tabs, numbers as in the protocol:
 *   NEW super-users allow-everyone-if-no-acl-found
 *   ACL resource-type name pattern-type principal host operation permission-type
 *   ASK principal host operation resource-type name        answers ALLOWED or DENIED
 *   ANY principal host operation resource-type             (authorizeByResourceType) the same
 */
public class Oracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StandardAuthorizer authorizer = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "NEW" -> authorizer = fresh(f[1], f[2]);
                case "ACL" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(code(f[1])), f[2], PatternType.fromCode(code(f[3])), f[4], f[5],
                    AclOperation.fromCode(code(f[6])), AclPermissionType.fromCode(code(f[7]))));
                case "ASK" -> System.out.println(authorizer.authorize(asking(f[1], f[2]), List.of(new Action(
                    AclOperation.fromCode(code(f[3])),
                    new ResourcePattern(ResourceType.fromCode(code(f[4])), f[5], PatternType.LITERAL),
                    1, false, false))).get(0));
                default -> System.out.println(authorizer.authorizeByResourceType(
                    asking(f[1], f[2]), AclOperation.fromCode(code(f[3])), ResourceType.fromCode(code(f[4]))));
            }
        }
    }

    private static byte code(String text) {
        return Byte.parseByte(text);
    }

    private static StandardAuthorizer fresh(String superUsers, String allowEveryone) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            StandardAuthorizer.SUPER_USERS_CONFIG, superUsers,
            StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, allowEveryone));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static AuthorizableRequestContext asking(String principal, String host) throws Exception {
        KafkaPrincipal who = SecurityUtils.parseKafkaPrincipal(principal);
        InetAddress from = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return from; }
            public int requestType() { return 0; }
            public int requestVersion() { return 13; }
            public String clientId() { return "oracle"; }
            public int correlationId() { return 1; }
        };
    }
}
