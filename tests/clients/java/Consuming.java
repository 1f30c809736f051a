import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import java.util.stream.*;
import org.apache.pulsar.client.api.*;

/** What a consumer or a reader can ask for. */
public class Consuming extends Cases {
    static void declare() {
        CASES.put("exclusive", Consuming::exclusive);
        CASES.put("failover", Consuming::failover);
        CASES.put("shared", Consuming::shared);
        CASES.put("shared with priorities", Consuming::priorities);
        CASES.put("key_shared", () -> consuming("keyed")
                .subscriptionType(SubscriptionType.Key_Shared).subscribe().isConnected());
        CASES.put("other type of subscription", Consuming::otherType);
        CASES.put("negative acknowledgement", Consuming::negative);
        CASES.put("redeliver unacknowledged", Consuming::redeliver);
        CASES.put("ack timeout", Consuming::ackTimeout);
        CASES.put("ack receipt", Consuming::ackReceipt);
        CASES.put("cumulative", Consuming::cumulative);
        CASES.put("part of a batch", () -> partOfBatch(SubscriptionType.Shared));
        CASES.put("part of a batch, exclusive",
                () -> partOfBatch(SubscriptionType.Exclusive));
        CASES.put("dead letters", Consuming::deadLetters);
        CASES.put("retry topic", Consuming::retryTopic);
        CASES.put("queue of 0", () -> queue(0));
        CASES.put("queue of 1", () -> queue(1));
        CASES.put("batch receive", Consuming::batchReceive);
        CASES.put("topics", Consuming::topics);
        CASES.put("pattern", Consuming::pattern);
        CASES.put("seek by id", Consuming::seekById);
        CASES.put("seek by time", Consuming::seekByTime);
        CASES.put("seek of partitions", Consuming::seekPartitions);
        CASES.put("unsubscribe", Consuming::unsubscribe);
        CASES.put("unsubscribe shared by two", Consuming::unsubscribeShared);
        CASES.put("unsubscribe by force", Consuming::unsubscribeForced);
        CASES.put("non-durable", Consuming::nonDurable);
        CASES.put("last message id", Consuming::lastMessageId);
        for (boolean batched : new boolean[] {false, true}) {
            for (boolean inclusive : new boolean[] {false, true}) {
                CASES.put("reader" + (batched ? " of batches" : "")
                        + (inclusive ? ", inclusive" : ""), () -> reader(batched, inclusive));
            }
        }
        CASES.put("reader from earliest and latest", Consuming::readerEnds);
        CASES.put("reader of partitions", Consuming::readerOfPartitions);
        CASES.put("reader seeks by time", Consuming::readerSeeks);
        CASES.put("compacted reader", Consuming::compacted);
        CASES.put("compacted shared consumer", () -> consuming("compacted-shared")
                .readCompacted(true).subscriptionType(SubscriptionType.Shared).subscribe());
        CASES.put("subscription properties", Consuming::properties);
        CASES.put("replicated subscription", () -> consuming("replicated-sub")
                .replicateSubscriptionState(true).subscribe().isConnected());
        CASES.put("consumer in a namespace that does not exist", () -> client.newConsumer()
                .topic("persistent://public/nosuch/t").subscriptionName("s").subscribe());
        CASES.put("backlog of a deleted subscription", Consuming::deletedSubscription);
        CASES.put("stats in use", Consuming::stats);
    }

    static Object exclusive() throws Exception {
        try (Consumer<String> first = consuming("exclusive-sub").subscribe()) {
            return answer(() -> consuming("exclusive-sub").subscribe());
        }
    }

    static Object failover() throws Exception {
        Map<String, List<String>> told = new ConcurrentHashMap<>(
                Map.of("a", new ArrayList<>(), "b", new ArrayList<>()));
        List<Consumer<String>> consumers = new ArrayList<>();
        for (String name : List.of("a", "b")) {
            consumers.add(consuming("failover").subscriptionType(SubscriptionType.Failover)
                    .consumerName(name).consumerEventListener(new ConsumerEventListener() {
                        public void becameActive(Consumer<?> consumer, int partition) {
                            told.get(name).add("active " + partition);
                        }

                        public void becameInactive(Consumer<?> consumer, int partition) {
                            if (told.get(name).isEmpty()) { // Pulsar may say so twice
                                told.get(name).add("inactive " + partition);
                            }
                        }
                    }).subscribe());
        }
        Producer<String> producer = producing("failover").create();
        Thread.sleep(2000);
        send(producer, 5);
        List<String> first = receive(consumers.get(0), 5);
        Message<String> none = consumers.get(1).receive(300, TimeUnit.MILLISECONDS);
        consumers.get(0).close();
        send(producer, 5);
        List<String> second = receive(consumers.get(1), 5);
        return map("first", first, "idle", none == null, "second", second, "told", told);
    }

