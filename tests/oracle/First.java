import com.google.common.collect.Multimap;
import com.google.common.collect.MultimapBuilder;
import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.BrokerSelectionStrategy;
import org.apache.pulsar.common.naming.ServiceUnitId;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;

/** Asks a strategy of Pulsar; where it leaves the answer to chance, the first by name is chosen. */
final class First implements ModularLoadManagerStrategy, BrokerSelectionStrategy {
    /** The brokers among which chance would have decided in the last placement. */
    Set<String> candidates = Set.of();
    private final Object strategy;

    First(Object strategy) {
        this.strategy = strategy;
    }

    @Override
    public Optional<String> selectBroker(Set<String> brokers, BundleData bundle, LoadData loadData,
                                         ServiceConfiguration conf) {
        if (brokers.isEmpty() && Oracle.has(strategy, "bundleBrokerMap")) {
            return Optional.empty();  // AvgShedder would divide by their number
        }
        try {
            boolean planned = planned().containsKey(bundle)
                    && brokers.contains(planned().get(bundle));
            Optional<String> chosen = ((ModularLoadManagerStrategy) strategy)
                    .selectBroker(new TreeSet<>(brokers), bundle, loadData, conf);
            if (chosen.isEmpty()) {
                candidates = Set.of();
            } else if (Oracle.has(strategy, "bundleBrokerMap") && !planned) {
                candidates = new TreeSet<>(brokers);
                first().ifPresent(broker -> planned().put(bundle, broker));
            } else if (Oracle.has(strategy, "bestBrokers")) {
                candidates = new TreeSet<>((Collection<String>) Oracle.get(strategy, "bestBrokers"));
            } else {
                candidates = chosen.map(Set::of).orElse(Set.of());
            }
            return first();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public Optional<String> select(Set<String> brokers, ServiceUnitId bundle,
                                   LoadManagerContext context) {
        try {
            Optional<String> chosen =
                    ((BrokerSelectionStrategy) strategy).select(new TreeSet<>(brokers), bundle, context);
            candidates = chosen.map(Set::of).orElse(Set.of());
            if (chosen.isPresent() && Oracle.has(strategy, "bestBrokers")) {
                var best = (ThreadLocal<Collection<String>>) Oracle.get(strategy, "bestBrokers");
                candidates = new TreeSet<>(best.get());
            }
            return first();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void onActiveBrokersChange(Set<String> brokers) {
        ((ModularLoadManagerStrategy) strategy).onActiveBrokersChange(brokers);
    }

    private Optional<String> first() {
        return candidates.stream().sorted().findFirst();
    }

    private Map<BundleData, String> planned() {
        try {
            return Oracle.has(strategy, "bundleBrokerMap")
                    ? (Map<BundleData, String>) Oracle.get(strategy, "bundleBrokerMap") : Map.of();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Keeps what a shedder chose, in order of the brokers; the manager may act on it or not. */
    static final class Recorder implements LoadSheddingStrategy {
        Multimap<String, String> chosen = MultimapBuilder.treeKeys().arrayListValues().build();
        boolean acts;
        private final LoadSheddingStrategy strategy;

        Recorder(LoadSheddingStrategy strategy) {
            this.strategy = strategy;
        }

        @Override
        public Multimap<String, String> findBundlesForUnloading(
                LoadData loadData, ServiceConfiguration conf) {
            chosen.clear();
            chosen.putAll(strategy.findBundlesForUnloading(loadData, conf));
            return acts ? chosen : MultimapBuilder.treeKeys().arrayListValues().build();
        }

        @Override
        public void onActiveBrokersChange(Set<String> brokers) {
            strategy.onActiveBrokersChange(brokers);
        }
    }
}
