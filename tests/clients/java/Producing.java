import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.ProducerBuilderImpl;

/** What a producer can ask for. */
public class Producing extends Cases {
    static void declare() {
        CASES.put("basic", Producing::basic);
        CASES.put("batches", Producing::batches);
        for (CompressionType type : CompressionType.values()) {
            CASES.put("compression " + type, () -> compressed(type));
        }
        CASES.put("partitions", Producing::partitions);
        CASES.put("partitions by key", Producing::partitionsByKey);
        CASES.put("more partitions", Producing::morePartitions);
        CASES.put("partition that does not exist",
                () -> producing("partitions-none-partition-9").create());
        CASES.put("chunks", Producing::chunks);
        CASES.put("message too large", () -> client.newProducer().topic(topic("large"))
                .enableBatching(false).create().send(new byte[6 << 20]));
        CASES.put("same producer name", Producing::sameName);
        CASES.put("sequence ids", Producing::sequenceIds);
        CASES.put("exclusive producer", Producing::exclusive);
        CASES.put("exclusive producer among others", Producing::exclusiveAmongOthers);
        CASES.put("exclusive producer waits", Producing::waits);
        CASES.put("exclusive producer fences", Producing::fences);
        CASES.put("exclusive producer of partitions", Producing::exclusivePartitions);
        CASES.put("initial subscription", Producing::initialSubscription);
        CASES.put("initial subscription of partitions", Producing::initialOfPartitions);
        CASES.put("deliver after", () -> delayed(b -> b.deliverAfter(3, TimeUnit.SECONDS)));
        CASES.put("deliver at",
                () -> delayed(b -> b.deliverAt(System.currentTimeMillis() + 3000)));
        CASES.put("deliver after to an exclusive consumer", Producing::delayedExclusive);
        CASES.put("transaction", Producing::transaction);
        CASES.put("client with transactions", Producing::withTransactions);
        CASES.put("replicated to a cluster that does not exist", () -> producing("replicated")
                .create().newMessage().value("x").replicationClusters(List.of("nosuch")).send()
                != null);
        CASES.put("tenant that does not exist", () -> client.newProducer()
                .topic("persistent://nosuch/ns/t").create());
        CASES.put("namespace that does not exist", () -> client.newProducer()
                .topic("persistent://public/nosuch/t").create());
        CASES.put("lookup over HTTP", Producing::overHttp);
        CASES.put("unload while sending", Producing::unloadWhileSending);
        CASES.put("delete a topic in use", Producing::deleteInUse);
        CASES.put("non-persistent", Producing::nonPersistent);
        CASES.put("terminated topic", Producing::terminated);
    }

    static Object basic() throws Exception {
        try (Producer<String> producer = producing("basic").producerName("p").create();
                Consumer<String> consumer = consuming("basic").subscribe()) {
            producer.newMessage().key("k").value("v").property("a", "b").eventTime(7)
                    .orderingKey("o".getBytes()).sequenceId(42).send();
            producer.newMessage().value(null).send();
            Message<String> got = consumer.receive(5, TimeUnit.SECONDS);
            Message<String> empty = consumer.receive(5, TimeUnit.SECONDS);
            return map("key", got.getKey(), "value", got.getValue(), "of", got.getProperties(),
                    "event", got.getEventTime(), "sequence", got.getSequenceId(),
                    "ordering", new String(got.getOrderingKey()), "producer",
                    got.getProducerName(), "null", empty.getValue() == null, "topic",
                    got.getTopicName(), "redelivered", got.getRedeliveryCount(), "index",
                    got.getIndex().isPresent(), "connected", producer.isConnected(), "last",
                    producer.getLastSequenceId());
        }
    }

    static Object batches() throws Exception {
        try (Producer<String> producer = producing("batches").enableBatching(true)
                .batchingMaxMessages(10).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
                Consumer<String> consumer = consuming("batches").subscribe()) {
            List<MessageId> ids = send(producer, 95);
            long entries = ids.stream().map(id -> ((MessageIdAdv) id).getEntryId()).distinct()
                    .count();
            return map("received", receive(consumer, 95), "entries", entries);
        }
    }

    static Object compressed(CompressionType type) throws Exception {
        String text = "x".repeat(10_000);
        try (Producer<String> producer = producing("compressed-" + type).compressionType(type)
                .create();
                Consumer<String> consumer = consuming("compressed-" + type).subscribe()) {
            producer.send(text);
            Message<String> got = consumer.receive(5, TimeUnit.SECONDS);
            return map("same", got.getValue().equals(text), "small", got.size() < 10_000);
        }
    }

