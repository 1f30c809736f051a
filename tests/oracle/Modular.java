import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;
import static org.mockito.Mockito.withSettings;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.TopKBundles;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.metadata.api.coordination.LockManager;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageMessageData;

/** The modular load manager as leader: reports in, its own averages, plans out. */
final class Modular implements Oracle.Decider {
    private final StandIn standIn;
    private final ModularLoadManagerImpl manager = new ModularLoadManagerImpl();
    private final LoadData loadData = new Ordered();
    private final First placement;
    private final First roundRobin;
    private final Object strategy;
    private final First.Recorder shedder;
    private final Map<String, Long> unloaded = new TreeMap<>();
    /** The unloads that the manager ordered in this cycle: bundle and destination. */
    private final List<List<String>> ordered = new ArrayList<>();
    private final Map<String, BrokerLoadData> averages = new TreeMap<>();
    private Map<String, LocalBrokerData> reports = Map.of();

    /** `acts`: whether the manager finds destinations and unloads. */
    Modular(StandIn standIn, boolean acts) throws Exception {
        this.standIn = standIn;
        Namespaces admin = mock(Namespaces.class, withSettings().stubOnly().defaultAnswer(call -> {
            ordered.add(List.of(call.getArgument(0) + "/" + call.getArgument(1),
                    call.<String>getArgument(2)));
            return null;
        }));
        when(standIn.pulsar.getAdminClient().namespaces()).thenReturn(admin);
        LockManager<LocalBrokerData> locks = mock(LockManager.class, withSettings().stubOnly());
        when(locks.listLocks(anyString())).thenAnswer(
                call -> CompletableFuture.completedFuture(new ArrayList<>(reports.keySet())));
        when(locks.readLock(anyString())).thenAnswer(call -> {
            String path = call.getArgument(0);
            return CompletableFuture.completedFuture(
                    Optional.ofNullable(reports.get(path.substring(path.lastIndexOf('/') + 1))));
        });
        when(standIn.pulsar.getCoordinationService().getLockManager(LocalBrokerData.class))
                .thenReturn(locks);
        Oracle.set(manager, "loadData", loadData);
        manager.initialize(standIn.pulsar);
        strategy = Oracle.get(manager, "loadSheddingStrategy");
        if (strategy instanceof AvgShedder) {
            Oracle.set(strategy, "brokerScoreMap", new TreeMap<>());
        }
        shedder = new First.Recorder((LoadSheddingStrategy) strategy);
        shedder.acts = acts;
        Oracle.set(manager, "loadSheddingStrategy", shedder);
        placement = new First(Oracle.get(manager, "placementStrategy"));
        Oracle.set(manager, "placementStrategy", placement);
        String excluded = "sheddingExcludedNamespaceSelectionStrategy";
        roundRobin = Oracle.has(manager, excluded)
                ? new First(Oracle.get(manager, excluded)) : placement;
        if (roundRobin != placement) {
            Oracle.set(manager, excluded, roundRobin);
        }
    }

    @Override
    public void decide(JsonNode cycle, ObjectNode answer) throws Exception {
        reports = Oracle.read(cycle.get("brokers"), LocalBrokerData.class);
        for (LocalBrokerData report : reports.values()) {
            report.setLastStats(new TreeMap<>(report.getLastStats()));
        }
        Map<String, String> domains = new TreeMap<>();
        cycle.path("failureDomains").fields().forEachRemaining(domain ->
                domain.getValue().forEach(broker -> domains.put(broker.asText(), domain.getKey())));
        Oracle.set(manager, "brokerToFailureDomainMap", domains);
        // as at the notification of a broker's death
        var reap = ModularLoadManagerImpl.class
                .getDeclaredMethod("reapDeadBrokerPreallocations", List.class);
        reap.setAccessible(true);
        reap.invoke(manager, new ArrayList<>(reports.keySet()));
        manager.updateAll();
        if (Oracle.asksFor(cycle, "shed")) {
            shed(cycle, answer.putArray("unloads"));
        }
        if (Oracle.asksFor(cycle, "split")) {
            ArrayNode splits = answer.putArray("splits");
            if (reports.size() > 1) {
                NamespaceBundleSplitAlgorithm algorithm = NamespaceBundleSplitAlgorithm.of(
                        standIn.conf.getDefaultNamespaceBundleSplitAlgorithm());
                for (String bundle : new BundleSplitterTask()
                        .findBundlesToSplit(loadData, standIn.pulsar).keySet()) {
                    // as the owner does when it is told to split
                    List<Long> cuts =
                            standIn.boundaries(standIn.bundle(bundle), algorithm, null).get();
                    if (cuts != null && !cuts.isEmpty()) {
                        cuts.forEach(splits.addArray().add(bundle).addArray()::add);
                    }
                }
            }
        }
        if (Oracle.asksFor(cycle, "place")) {
            ArrayNode placements = answer.putArray("placements");
            for (JsonNode bundle : cycle.get("place")) {
                placement.candidates = roundRobin.candidates = new TreeSet<>();
                Optional<String> broker =
                        manager.selectBrokerForAssignment(standIn.bundle(bundle.asText()));
                ArrayNode line = placements.addArray().add(bundle.asText()).add(broker.orElse(null));
                ArrayNode among = line.addArray();
                (placement.candidates.isEmpty() ? roundRobin : placement).candidates
                        .stream().sorted().forEach(among::add);
            }
        }
    }

