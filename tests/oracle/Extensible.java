import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;
import static org.mockito.Mockito.withSettings;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadManager;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitState;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateChannel;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.filter.AntiAffinityGroupPolicyFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerFilter;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerIsolationPoliciesFilter;
import org.apache.pulsar.broker.loadbalance.extensions.models.SplitCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.policies.AntiAffinityGroupPolicyHelper;
import org.apache.pulsar.broker.loadbalance.extensions.policies.IsolationPoliciesHelper;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.BrokerSelectionStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl;
import org.apache.pulsar.broker.loadbalance.impl.SimpleResourceAllocationPolicies;
import org.apache.pulsar.broker.namespace.LookupOptions;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;

/** The extensible load manager: its shedder on the leader, its placements, its splits on each broker. */
final class Extensible implements Oracle.Decider, LoadManagerContext {
    private final StandIn standIn;
    private final ExtensibleLoadManagerImpl manager = new ExtensibleLoadManagerImpl();
    private final TransferShedder shedder;
    private final First placement;
    private final First roundRobin;
    private final Map<String, DefaultNamespaceBundleSplitStrategyImpl> splitters = new TreeMap<>();
    private final Map<String, Long> unloadedBundles = new TreeMap<>();
    private final Map<String, Long> unloadedBrokers = new TreeMap<>();
    private final AntiAffinityGroupPolicyHelper groups;
    private final LoadDataStore<BrokerLoadData> loads = mock(LoadDataStore.class, stub());
    private final LoadDataStore<TopBundlesLoadData> tops = mock(LoadDataStore.class, stub());
    private final BrokerRegistry registry = mock(BrokerRegistry.class, stub());
    private final ServiceUnitStateChannel channel = mock(ServiceUnitStateChannel.class, stub());
    private Map<String, BrokerLoadData> load = Map.of();
    private Map<String, TopBundlesLoadData> top = Map.of();
    private Map<String, BrokerLookupData> lookup = Map.of();
    private Map<String, String> owners = Map.of();
    private String thisBroker = "";

    private static org.mockito.MockSettings stub() {
        return withSettings().stubOnly();
    }

    Extensible(StandIn standIn) throws Exception {
        this.standIn = standIn;
        when(loads.entrySet()).thenAnswer(call -> load.entrySet());
        when(loads.get(anyString()))
                .thenAnswer(call -> Optional.ofNullable(load.get(call.<String>getArgument(0))));
        when(tops.entrySet()).thenAnswer(call -> top.entrySet());
        when(tops.get(anyString()))
                .thenAnswer(call -> Optional.ofNullable(top.get(call.<String>getArgument(0))));
        when(registry.getAvailableBrokerLookupDataAsync())
                .thenAnswer(call -> CompletableFuture.completedFuture(lookup));
        when(registry.getBrokerId()).thenAnswer(call -> thisBroker);
        when(channel.isOwner(anyString(), anyString())).thenAnswer(call ->
                call.getArgument(1).equals(owners.get(call.<String>getArgument(0))));
        when(channel.isOwner(anyString())).thenAnswer(call ->
                thisBroker.equals(owners.get(call.<String>getArgument(0))));
        when(channel.getOwnershipEntrySet()).thenAnswer(call -> {
            Map<String, ServiceUnitStateData> states = new TreeMap<>();
            owners.forEach((bundle, owner) -> states.put(
                    bundle, new ServiceUnitStateData(ServiceUnitState.Owned, owner, 1)));
            return states.entrySet();
        });
        groups = new AntiAffinityGroupPolicyHelper(standIn.pulsar, channel);
        IsolationPoliciesHelper isolation =
                new IsolationPoliciesHelper(new SimpleResourceAllocationPolicies(standIn.pulsar));
        Oracle.set(manager, "pulsar", standIn.pulsar);
        Oracle.set(manager, "conf", standIn.conf);
        Oracle.set(manager, "brokerRegistry", registry);
        Oracle.set(manager, "serviceUnitStateChannel", channel);
        Oracle.set(manager, "context", this);
        manager.getBrokerFilterPipeline().add(new AntiAffinityGroupPolicyFilter(groups));
        manager.getBrokerFilterPipeline().add(new BrokerIsolationPoliciesFilter(isolation));
        placement = new First(Oracle.get(manager, "brokerSelectionStrategy"));
        Oracle.set(manager, "brokerSelectionStrategy", placement);
        String excluded = "sheddingExcludedNamespaceSelectionStrategy";
        roundRobin = Oracle.has(manager, excluded)
                ? new First(Oracle.get(manager, excluded)) : placement;
        if (roundRobin != placement) {
            Oracle.set(manager, excluded, roundRobin);
        }
        when(standIn.pulsar.getLoadManager()).thenReturn(
                new AtomicReference<LoadManager>(new ExtensibleLoadManagerWrapper(manager)));
        shedder = new TransferShedder(standIn.pulsar, new UnloadCounter(),
                manager.getBrokerFilterPipeline(), isolation, groups);
    }