    static Object partitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("partitions"), 4);
        try (Producer<String> producer = producing("partitions").create();
                Consumer<String> consumer = consuming("partitions").subscribe()) {
            List<MessageId> ids = send(producer, 40);
            return map("partitions", client.getPartitionsForTopic(topic("partitions")).get(),
                    "each", ids.stream().collect(Collectors.groupingBy(
                            id -> ((MessageIdAdv) id).getPartitionIndex(), TreeMap::new,
                            Collectors.counting())),
                    "received", sorted(receive(consumer, 40)), "last",
                    consumer.getLastMessageIds().size());
        }
    }

    static Object partitionsByKey() throws Exception {
        admin.topics().createPartitionedTopic(topic("keys"), 4);
        try (Producer<String> producer = producing("keys").create()) {
            List<Integer> to = new ArrayList<>();
            for (String key : List.of("a", "b", "c", "a", "b", "c")) {
                MessageId id = producer.newMessage().key(key).value("x").send();
                to.add(((MessageIdAdv) id).getPartitionIndex());
            }
            return to;
        }
    }

    static Object morePartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("more"), 2);
        try (Producer<String> producer = producing("more")
                .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).create();
                Consumer<String> consumer = consuming("more")
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS).subscribe()) {
            admin.topics().updatePartitionedTopic(topic("more"), 3);
            Set<Integer> used = new TreeSet<>();
            long ends = System.nanoTime() + 20_000_000_000L;
            while (used.size() < 3 && System.nanoTime() < ends) {
                used.add(((MessageIdAdv) producer.send("x")).getPartitionIndex());
            }
            Set<String> from = new TreeSet<>();
            while (from.size() < 3 && System.nanoTime() < ends) {
                Message<String> message = consumer.receive(1, TimeUnit.SECONDS);
                if (message != null) {
                    from.add(message.getTopicName());
                }
            }
            return map("used", used, "from", from);
        }
    }

    static Object chunks() throws Exception {
        byte[] large = new byte[12 << 20];
        new Random(1).nextBytes(large);
        try (Producer<byte[]> producer = client.newProducer().topic(topic("chunks"))
                .enableBatching(false).enableChunking(true).create();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic("chunks"))
                        .subscriptionName("s").subscribe()) {
            producer.send(large);
            producer.send("after".getBytes());
            Message<byte[]> got = consumer.receive(20, TimeUnit.SECONDS);
            consumer.acknowledge(got);
            return map("same", Arrays.equals(large, got.getValue()), "next",
                    new String(consumer.receive(5, TimeUnit.SECONDS).getValue()));
        }
    }

    static Object sameName() throws Exception {
        try (Producer<String> producer = producing("name").producerName("p").create()) {
            Object second = answer(() -> producing("name").producerName("p").create());
            producer.send("x");
            return map("second", second, "first", producer.isConnected());
        }
    }

    static Object sequenceIds() throws Exception {
        try (Producer<String> producer = producing("sequence").producerName("p").create();
                Consumer<String> consumer = consuming("sequence").subscribe()) {
            for (long id : new long[] {1, 2, 2, 3}) {
                producer.newMessage().sequenceId(id).value("" + id).send();
            }
            return receive(consumer, 5);
        }
    }

    static ProducerBuilder<String> access(String name, ProducerAccessMode mode) {
        return producing(name).accessMode(mode);
    }

    static Object exclusive() throws Exception {
        try (Producer<String> first =
                access("exclusive", ProducerAccessMode.Exclusive).create()) {
            first.send("x");
            Object second = answer(
                    () -> access("exclusive", ProducerAccessMode.Exclusive).create());
            Object shared = answer(() -> producing("exclusive").create());
            first.send("y");
            first.close();
            Object after = answer(() -> {
                access("exclusive", ProducerAccessMode.Exclusive).create().close();
                return "ok";
            });
            return map("second", second, "shared", shared, "after", after);
        }
    }

    static Object exclusiveAmongOthers() throws Exception {
        try (Producer<String> first = producing("among").create()) {
            return answer(() -> access("among", ProducerAccessMode.Exclusive).create());
        }
    }

    static Object waits() throws Exception {
        Producer<String> first = access("waits", ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<String>> second =
                access("waits", ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(1500);
        boolean waited = !second.isDone();
        first.close();
        second.get(10, TimeUnit.SECONDS).send("x");
        Object third = answer(() -> access("waits", ProducerAccessMode.Exclusive).create());
        second.get().close();
        return map("waited", waited, "third", third);
    }

    static Object fences() throws Exception {
        Producer<String> first = access("fences", ProducerAccessMode.Exclusive).create();
        first.send("x");
        Producer<String> second =
                access("fences", ProducerAccessMode.ExclusiveWithFencing).create();
        Object old = answer(() -> {
            for (int i = 0; i < 20; i++) {
                first.send("late");
                Thread.sleep(100);
            }
            return "sends on";
        });
        second.send("y");
        second.close();
        return map("old", old, "received", receive(consuming("fences").subscribe(), 3));
    }

    static Object exclusivePartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("excl-parts"), 3);
        try (Producer<String> first =
                access("excl-parts", ProducerAccessMode.Exclusive).create()) {
            return answer(() -> access("excl-parts", ProducerAccessMode.Exclusive).create());
        }
    }

    static Object keptFor(String name) throws Exception {
        try (Producer<String> producer = ((ProducerBuilderImpl<String>) producing(name))
                .initialSubscriptionName("early").create()) {
            producer.send("x");
        }
        try (Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic(name))
                .subscriptionName("early").subscribe()) {
            return receive(consumer, 1);
        }
    }

    static Object initialSubscription() throws Exception {
        return keptFor("initial");
    }

    static Object initialOfPartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("initial-parts"), 2);
        return keptFor("initial-parts");
    }

    interface Delay {
        TypedMessageBuilder<String> of(TypedMessageBuilder<String> builder);
    }

    static Object delayed(Delay delay) throws Exception {
        String name = "delayed-" + System.nanoTime();
        try (Producer<String> producer = producing(name).create();
                Consumer<String> consumer = consuming(name)
                        .subscriptionType(SubscriptionType.Shared).subscribe()) {
            long started = System.nanoTime();
            delay.of(producer.newMessage().value("later")).send();
            producer.send("now");
            String first = consumer.receive(10, TimeUnit.SECONDS).getValue();
            String second = consumer.receive(10, TimeUnit.SECONDS).getValue();
            return map("first", first, "second", second, "came", about(started, 3000));
        }
    }

    static Object delayedExclusive() throws Exception {
        try (Producer<String> producer = producing("delayed-exclusive").create();
                Consumer<String> consumer = consuming("delayed-exclusive").subscribe()) {
            long started = System.nanoTime();
            producer.newMessage().value("x").deliverAfter(5, TimeUnit.SECONDS).send();
            consumer.receive(10, TimeUnit.SECONDS);
            return about(started, 0);
        }
    }

    static Object transaction() throws Exception {
        return client.newTransaction().build().get();
    }

    static Object withTransactions() throws Exception {
        try (PulsarClient own = PulsarClient.builder().serviceUrl(serviceUrl)
                .enableTransaction(true).build()) {
            return "built";
        }
    }

    static Object overHttp() throws Exception {
        try (PulsarClient own = PulsarClient.builder().serviceUrl(adminUrl).build();
                Producer<String> producer =
                        own.newProducer(Schema.STRING).topic(topic("http")).create()) {
            producer.send("x");
            try (Consumer<String> reading = own.newConsumer(Schema.STRING).topic(topic("http"))
                    .subscriptionName("t")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .subscribe()) {
                return map("received", receive(reading, 1), "partitions",
                        own.getPartitionsForTopic(topic("http")).get());
            }
        }
    }

    static Object unloadWhileSending() throws Exception {
        try (Producer<String> producer = producing("unload").create();
                Consumer<String> consumer = consuming("unload").subscribe()) {
            Set<String> received = new TreeSet<>();
            for (int i = 0; i < 30; i++) {
                if (i % 10 == 5) {
                    admin.topics().unload(topic("unload"));
                }
                producer.send("" + i);
                received.addAll(receive(consumer, 1));
            }
            received.addAll(receive(consumer, 30)); // what was redelivered took turns
            return received;
        }
    }

    static Object deleteInUse() throws Exception {
        try (Producer<String> producer = producing("deleted").create()) {
            Object refused = answer(() -> {
                admin.topics().delete(topic("deleted"));
                return "deleted";
            });
            producer.close();
            admin.topics().delete(topic("deleted"));
            return map("refused", refused, "listed",
                    admin.topics().getList("public/clients").contains(topic("deleted")));
        }
    }

    static Object nonPersistent() throws Exception {
        String name = "non-" + topic("np");
        try (Producer<String> producer = client.newProducer(Schema.STRING).topic(name).create();
                Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(name)
                        .subscriptionName("s").subscribe()) {
            send(producer, 10);
            return receive(consumer, 10);
        }
    }

    static Object terminated() throws Exception {
        try (Producer<String> producer = producing("terminated").create()) {
            producer.send("x");
            Object last = answer(() -> {
                admin.topics().terminateTopic(topic("terminated"));
                return "terminated";
            });
            return map("terminate", last, "send", answer(() -> producer.send("y") != null));
        }
    }
}
