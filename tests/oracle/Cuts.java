import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;

/** The algorithms that cut bundles. */
final class Cuts implements Oracle.Decider {
    private final StandIn standIn;

    Cuts(StandIn standIn) {
        this.standIn = standIn;
    }

    @Override
    public void decide(JsonNode cycle, ObjectNode answer) throws Exception {
        ArrayNode splits = answer.putArray("splits");
        for (JsonNode asked : cycle.get("split")) {
            NamespaceBundle bundle = standIn.bundle(asked.get("bundle").asText());
            List<Long> positions = new ArrayList<>();
            asked.path("positions").forEach(position -> positions.add(position.asLong()));
            List<Long> cuts = standIn.boundaries(bundle,
                    NamespaceBundleSplitAlgorithm.of(asked.get("algorithm").asText()), positions).get();
            if (cuts != null && !cuts.isEmpty()) {
                cuts.forEach(splits.addArray().add(bundle.toString()).addArray()::add);
            }
        }
    }
}