    @Override
    public void decide(JsonNode cycle, ObjectNode answer) throws Exception {
        read(cycle);
        if (Oracle.asksFor(cycle, "shed")) {
            shed(cycle, answer.putArray("unloads"));
        }
        if (Oracle.asksFor(cycle, "split")) {
            split(answer.putArray("splits"));
        }
        if (Oracle.asksFor(cycle, "place")) {
            ArrayNode placements = answer.putArray("placements");
            for (JsonNode bundle : cycle.get("place")) {
                placement.candidates = roundRobin.candidates = new TreeSet<>();
                Optional<String> broker = manager.selectAsync(standIn.bundle(bundle.asText()),
                        Set.of(), LookupOptions.builder().build()).get();
                broker.ifPresent(owner -> owners.put(bundle.asText(), owner));
                ArrayNode line = placements.addArray().add(bundle.asText()).add(broker.orElse(null));
                ArrayNode among = line.addArray();
                (placement.candidates.isEmpty() ? roundRobin : placement).candidates
                        .stream().sorted().forEach(among::add);
            }
        }
    }

    private void read(JsonNode cycle) throws Exception {
        load = Oracle.read(cycle.get("brokers"), BrokerLoadData.class);
        for (BrokerLoadData data : load.values()) {
            Oracle.set(data, "updatedAt", standIn.time(data.getUpdatedAt()));
        }
        top = Oracle.read(cycle.path("topBundles"), TopBundlesLoadData.class);
        owners = new TreeMap<>();
        top.forEach((broker, data) -> data.getTopBundlesLoadData()
                .forEach(item -> owners.put(item.bundleName(), broker)));
        cycle.path("owners").fields().forEachRemaining(
                entry -> owners.put(entry.getKey(), entry.getValue().asText()));
        lookup = new ConcurrentSkipListMap<>();
        for (String broker : load.keySet()) {
            lookup.put(broker, new BrokerLookupData("http://" + broker, null, "pulsar://" + broker,
                    null, Map.of(), Map.of(), true, true,
                    standIn.conf.getLoadManagerClassName(), 0,
                    cycle.path("versions").path(broker).asText("4.0.0"), Map.of()));
        }
        Map<String, String> domains = new TreeMap<>();
        cycle.path("failureDomains").fields().forEachRemaining(domain ->
                domain.getValue().forEach(broker -> domains.put(broker.asText(), domain.getKey())));
        Oracle.set(groups, "brokerToFailureDomainMap", domains);
    }

    private void shed(JsonNode cycle, ArrayNode unloads) {
        long now = cycle.path("now").asLong();
        remember(cycle.path("recentlyUnloaded"), unloadedBundles);
        remember(cycle.path("recentlyUnloadedBrokers"), unloadedBrokers);
        long oldest = now - Math.round(
                standIn.conf.getLoadBalancerSheddingGracePeriodMinutes() * 60_000.0);
        unloadedBundles.values().removeIf(at -> at < oldest);
        Map<String, Long> bundles = new TreeMap<>();
        unloadedBundles.forEach((bundle, at) -> bundles.put(bundle, standIn.time(at)));
        Map<String, Long> brokers = new TreeMap<>();
        unloadedBrokers.forEach((broker, at) -> brokers.put(broker, standIn.time(at)));
        if (lookup.size() > 1) {
            var decisions = shedder.findBundlesForUnloading(this, bundles, brokers);
            unloadedBrokers.keySet().retainAll(brokers.keySet());
            for (var decision : decisions) {
                var unload = decision.getUnload();
                unloadedBundles.put(unload.serviceUnit(), now);
                unloadedBrokers.put(unload.sourceBroker(), now);
                unloads.addArray().add(unload.sourceBroker()).add(unload.serviceUnit())
                        .add(unload.destBroker().orElse(null)).add(decision.getReason().name());
            }
        }
    }

    private static void remember(JsonNode times, Map<String, Long> into) {
        times.fields().forEachRemaining(
                entry -> into.put(entry.getKey(), entry.getValue().asLong()));
    }

    private void split(ArrayNode splits) {
        // a broker that comes back is a new process
        splitters.keySet().retainAll(load.keySet());
        for (String broker : load.keySet()) {
            thisBroker = broker;
            Map<String, NamespaceBundleStats> stats = new TreeMap<>();
            if (top.containsKey(broker)) {
                top.get(broker).getTopBundlesLoadData()
                        .forEach(item -> stats.put(item.bundleName(), item.stats()));
            }
            when(standIn.pulsar.getBrokerService().getBundleStats()).thenReturn(stats);
            var splitter = splitters.computeIfAbsent(
                    broker, name -> new DefaultNamespaceBundleSplitStrategyImpl(new SplitCounter()));
            for (var decision : splitter.findBundlesToSplit(this, standIn.pulsar)) {
                String lower = new TreeSet<>(
                        decision.getSplit().splitServiceUnitToDestBroker().keySet()).first();
                ArrayNode line = splits.addArray().add(decision.getSplit().serviceUnit());
                line.addArray().add(Long.decode(lower.substring(lower.indexOf('_') + 1)));
                line.add(decision.getReason().name());
            }
        }
    }

    @Override
    public ServiceConfiguration brokerConfiguration() {
        return standIn.conf;
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
