import static org.mockito.Mockito.when;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadManager;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateChannel;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.filter.AntiAffinityGroupPolicyFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerIsolationPoliciesFilter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.policies.AntiAffinityGroupPolicyHelper;
import org.apache.pulsar.broker.loadbalance.extensions.policies.IsolationPoliciesHelper;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;
import org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.broker.resources.PulsarResources;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.coordination.LockManager;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import sun.reflect.ReflectionFactory;

/**
 * How long Pulsar's own classes take over one cluster: `Times SNAPSHOT CONFIG ROUNDS SECONDS`.
 *
 * <p>SNAPSHOT is a file with one line of `loadmanager decide`, CONFIG the keys of broker.conf as
 * JSON. Each round reads every report from its JSON, reads one report in a hundred again, updates
 * the manager's own data once, and decides. Policies and metadata come from Pulsar's own resources
 * over its store in memory, so that what is measured is Pulsar and not a stand-in.
 */
public final class Times {
    private static final double WARM_UP_S = 5;

    private Times() {
    }

    /** One manager over one cluster. */
    interface Timed {
        void read(int count) throws Exception;

        void update();

        int decide();

        int reports();
    }

    public static void main(String[] args) {
        try {
            measure(args);
            System.exit(0);
        } catch (Throwable error) {
            // threads of Pulsar's would keep the process
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void measure(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        JsonNode snapshot = Oracle.JSON.readTree(new File(args[0]));
        StandIn standIn = new StandIn(Oracle.configuration(Oracle.JSON.readTree(args[1])));
        var store = MetadataStoreExtended.create(
                "memory:times", MetadataStoreConfig.builder().build());
        when(standIn.pulsar.getPulsarResources()).thenReturn(new PulsarResources(store, store));
        Service service = Service.of(standIn);
        Timed timed = snapshot.has("topBundles")
                ? new ExtensibleTimed(service, snapshot) : new ModularTimed(service, snapshot);
        int warmUp = 0;
        for (long began = System.nanoTime(); warmUp == 0 || seconds(began) < WARM_UP_S; warmUp++) {
            round(timed);
        }
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.put("java", System.getProperty("java.version")).put("warmUp", warmUp);
        ArrayNode rounds = answer.putArray("rounds");
        long began = System.nanoTime();
        do {
            double[] parts = round(timed);
            ObjectNode one = rounds.addObject();
            one.put("readAll", parts[0]).put("readOnePercent", parts[1]);
            one.put("update", parts[2]).put("decide", parts[3]).put("moves", (int) parts[4]);
        } while (rounds.size() < Integer.parseInt(args[2])
                && seconds(began) < Double.parseDouble(args[3]));
        out.println(Oracle.JSON.writeValueAsString(answer));
        out.flush();
    }

    private static double seconds(long beganNs) {
        return (System.nanoTime() - beganNs) / 1e9;
    }

    /** Milliseconds of each part, and the moves. */
    private static double[] round(Timed timed) throws Exception {
        long start = System.nanoTime();
        timed.read(Math.max(1, timed.reports() / 100));
        long few = System.nanoTime();
        timed.read(timed.reports());
        long all = System.nanoTime();
        timed.update();
        long updated = System.nanoTime();
        int moves = timed.decide();
        long decided = System.nanoTime();
        return new double[] {(all - few) / 1e6, (few - start) / 1e6, (updated - all) / 1e6,
            (decided - updated) / 1e6, moves};
    }

    /** Each broker's value as the bytes that its broker would have written. */
    private static Map<String, byte[]> bytes(JsonNode values) throws Exception {
        Map<String, byte[]> written = new HashMap<>();
        for (var entries = values.fields(); entries.hasNext(); ) {
            var entry = entries.next();
            written.put(entry.getKey(), Oracle.JSON.writeValueAsBytes(entry.getValue()));
        }
        return written;
    }

    private static <T> T proxy(Class<T> type, Map<String, Function<Object[], Object>> calls) {
        return type.cast(Proxy.newProxyInstance(Times.class.getClassLoader(), new Class<?>[] {type},
                (self, method, args) -> calls.get(method.getName()).apply(args)));
    }

    /** An object whose constructor did not run. */
    private static <T> T unbuilt(Class<T> type) throws Exception {
        return type.cast(ReflectionFactory.getReflectionFactory().newConstructorForSerialization(
                type, Object.class.getDeclaredConstructor()).newInstance());
    }

    /** What a manager asks while it decides, without the cost of a mock; the rest is the mock's. */
    static final class Service extends PulsarService {
        private StandIn standIn;
        private ServiceConfiguration conf;
        private PulsarResources resources;
        private Namespaces namespaces;
        private AtomicReference<LoadManager> loadManager;

        private Service() {
            super(new ServiceConfiguration());
        }

        static Service of(StandIn standIn) throws Exception {
            Service service = unbuilt(Service.class);
            service.standIn = standIn;
            service.conf = standIn.conf;
            service.resources = standIn.pulsar.getPulsarResources();
            service.namespaces = unbuilt(Namespaces.class);
            service.namespaces.bundles = standIn.bundles;
            service.loadManager = new AtomicReference<>();
            return service;
        }

        @Override
        public ServiceConfiguration getConfiguration() {
            return conf;
        }

        @Override
        public ServiceConfiguration getConfig() {
            return conf;
        }

        @Override
        public PulsarResources getPulsarResources() {
            return resources;
        }

        @Override
        public NamespaceService getNamespaceService() {
            return namespaces;
        }

        @Override
        public AtomicReference<LoadManager> getLoadManager() {
            return loadManager;
        }
    }

    /** The namespaces, likewise. */
    static final class Namespaces extends NamespaceService {
        private NamespaceBundleFactory bundles;

        private Namespaces() {
            super(null);
        }

        @Override
        public NamespaceBundleFactory getNamespaceBundleFactory() {
            return bundles;
        }

        @Override
        public Set<NamespaceBundle> getOwnedServiceUnits() {
            return Set.of();
        }
    }

    /** The modular manager: reports, its own averages, its shedder. */
    private static final class ModularTimed implements Timed {
        private static final ObjectReader READER =
                ObjectMapperFactory.getMapper().reader().forType(LocalBrokerData.class);
        private final Map<String, byte[]> written;
        private final Map<String, LocalBrokerData> reports = new ConcurrentHashMap<>();
        private final ModularLoadManagerImpl manager = new ModularLoadManagerImpl();
        private final ServiceConfiguration conf;
        private final LoadData data;
        private final LoadSheddingStrategy shedder;

        ModularTimed(Service pulsar, JsonNode snapshot) throws Exception {
            written = bytes(snapshot.get("brokers"));
            conf = pulsar.getConfiguration();
            LockManager<LocalBrokerData> locks = proxy(LockManager.class, Map.of(
                    "listLocks", args -> CompletableFuture.completedFuture(
                            new ArrayList<>(reports.keySet())),
                    "readLock", args -> CompletableFuture.completedFuture(Optional.ofNullable(
                            reports.get(((String) args[0]).substring(
                                    ((String) args[0]).lastIndexOf('/') + 1))))));
            when(pulsar.standIn.pulsar.getCoordinationService().getLockManager(LocalBrokerData.class))
                    .thenReturn(locks);
            manager.initialize(pulsar.standIn.pulsar);
            Oracle.set(manager, "pulsar", pulsar);
            data = (LoadData) Oracle.get(manager, "loadData");
            shedder = (LoadSheddingStrategy) Oracle.get(manager, "loadSheddingStrategy");
        }

        @Override
        public int reports() {
            return written.size();
        }

        @Override
        public void read(int count) throws Exception {
            int left = count;
            for (var entry : written.entrySet()) {
                if (left-- > 0) {
                    reports.put(entry.getKey(), READER.readValue(entry.getValue()));
                }
            }
        }

        @Override
        public void update() {
            manager.updateAll();
        }

        @Override
        public int decide() {
            return shedder.findBundlesForUnloading(data, conf).size();
        }
    }

    /** The extensible manager: both tables, and the leader's shedder with all its filters. */
    private static final class ExtensibleTimed implements Timed, LoadManagerContext {
        private final ServiceConfiguration conf;
        private final Map<String, byte[]> written;
        private final Map<String, byte[]> writtenTop;
        private final Schema<BrokerLoadData> schema = Schema.JSON(BrokerLoadData.class);
        private final Schema<TopBundlesLoadData> topSchema = Schema.JSON(TopBundlesLoadData.class);
        private final Map<String, BrokerLoadData> load = new ConcurrentHashMap<>();
        private final Map<String, TopBundlesLoadData> top = new ConcurrentHashMap<>();
        private final LoadDataStore<BrokerLoadData> loads = store(load);
        private final LoadDataStore<TopBundlesLoadData> tops = store(top);
        private final BrokerRegistry registry;
        private final TransferShedder shedder;

        ExtensibleTimed(Service pulsar, JsonNode snapshot) throws Exception {
            conf = pulsar.getConfiguration();
            for (JsonNode report : snapshot.get("brokers")) {
                ((ObjectNode) report).put("updatedAt", System.currentTimeMillis());
            }
            written = bytes(snapshot.get("brokers"));
            writtenTop = bytes(snapshot.get("topBundles"));
            Map<String, String> owners = new HashMap<>();
            snapshot.get("topBundles").fields().forEachRemaining(broker ->
                    broker.getValue().get("topBundlesLoadData").forEach(item ->
                            owners.put(item.get("bundleName").asText(), broker.getKey())));
            Map<String, BrokerLookupData> lookup = new ConcurrentHashMap<>();
            for (String broker : written.keySet()) {
                lookup.put(broker, new BrokerLookupData("http://" + broker, null,
                        "pulsar://" + broker, null, Map.of(), Map.of(), true, true,
                        conf.getLoadManagerClassName(), 0, "4.0.0", Map.of()));
            }
            registry = proxy(BrokerRegistry.class, Map.of("getAvailableBrokerLookupDataAsync",
                    args -> CompletableFuture.completedFuture(lookup)));
            ServiceUnitStateChannel channel = proxy(ServiceUnitStateChannel.class, Map.of(
                    "isOwner", args -> args[1].equals(owners.get(args[0])),
                    "getOwnershipEntrySet", args -> Set.of()));
            var groups = new AntiAffinityGroupPolicyHelper(pulsar, channel);
            var isolation =
                    new IsolationPoliciesHelper(new SimpleResourceAllocationPolicies(pulsar));
            var manager = new ExtensibleLoadManagerImpl();
            Oracle.set(manager, "pulsar", pulsar);
            Oracle.set(manager, "conf", conf);
            Oracle.set(manager, "brokerRegistry", registry);
            Oracle.set(manager, "serviceUnitStateChannel", channel);
            Oracle.set(manager, "context", this);
            var filters = manager.getBrokerFilterPipeline();
            filters.add(new AntiAffinityGroupPolicyFilter(groups));
            filters.add(new BrokerIsolationPoliciesFilter(isolation));
            pulsar.loadManager.set(new ExtensibleLoadManagerWrapper(manager));
            shedder = new TransferShedder(
                    pulsar, new UnloadCounter(), filters, isolation, groups);
        }

        private static <T> LoadDataStore<T> store(Map<String, T> values) {
            return proxy(LoadDataStore.class, Map.of(
                    "get", args -> Optional.ofNullable(values.get(args[0])),
                    "entrySet", args -> values.entrySet(),
                    "size", args -> values.size()));
        }

        @Override
        public int reports() {
            return written.size();
        }

        @Override
        public void read(int count) throws Exception {
            int left = count;
            for (var entry : written.entrySet()) {
                if (left-- > 0) {
                    String broker = entry.getKey();
                    load.put(broker, schema.decode(entry.getValue()));
                    top.put(broker, topSchema.decode(writtenTop.get(broker)));
                }
            }
        }

        @Override
        public void update() {
            // the tables are the data
        }

        @Override
        public int decide() {
            return shedder.findBundlesForUnloading(this, new HashMap<>(), new HashMap<>()).size();
        }

        @Override
        public ServiceConfiguration brokerConfiguration() {
            return conf;
        }

        @Override
        public LoadDataStore<BrokerLoadData> brokerLoadDataStore() {
            return loads;
        }

        @Override
        public LoadDataStore<TopBundlesLoadData> topBundleLoadDataStore() {
            return tops;
        }

        @Override
        public BrokerRegistry brokerRegistry() {
            return registry;
        }
    }
}
