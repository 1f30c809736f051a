import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * What roles may do over TLS, with their tokens. Prints as `Cases` does.
 *
 * Arguments: service URL, file of trusted certificates, topic with a subscription `java`; then a
 * role and its token in turn.
 */
public class Secured extends Cases {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[2];
        for (int i = 3; i < arguments.length; i += 2) {
            String role = arguments[i];
            ClientBuilder builder = PulsarClient.builder().serviceUrl(arguments[0])
                    .tlsTrustCertsFilePath(arguments[1]).enableTlsHostnameVerification(true)
                    .operationTimeout(5, TimeUnit.SECONDS);
            if (!arguments[i + 1].isEmpty()) {
                builder.authentication(AuthenticationFactory.token(arguments[i + 1]));
            }
            try (PulsarClient made = builder.build()) {
                print(role + " produces", answer(() -> produced(made, topic)));
                print(role + " consumes", answer(() -> consumed(made, topic)));
            }
        }
        System.exit(0);
    }

    static Object produced(PulsarClient made, String topic) throws Exception {
        try (Producer<String> producer = made.newProducer(Schema.STRING).topic(topic).create()) {
            producer.send("x");
            return "sent";
        }
    }

    static Object consumed(PulsarClient made, String topic) throws Exception {
        try (Consumer<String> consumer = made.newConsumer(Schema.STRING).topic(topic)
                .subscriptionName("java").subscribe()) {
            Message<String> got = consumer.receive(5, TimeUnit.SECONDS);
            return got == null ? "nothing" : got.getValue();
        }
    }
}