    private void shed(JsonNode cycle, ArrayNode unloads) {
        long now = cycle.path("now").asLong();
        cycle.path("recentlyUnloaded").fields().forEachRemaining(
                entry -> unloaded.put(entry.getKey(), entry.getValue().asLong()));
        loadData.getRecentlyUnloadedBundles().clear();
        unloaded.forEach((bundle, at) ->
                loadData.getRecentlyUnloadedBundles().put(bundle, standIn.time(at)));
        shedder.chosen.clear();
        ordered.clear();
        manager.doLoadShedding();
        unloaded.keySet().retainAll(loadData.getRecentlyUnloadedBundles().keySet());
        if (shedder.acts) {
            Iterator<Map.Entry<String, String>> chosen = shedder.chosen.entries().iterator();
            for (List<String> move : ordered) {
                Map.Entry<String, String> from = chosen.next();
                while (!from.getValue().equals(move.get(0))) {
                    from = chosen.next();
                }
                unloaded.put(move.get(0), now);
                unloads.addArray().add(from.getKey()).add(move.get(0)).add(move.get(1));
            }
            return;
        }
        for (String broker : new TreeSet<>(shedder.chosen.keySet())) {
            for (String bundle : shedder.chosen.get(broker)) {
                unloaded.put(bundle, now);
                Optional<String> destination = strategy instanceof AvgShedder planner
                        ? ((ModularLoadManagerStrategy) planner).selectBroker(reports.keySet(),
                                loadData.getBundleData().get(bundle), loadData, standIn.conf)
                        : Optional.empty();
                unloads.addArray().add(broker).add(bundle).add(destination.orElse(null));
            }
        }
    }

    /** What is derived from the samples so far: averages, and the extensible manager's reports. */
    void derived(JsonNode cycle, ObjectNode answer) throws Exception {
        ObjectNode bundles = answer.putObject("bundles");
        new TreeMap<>(loadData.getBundleData()).forEach((bundle, data) -> {
            ArrayNode figures = bundles.putArray(bundle);
            add(figures, data.getShortTermData());
            add(figures, data.getLongTermData());
        });
        ObjectNode brokers = answer.putObject("brokers");
        loadData.getBrokerData().forEach((broker, data) -> {
            var average = data.getTimeAverageData();
            brokers.putArray(broker)
                    .add(average.getShortTermMsgThroughputIn())
                    .add(average.getShortTermMsgThroughputOut())
                    .add(average.getShortTermMsgRateIn()).add(average.getShortTermMsgRateOut())
                    .add(average.getLongTermMsgThroughputIn())
                    .add(average.getLongTermMsgThroughputOut())
                    .add(average.getLongTermMsgRateIn()).add(average.getLongTermMsgRateOut());
        });
        ObjectNode loads = answer.putObject("loads");
        ObjectNode tops = answer.putObject("tops");
        averages.keySet().retainAll(reports.keySet());
        for (var entry : reports.entrySet()) {
            LocalBrokerData report = entry.getValue();
            SystemResourceUsage usage = new SystemResourceUsage();
            usage.setCpu(report.getCpu());
            usage.setMemory(report.getMemory());
            usage.setDirectMemory(report.getDirectMemory());
            usage.setBandwidthIn(report.getBandwidthIn());
            usage.setBandwidthOut(report.getBandwidthOut());
            BrokerLoadData load =
                    averages.computeIfAbsent(entry.getKey(), broker -> new BrokerLoadData());
            load.update(usage, report.getMsgThroughputIn(), report.getMsgThroughputOut(),
                    report.getMsgRateIn(), report.getMsgRateOut(), report.getNumBundles(),
                    report.getNumTopics(), standIn.conf);
            loads.putArray(entry.getKey()).add(load.getMaxResourceUsage())
                    .add(load.getWeightedMaxEMA()).add(load.getMsgThroughputEMA());
            TopKBundles top = new TopKBundles(standIn.pulsar);
            top.update(report.getLastStats(),
                    standIn.conf.getLoadBalancerMaxNumberOfBundlesInBundleLoadReport());
            ArrayNode names = tops.putArray(entry.getKey());
            top.getLoadData().getTopBundlesLoadData().forEach(item -> names.add(item.bundleName()));
        }
    }

    private static void add(ArrayNode figures, TimeAverageMessageData data) {
        figures.add(data.getMsgThroughputIn()).add(data.getMsgThroughputOut())
                .add(data.getMsgRateIn()).add(data.getMsgRateOut());
    }

    /** Pulsar's tables, in order of name. */
    private static final class Ordered extends LoadData {
        Ordered() throws Exception {
            Oracle.set(this, "brokerData", new ConcurrentSkipListMap<>());
            Oracle.set(this, "bundleData", new ConcurrentSkipListMap<>());
        }

        @Override
        public Map<String, BundleData> getBundleDataForLoadShedding() {
            return new TreeMap<>(super.getBundleDataForLoadShedding());
        }
    }
}