    static Object shared() throws Exception {
        List<Consumer<String>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(consuming("shared").subscriptionType(SubscriptionType.Shared)
                    .receiverQueueSize(10).subscribe());
        }
        send(producing("shared").create(), 90);
        Set<String> all = new TreeSet<>();
        for (Consumer<String> consumer : consumers) {
            all.addAll(receive(consumer, 90));
        }
        return all.size();
    }

    static Object priorities() throws Exception {
        Consumer<String> low = consuming("priorities").subscriptionType(SubscriptionType.Shared)
                .priorityLevel(1).subscribe();
        Consumer<String> high = consuming("priorities")
                .subscriptionType(SubscriptionType.Shared).priorityLevel(0).subscribe();
        send(producing("priorities").create(), 20);
        return map("high", sorted(receive(high, 20)), "low",
                low.receive(300, TimeUnit.MILLISECONDS) == null);
    }

    static Object otherType() throws Exception {
        try (Consumer<String> first = consuming("other-type")
                .subscriptionType(SubscriptionType.Shared).subscribe()) {
            return answer(() -> consuming("other-type")
                    .subscriptionType(SubscriptionType.Failover).subscribe());
        }
    }

    static Object negative() throws Exception {
        try (Producer<String> producer = producing("negative").create();
                Consumer<String> consumer = consuming("negative")
                        .subscriptionType(SubscriptionType.Shared)
                        .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe()) {
            send(producer, 3);
            List<String> seen = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                Message<String> message = consumer.receive(5, TimeUnit.SECONDS);
                if (message.getValue().equals("1") && message.getRedeliveryCount() < 2) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
                seen.add(message.getValue() + " × " + message.getRedeliveryCount());
            }
            return sorted(seen);
        }
    }

    static Object redeliver() throws Exception {
        try (Producer<String> producer = producing("redeliver").create();
                Consumer<String> consumer = consuming("redeliver").subscribe()) {
            send(producer, 5);
            for (int i = 0; i < 5; i++) {
                Message<String> message = consumer.receive(5, TimeUnit.SECONDS);
                if (i == 1) {
                    consumer.acknowledge(message);
                }
            }
            Thread.sleep(300);
            consumer.redeliverUnacknowledgedMessages();
            return receive(consumer, 4);
        }
    }

    static Object ackTimeout() throws Exception {
        try (Producer<String> producer = producing("ack-timeout").create();
                Consumer<String> consumer = consuming("ack-timeout")
                        .subscriptionType(SubscriptionType.Shared)
                        .ackTimeout(1, TimeUnit.SECONDS).subscribe()) {
            producer.send("x");
            consumer.receive(5, TimeUnit.SECONDS);
            return consumer.receive(10, TimeUnit.SECONDS).getRedeliveryCount();
        }
    }

    static Object ackReceipt() throws Exception {
        try (Producer<String> producer = producing("receipt").create();
                Consumer<String> consumer =
                        consuming("receipt").isAckReceiptEnabled(true).subscribe()) {
            send(producer, 2);
            consumer.acknowledgeAsync(consumer.receive()).get(5, TimeUnit.SECONDS);
            consumer.acknowledgeCumulativeAsync(consumer.receive()).get(5, TimeUnit.SECONDS);
            return backlog("receipt", 0);
        }
    }

    /** The backlog once it is what it should become, or what it is after a while. */
    static long backlog(String name, long expected) throws Exception {
        for (int i = 0;; i++) {
            long found = admin.topics().getStats(topic(name), true).getSubscriptions().get("s")
                    .getMsgBacklog();
            if (found == expected || i == 50) {
                return found;
            }
            Thread.sleep(100);
        }
    }

    static Object cumulative() throws Exception {
        try (Producer<String> producer = producing("cumulative").create();
                Consumer<String> consumer = consuming("cumulative").subscribe()) {
            List<MessageId> ids = send(producer, 10);
            for (int i = 0; i < 10; i++) {
                consumer.receive(5, TimeUnit.SECONDS);
            }
            consumer.acknowledgeCumulative(ids.get(6));
        }
        try (Consumer<String> consumer = consuming("cumulative").subscribe()) {
            return receive(consumer, 3);
        }
    }

    static Object partOfBatch(SubscriptionType type) throws Exception {
        String name = "part-" + type;
        try (Producer<String> producer = producing(name).enableBatching(true)
                .batchingMaxMessages(10).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create();
                Consumer<String> consumer = consuming(name).subscriptionType(type)
                        .enableBatchIndexAcknowledgment(true).subscribe()) {
            send(producer, 10);
            for (int i = 0; i < 10; i++) {
                Message<String> message = consumer.receive(5, TimeUnit.SECONDS);
                if (i % 3 != 0) {
                    consumer.acknowledge(message);
                }
            }
        }
        try (Consumer<String> consumer = consuming(name).subscriptionType(type)
                .enableBatchIndexAcknowledgment(true).subscribe()) {
            return receive(consumer, 4);
        }
    }

    static Object deadLetters() throws Exception {
        try (Producer<String> producer = producing("dead").create();
                Consumer<String> consumer = consuming("dead")
                        .subscriptionType(SubscriptionType.Shared)
                        .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2)
                                .deadLetterTopic(topic("dead-letters"))
                                .initialSubscriptionName("kept").build())
                        .subscribe()) {
            producer.send("bad");
            int deliveries = 0;
            Message<String> message;
            while ((message = consumer.receive(2, TimeUnit.SECONDS)) != null) {
                deliveries++;
                consumer.negativeAcknowledge(message);
            }
            Consumer<String> dead = client.newConsumer(Schema.STRING)
                    .topic(topic("dead-letters")).subscriptionName("kept").subscribe();
            message = dead.receive(5, TimeUnit.SECONDS);
            return map("deliveries", deliveries, "letter", message.getValue(), "from",
                    message.getProperty("REAL_TOPIC"), "backlog", backlog("dead", 0));
        }
    }

    static Object retryTopic() throws Exception {
        try (Producer<String> producer = producing("retry").create();
                Consumer<String> consumer = consuming("retry").enableRetry(true)
                        .subscriptionType(SubscriptionType.Shared)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2)
                                .retryLetterTopic(topic("retry-RETRY"))
                                .deadLetterTopic(topic("retry-DLQ"))
                                .initialSubscriptionName("kept").build())
                        .subscribe()) {
            producer.send("bad");
            List<Object> came = new ArrayList<>();
            long started = System.nanoTime();
            Message<String> message;
            while ((message = consumer.receive(5, TimeUnit.SECONDS)) != null) {
                came.add(about(started, 1500L * came.size()));
                consumer.reconsumeLater(message, 1500, TimeUnit.MILLISECONDS);
            }
            Consumer<String> dead = client.newConsumer(Schema.STRING)
                    .topic(topic("retry-DLQ")).subscriptionName("kept").subscribe();
            message = dead.receive(5, TimeUnit.SECONDS);
            return map("came", came, "letter", message.getValue());
        }
    }

    static Object queue(int size) throws Exception {
        try (Producer<String> producer = producing("queue" + size).create();
                Consumer<String> consumer =
                        consuming("queue" + size).receiverQueueSize(size).subscribe()) {
            send(producer, 5);
            List<String> texts = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                Message<String> message = consumer.receive();
                texts.add(message.getValue());
                consumer.acknowledge(message);
            }
            return texts;
        }
    }

    static Object batchReceive() throws Exception {
        try (Producer<String> producer = producing("batch-receive").create();
                Consumer<String> consumer = consuming("batch-receive")
                        .batchReceivePolicy(BatchReceivePolicy.builder().maxNumMessages(7)
                                .timeout(2, TimeUnit.SECONDS).build())
                        .subscribe()) {
            send(producer, 10);
            return List.of(consumer.batchReceive().size(), consumer.batchReceive().size());
        }
    }

    static Object topics() throws Exception {
        for (String name : List.of("topics-a", "topics-b")) {
            send(producing(name).create(), 2);
        }
        try (Consumer<String> consumer = client.newConsumer(Schema.STRING)
                .topics(List.of(topic("topics-a"), topic("topics-b"))).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            return sorted(receive(consumer, 4));
        }
    }

    static Object pattern() throws Exception {
        send(producing("pattern-a").create(), 2);
        try (Consumer<String> consumer = client.newConsumer(Schema.STRING)
                .topicsPattern(Pattern.compile(topic("pattern-.*")))
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            List<String> first = receive(consumer, 2);
            send(producing("pattern-b").create(), 2);
            List<String> second = new ArrayList<>();
            for (int i = 0; i < 10 && second.size() < 2; i++) {
                second.addAll(receive(consumer, 2 - second.size()));
            }
            return map("first", first, "second", second);
        }
    }

    static Object seekById() throws Exception {
        try (Producer<String> producer = producing("seek").create();
                Consumer<String> consumer = consuming("seek").subscribe()) {
            List<MessageId> ids = send(producer, 10);
            receive(consumer, 10);
            consumer.seek(ids.get(7));
            List<String> from = receive(consumer, 4);
            consumer.seek(MessageId.earliest);
            List<String> all = receive(consumer, 10);
            consumer.seek(MessageId.latest);
            producer.send("new");
            return map("from 7", from, "all", all.size(), "latest", receive(consumer, 1));
        }
    }

    static Object seekByTime() throws Exception {
        try (Producer<String> producer = producing("seek-time").create();
                Consumer<String> consumer = consuming("seek-time").subscribe()) {
            send(producer, 3);
            Thread.sleep(50);
            long then = System.currentTimeMillis();
            Thread.sleep(50);
            producer.send("x");
            receive(consumer, 4);
            consumer.seek(then);
            return receive(consumer, 2);
        }
    }

    static Object seekPartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("seek-parts"), 3);
        try (Producer<String> producer = producing("seek-parts").create();
                Consumer<String> consumer = consuming("seek-parts").subscribe()) {
            send(producer, 9);
            receive(consumer, 9);
            consumer.seek(MessageId.earliest);
            return sorted(receive(consumer, 9));
        }
    }

    static Object unsubscribe() throws Exception {
        Consumer<String> consumer = consuming("unsubscribe").subscribe();
        consumer.unsubscribe();
        return admin.topics().getSubscriptions(topic("unsubscribe"));
    }

    static Object unsubscribeShared() throws Exception {
        List<Consumer<String>> two = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            two.add(consuming("unsubscribe-shared").subscriptionType(SubscriptionType.Shared)
                    .subscribe());
        }
        return answer(() -> {
            two.get(0).unsubscribe();
            return "unsubscribed";
        });
    }

    static Object unsubscribeForced() throws Exception {
        List<Consumer<String>> two = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            two.add(consuming("unsubscribe-forced").subscriptionType(SubscriptionType.Shared)
                    .subscribe());
        }
        two.get(1).close();
        two.get(0).unsubscribe(true);
        return admin.topics().getSubscriptions(topic("unsubscribe-forced"));
    }

    static Object nonDurable() throws Exception {
        try (Producer<String> producer = producing("non-durable").create()) {
            send(producer, 3);
            List<String> got;
            try (Consumer<String> consumer = consuming("non-durable")
                    .subscriptionMode(SubscriptionMode.NonDurable).subscribe()) {
                got = receive(consumer, 3);
            }
            return map("got", got, "left",
                    admin.topics().getSubscriptions(topic("non-durable")));
        }
    }

    static Object lastMessageId() throws Exception {
        try (Producer<String> producer = producing("last-id").create();
                Consumer<String> consumer = consuming("last-id").subscribe()) {
            MessageIdAdv none = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            List<MessageId> ids = send(producer, 3);
            return map("empty", none.getEntryId(), "same",
                    consumer.getLastMessageIds().get(0).compareTo((TopicMessageId)
                            TopicMessageId.create(topic("last-id"), ids.get(2))));
        }
    }

    static Object reader(boolean batched, boolean inclusive) throws Exception {
        String name = "reader-" + batched + inclusive;
        try (Producer<String> producer = producing(name).enableBatching(batched)
                .batchingMaxMessages(4).batchingMaxPublishDelay(1, TimeUnit.SECONDS).create()) {
            List<MessageId> ids = send(producer, 12);
            ReaderBuilder<String> builder = client.newReader(Schema.STRING).topic(topic(name))
                    .startMessageId(ids.get(5));
            try (Reader<String> reader =
                    (inclusive ? builder.startMessageIdInclusive() : builder).create()) {
                List<String> texts = new ArrayList<>();
                while (reader.hasMessageAvailable()) {
                    texts.add(reader.readNext(5, TimeUnit.SECONDS).getValue());
                }
                return texts;
            }
        }
    }

    static Object readerEnds() throws Exception {
        try (Producer<String> producer = producing("ends").create()) {
            send(producer, 3);
            try (Reader<String> early = client.newReader(Schema.STRING).topic(topic("ends"))
                    .startMessageId(MessageId.earliest).create();
                    Reader<String> late = client.newReader(Schema.STRING).topic(topic("ends"))
                            .startMessageId(MessageId.latest).create();
                    Reader<String> last = client.newReader(Schema.STRING).topic(topic("ends"))
                            .startMessageId(MessageId.latest).startMessageIdInclusive()
                            .create()) {
                boolean nothing = late.hasMessageAvailable();
                producer.send("new");
                return map("early", early.readNext(5, TimeUnit.SECONDS).getValue(), "nothing",
                        nothing, "late", late.readNext(5, TimeUnit.SECONDS).getValue(), "last",
                        last.readNext(5, TimeUnit.SECONDS).getValue());
            }
        }
    }

    static Object readerOfPartitions() throws Exception {
        admin.topics().createPartitionedTopic(topic("reader-parts"), 3);
        try (Producer<String> producer = producing("reader-parts").create();
                Reader<String> reader = client.newReader(Schema.STRING)
                        .topic(topic("reader-parts")).startMessageId(MessageId.earliest)
                        .create()) {
            send(producer, 9);
            List<String> texts = new ArrayList<>();
            while (texts.size() < 9) {
                texts.add(reader.readNext(5, TimeUnit.SECONDS).getValue());
            }
            return sorted(texts);
        }
    }

    static Object readerSeeks() throws Exception {
        try (Producer<String> producer = producing("reader-seek").create();
                Reader<String> reader = client.newReader(Schema.STRING)
                        .topic(topic("reader-seek")).startMessageId(MessageId.earliest)
                        .create()) {
            send(producer, 3);
            Thread.sleep(50);
            long then = System.currentTimeMillis();
            Thread.sleep(50);
            producer.send("x");
            reader.readNext(5, TimeUnit.SECONDS);
            reader.seek(then);
            return reader.readNext(5, TimeUnit.SECONDS).getValue();
        }
    }

    static Object compacted() throws Exception {
        try (Producer<String> producer = producing("compacted").create()) {
            for (int i = 0; i < 10; i++) {
                producer.newMessage().key("k").value("" + i).send();
            }
            Object triggered = answer(() -> {
                admin.topics().triggerCompaction(topic("compacted"));
                return "triggered";
            });
            Object opened = answer(() -> {
                try (Reader<String> reader = client.newReader(Schema.STRING)
                        .topic(topic("compacted")).startMessageId(MessageId.earliest)
                        .readCompacted(true).create()) {
                    return "opened";
                }
            });
            return map("triggered", triggered, "reader", opened);
        }
    }

    static Object properties() throws Exception {
        try (Consumer<String> consumer = consuming("properties").consumerName("c")
                .property("a", "b").subscriptionProperties(Map.of("c", "d")).subscribe()) {
            var subscription = admin.topics().getStats(topic("properties")).getSubscriptions()
                    .get("s");
            return map("consumer", subscription.getConsumers().get(0).getConsumerName(), "meta",
                    subscription.getConsumers().get(0).getMetadata(), "properties",
                    subscription.getSubscriptionProperties());
        }
    }

    static Object deletedSubscription() throws Exception {
        try (Producer<String> producer = producing("deleted-sub").create();
                Consumer<String> consumer = consuming("deleted-sub").subscribe()) {
            Object refused = answer(() -> {
                admin.topics().deleteSubscription(topic("deleted-sub"), "s");
                return "deleted";
            });
            return map("refused", refused);
        }
    }

    static Object stats() throws Exception {
        try (Producer<String> producer = producing("stats").create();
                Consumer<String> consumer = consuming("stats").receiverQueueSize(3)
                        .subscriptionType(SubscriptionType.Shared).subscribe()) {
            send(producer, 10);
            consumer.acknowledgeAsync(consumer.receive()).get();
            Thread.sleep(500);
            var stats = admin.topics().getStats(topic("stats"));
            var subscription = stats.getSubscriptions().get("s");
            return map("in", stats.getMsgInCounter(), "publishers",
                    stats.getPublishers().size(), "backlog", subscription.getMsgBacklog(),
                    "unacked", subscription.getUnackedMessages(), "type",
                    subscription.getType(), "consumers", subscription.getConsumers().size());
        }
    }
}
