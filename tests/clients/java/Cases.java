import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.*;
import java.util.concurrent.*;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.*;

/**
 * Runs named cases against a service and prints one JSON line for each:
 * {"case": …, "answer": …}. An answer has the class of an exception, never its text.
 *
 * Arguments: service URL, URL of the admin API, how names of topics begin; then names of cases, if
 * only some shall run.
 */
public class Cases {
    /** What a client sees, as JSON values that do not depend on times, ports or ids. */
    interface Body {
        Object run() throws Exception;
    }

    static final int AT_ONCE = 6;
    static final int SECONDS_MAX = 60;
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Body> CASES = new LinkedHashMap<>();

    static String serviceUrl;
    static String adminUrl;
    static String prefix;
    static PulsarClient client;
    static PulsarAdmin admin;

    public static void main(String[] arguments) throws Exception {
        serviceUrl = arguments[0];
        adminUrl = arguments[1];
        prefix = arguments[2];
        client = PulsarClient.builder().serviceUrl(serviceUrl).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(adminUrl).build();
        Producing.declare();
        Consuming.declare();
        Typed.declare();
        if (arguments.length > 3) {
            CASES.keySet().retainAll(List.of(arguments).subList(3, arguments.length));
        }
        ExecutorService bodies = Executors.newCachedThreadPool();
        ExecutorService waiting = Executors.newFixedThreadPool(AT_ONCE);
        for (Map.Entry<String, Body> entry : CASES.entrySet()) {
            waiting.submit(() -> {
                Object answer;
                Future<Object> future = bodies.submit(() -> answer(entry.getValue()));
                try {
                    answer = future.get(SECONDS_MAX, TimeUnit.SECONDS);
                } catch (TimeoutException late) {
                    answer = "no answer within " + SECONDS_MAX + " s";
                } catch (Exception other) {
                    answer = nameOf(other);
                }
                print(entry.getKey(), answer);
            });
        }
        waiting.shutdown();
        waiting.awaitTermination(1, TimeUnit.HOURS);
        System.exit(0);
    }

    static synchronized void print(String name, Object answer) {
        try {
            System.out.println(JSON.writeValueAsString(Map.of("case", name, "answer", answer)));
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    /** What a body answers, or the class of what it raises. */
    static Object answer(Body body) {
        try {
            Object answer = body.run();
            return answer == null ? "done" : answer;
        } catch (Throwable error) {
            return nameOf(error);
        }
    }

    /** The class of an exception, without what futures wrap around it. */
    static String nameOf(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof CompletionException)
                && error.getCause() != null) {
            error = error.getCause();
        }
        if (System.getenv("VERBOSE") != null) {
            System.err.println(error);
        }
        return error.getClass().getSimpleName();
    }

    /** Keys and values in turn, in this order. */
    static Map<String, Object> map(Object... pairs) {
        Map<String, Object> made = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            made.put((String) pairs[i], pairs[i + 1]);
        }
        return made;
    }

    static String topic(String name) {
        return "persistent://public/clients/" + prefix + name;
    }

    static ProducerBuilder<String> producing(String name) {
        return client.newProducer(Schema.STRING).topic(topic(name)).enableBatching(false);
    }

    static ConsumerBuilder<String> consuming(String name) {
        return client.newConsumer(Schema.STRING).topic(topic(name)).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** Sends "0", "1", … and returns their ids. */
    static List<MessageId> send(Producer<String> producer, int count) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.sendAsync(Integer.toString(i)));
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> one : sent) {
            ids.add(one.get());
        }
        return ids;
    }

    /** Texts as they come, acknowledged; ends when there are so many, or none for a while. */
    static List<String> receive(Consumer<String> consumer, int count) throws Exception {
        List<String> texts = new ArrayList<>();
        while (texts.size() < count) {
            Message<String> message = consumer.receive(3, TimeUnit.SECONDS);
            if (message == null) {
                break;
            }
            texts.add(message.getValue());
            consumer.acknowledge(message);
        }
        return texts;
    }

    static List<String> sorted(Collection<String> texts) {
        List<String> made = new ArrayList<>(texts);
        Collections.sort(made);
        return made;
    }

    /**
     * Whether a duration is as long as it must be, and not much longer. Pulsar's clock of delayed
     * messages ticks once a second, and rounds down.
     */
    static String about(long startedNanos, long millis) {
        long took = (System.nanoTime() - startedNanos) / 1_000_000;
        if (took < millis - 1000) {
            return "early";
        }
        return took < millis + 5000 ? "in time" : "late";
    }
}
