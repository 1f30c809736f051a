import com.fasterxml.jackson.annotation.JsonAutoDetect;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.pulsar.broker.ServiceConfiguration;

/**
 * Runs Pulsar's own load managers on cases: one JSON object a line in, one a line out.
 *
 * <p>A case has a kind, a config and cycles; a cycle is a line of `loadmanager decide`. Only Pulsar's
 * classes decide here. Where they take whatever order a hash table has, they get sorted tables, and
 * where they choose at random, they get the first by name, so that the answers can be repeated.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper()
            .setVisibility(PropertyAccessor.ALL, JsonAutoDetect.Visibility.NONE)
            .setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY)
            .setVisibility(PropertyAccessor.CREATOR, JsonAutoDetect.Visibility.ANY)
            .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    private Oracle() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
        System.exit(0);
    }

    private static ObjectNode answer(JsonNode oneCase) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode cycles = answer.putArray("cycles");
        StandIn standIn = new StandIn(configuration(oneCase.path("config")));
        Decider decider = switch (oneCase.get("kind").asText()) {
            case "modular", "samples" -> new Modular(standIn, false);
            case "moves" -> new Modular(standIn, true);
            case "extensible" -> new Extensible(standIn);
            case "cuts" -> new Cuts(standIn);
            default -> throw new IllegalArgumentException(oneCase.get("kind").asText());
        };
        for (JsonNode cycle : oneCase.get("cycles")) {
            standIn.cycle = cycle;
            apply(cycle.path("config"), standIn.conf);
            ObjectNode decided = JSON.createObjectNode();
            decider.decide(cycle, decided);
            if (oneCase.get("kind").asText().equals("samples")) {
                ((Modular) decider).derived(cycle, decided);
            }
            cycles.add(decided);
        }
        return answer;
    }

    /** One leader's classes and what they remember. */
    interface Decider {
        void decide(JsonNode cycle, ObjectNode answer) throws Exception;
    }

    static ServiceConfiguration configuration(JsonNode config) throws Exception {
        ServiceConfiguration conf = new ServiceConfiguration();
        conf.setClusterName("cluster");
        conf.setLoadBalancerAutoBundleSplitEnabled(false);
        apply(config, conf);
        return conf;
    }

    /** Settings that are given, or that change while the load manager runs. */
    private static void apply(JsonNode config, ServiceConfiguration conf) throws Exception {
        for (var entries = config.fields(); entries.hasNext(); ) {
            var entry = entries.next();
            Field field;
            try {
                field = ServiceConfiguration.class.getDeclaredField(entry.getKey());
            } catch (NoSuchFieldException unknownToThisVersion) {
                continue;
            }
            field.setAccessible(true);
            field.set(conf, value(field.getType(), entry.getValue().asText()));
        }
    }

    private static Object value(Class<?> type, String text) {
        if (type == int.class) {
            return Integer.valueOf(text);
        }
        if (type == long.class) {
            return Long.valueOf(text);
        }
        if (type == double.class) {
            return Double.valueOf(text);
        }
        if (type == boolean.class) {
            return Boolean.valueOf(text);
        }
        return type == Set.class ? new TreeSet<>(Set.of(text.split(","))) : text;
    }

    /** What this cycle asks for: "shed", "place", "split". */
    static boolean asksFor(JsonNode cycle, String what) {
        if (!cycle.has("do")) {
            return what.equals("shed");
        }
        for (JsonNode asked : cycle.get("do")) {
            if (asked.asText().equals(what)) {
                return true;
            }
        }
        return false;
    }

    static <T> TreeMap<String, T> read(JsonNode map, Class<T> type) throws Exception {
        TreeMap<String, T> values = new TreeMap<>();
        for (var entries = map.fields(); entries.hasNext(); ) {
            var entry = entries.next();
            values.put(entry.getKey(), JSON.treeToValue(entry.getValue(), type));
        }
        return values;
    }

    static void set(Object object, String name, Object value) throws Exception {
        field(object, name).set(object, value);
    }

    static Object get(Object object, String name) throws Exception {
        return field(object, name).get(object);
    }

    static boolean has(Object object, String name) {
        try {
            field(object, name);
            return true;
        } catch (NoSuchFieldException absent) {
            return false;
        }
    }

    private static Field field(Object object, String name) throws NoSuchFieldException {
        for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field;
            } catch (NoSuchFieldException inherited) {
                continue;
            }
        }
        throw new NoSuchFieldException(name);
    }
}
