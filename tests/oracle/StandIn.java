import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyString;
import static org.mockito.Mockito.RETURNS_DEEP_STUBS;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;
import static org.mockito.Mockito.withSettings;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.hash.Hashing;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.BundleSplitOption;
import org.apache.pulsar.common.naming.FlowOrQpsEquallyDivideBundleSplitOption;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.policies.data.LocalPolicies;
import org.apache.pulsar.common.policies.data.NamespaceIsolationDataImpl;
import org.apache.pulsar.common.policies.data.stats.TopicStatsImpl;
import org.apache.pulsar.common.policies.impl.NamespaceIsolationPolicies;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** The smallest PulsarService that the load managers can decide with: all from the cycle's line. */
final class StandIn {
    final ServiceConfiguration conf;
    final PulsarService pulsar;
    final NamespaceBundleFactory bundles;
    /** The line of the cycle that is being decided. */
    JsonNode cycle;

    StandIn(ServiceConfiguration conf) {
        this.conf = conf;
        pulsar = mock(PulsarService.class,
                withSettings().stubOnly().defaultAnswer(RETURNS_DEEP_STUBS));
        when(pulsar.getConfiguration()).thenReturn(conf);
        when(pulsar.getConfig()).thenReturn(conf);
        bundles = new NamespaceBundleFactory(pulsar, Hashing.crc32()) {
            @Override
            public long getLongHashCode(String topic) {
                for (JsonNode topics : cycle.path("topics")) {
                    if (topics.has(topic)) {
                        return topics.get(topic).path("hash").asLong();
                    }
                }
                throw new IllegalArgumentException(topic);
            }

            @Override
            public void invalidateBundleCache(NamespaceName namespace) {
                // there is no cache here
            }
        };
        when(pulsar.getLeaderElectionService().isLeader()).thenReturn(true);
        policies();
        namespaces();
    }

    NamespaceBundle bundle(String name) {
        int slash = name.lastIndexOf('/');
        return bundles.getBundle(name.substring(0, slash), name.substring(slash + 1));
    }

    /** The time of Pulsar's clock at a time of the case's. */
    long time(long ms) {
        return ms - cycle.path("now").asLong() + System.currentTimeMillis();
    }

    private void policies() {
        var isolation = pulsar.getPulsarResources().getNamespaceResources().getIsolationPolicies();
        try {
            when(isolation.getIsolationDataPolicies(anyString())).thenAnswer(call -> isolation());
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
        when(isolation.getIsolationDataPoliciesAsync(anyString()))
                .thenAnswer(call -> CompletableFuture.completedFuture(isolation()));
        var local = pulsar.getPulsarResources().getLocalPolicies();
        try {
            when(local.getLocalPolicies(any())).thenAnswer(call -> group(call.getArgument(0)));
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
        when(local.getLocalPoliciesAsync(any())).thenAnswer(
                call -> CompletableFuture.completedFuture(group(call.getArgument(0))));
        var balance = pulsar.getPulsarResources().getLoadBalanceResources();
        when(balance.getBundleDataResources().getBundleData(anyString()))
                .thenReturn(CompletableFuture.completedFuture(Optional.empty()));
        when(balance.getQuotaResources().getQuota(anyString()))
                .thenReturn(CompletableFuture.completedFuture(Optional.empty()));
    }

    private Optional<NamespaceIsolationPolicies> isolation() throws Exception {
        JsonNode given = cycle.path("isolationPolicies");
        Map<String, NamespaceIsolationDataImpl> policies = new TreeMap<>();
        for (var entries = given.fields(); entries.hasNext(); ) {
            var entry = entries.next();
            policies.put(entry.getKey(), ObjectMapperFactory.getMapper().getObjectMapper()
                    .treeToValue(entry.getValue(), NamespaceIsolationDataImpl.class));
        }
        return policies.isEmpty() ? Optional.empty()
                : Optional.of(new NamespaceIsolationPolicies(policies));
    }

    private Optional<LocalPolicies> group(NamespaceName namespace) {
        JsonNode name = cycle.path("namespaces").path(namespace.toString()).path("antiAffinityGroup");
        return name.isMissingNode() ? Optional.empty()
                : Optional.of(new LocalPolicies(null, null, name.asText()));
    }

    private void namespaces() {
        NamespaceService service = pulsar.getNamespaceService();
        when(service.getNamespaceBundleFactory()).thenReturn(bundles);
        when(service.getOwnedServiceUnits()).thenReturn(Set.of());
        try {
            when(service.getBundleCount(any())).thenAnswer(call -> cycle.path("namespaces")
                    .path(call.getArgument(0).toString()).path("boundaries").size() - 1);
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
        when(service.getOwnedTopicListForNamespaceBundle(any())).thenAnswer(call -> {
            List<String> names = new ArrayList<>();
            topics(call.getArgument(0).toString()).fieldNames().forEachRemaining(names::add);
            return CompletableFuture.completedFuture(names);
        });
        when(service.getNamespaceBundleSplitAlgorithmByName(any()))
                .thenAnswer(call -> NamespaceBundleSplitAlgorithm.of(call.getArgument(0)));
        when(service.getSplitBoundary(any(NamespaceBundle.class), any(),
                any(NamespaceBundleSplitAlgorithm.class)))
                .thenAnswer(call -> boundaries(call.getArgument(0), call.getArgument(2), null));
    }

    private JsonNode topics(String bundle) {
        return cycle.path("topics").path(bundle);
    }

    CompletableFuture<List<Long>> boundaries(
            NamespaceBundle bundle, NamespaceBundleSplitAlgorithm algorithm, List<Long> positions) {
        if (algorithm != NamespaceBundleSplitAlgorithm.FLOW_OR_QPS_EQUALLY_DIVIDE_ALGO) {
            return algorithm.getSplitBoundary(
                    new BundleSplitOption(pulsar.getNamespaceService(), bundle, positions));
        }
        Map<String, TopicStatsImpl> stats = new TreeMap<>();
        topics(bundle.toString()).fields().forEachRemaining(entry -> {
            TopicStatsImpl topic = new TopicStatsImpl();
            topic.msgRateIn = entry.getValue().path("msgRate").asDouble();
            topic.msgThroughputIn = entry.getValue().path("msgThroughput").asDouble();
            stats.put(entry.getKey(), topic);
        });
        return algorithm.getSplitBoundary(new FlowOrQpsEquallyDivideBundleSplitOption(
                pulsar.getNamespaceService(), bundle, positions, stats,
                conf.getLoadBalancerNamespaceBundleMaxMsgRate(),
                conf.getLoadBalancerNamespaceBundleMaxBandwidthMbytes(),
                conf.getFlowOrQpsDifferenceThresholdPercentage()));
    }
}
