import java.util.*;
import java.util.concurrent.*;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.api.schema.*;
import org.apache.pulsar.common.schema.*;

/** Schemas. */
public class Typed extends Cases {
    public static class User {
        public String name;
        public int age;
    }

    /** A field more, which is optional. */
    public static class Wider {
        public String name;
        public int age;
        public String mail;
    }

    /** Another type of a field. */
    public static class Other {
        public String name;
        public List<String> age;
    }

    static final Map<String, Schema<User>> KINDS =
            Map.of("JSON", Schema.JSON(User.class), "AVRO", Schema.AVRO(User.class));

    static void declare() {
        for (String kind : List.of("JSON", "AVRO")) {
            boolean json = kind.equals("JSON");
            CASES.put(kind, () -> typed(kind));
            CASES.put(kind + " at every broker", () -> autoConsume(kind));
            CASES.put(kind + " optional field added",
                    () -> other(kind, json ? Schema.JSON(Wider.class) : Schema.AVRO(Wider.class)));
            CASES.put(kind + " incompatible",
                    () -> other(kind, json ? Schema.JSON(Other.class) : Schema.AVRO(Other.class)));
            CASES.put(kind + " and STRING", () -> other(kind, Schema.STRING));
            CASES.put(kind + " and no schema", () -> other(kind, Schema.BYTES));
        }
        CASES.put("produce bytes of a schema", Typed::autoProduce);
        CASES.put("primitive schemas", Typed::primitives);
        CASES.put("key and value", Typed::keyValue);
        CASES.put("schema over HTTP", Typed::overHttp);
        CASES.put("table view", Typed::tableView);
    }

    static User user(String name, int age) {
        User made = new User();
        made.name = name;
        made.age = age;
        return made;
    }

    static String show(User user) {
        return user.name + " " + user.age;
    }

    static Object typed(String kind) throws Exception {
        Schema<User> schema = KINDS.get(kind);
        try (Producer<User> producer = client.newProducer(schema).topic(topic(kind)).create();
                Consumer<User> consumer = client.newConsumer(schema).topic(topic(kind))
                        .subscriptionName("s").subscribe()) {
            producer.send(user("a", 1));
            return show(consumer.receive(5, TimeUnit.SECONDS).getValue());
        }
    }

    static Object autoConsume(String kind) throws Exception {
        List<Object> fields = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            String name = topic(kind + "-auto-" + i);
            try (Producer<User> producer =
                    client.newProducer(KINDS.get(kind)).topic(name).create();
                    Consumer<GenericRecord> consumer = client.newConsumer(Schema.AUTO_CONSUME())
                            .topic(name).subscriptionName("s").subscribe()) {
                producer.send(user("a", i));
                GenericRecord record = consumer.receive(5, TimeUnit.SECONDS).getValue();
                fields.add(record.getField("name") + " " + record.getField("age"));
            }
        }
        return fields;
    }

    static Object other(String kind, Schema<?> schema) throws Exception {
        String name = topic("other-" + System.nanoTime());
        try (Producer<User> producer = client.newProducer(KINDS.get(kind)).topic(name).create()) {
            return map("producer", answer(() -> {
                client.newProducer(schema).topic(name).create().close();
                return "taken";
            }), "consumer", answer(() -> {
                client.newConsumer(schema).topic(name).subscriptionName("s").subscribe().close();
                return "taken";
            }));
        }
    }

    static Object autoProduce() throws Exception {
        String name = topic("auto-produce");
        try (Producer<User> typed =
                client.newProducer(Schema.JSON(User.class)).topic(name).create();
                Producer<byte[]> producer =
                        client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(name).create();
                Consumer<User> consumer = client.newConsumer(Schema.JSON(User.class)).topic(name)
                        .subscriptionName("s").subscribe()) {
            producer.send("{\"name\": \"a\", \"age\": 1}".getBytes());
            return map("got", show(consumer.receive(5, TimeUnit.SECONDS).getValue()), "garbage",
                    answer(() -> producer.send(new byte[] {1, 2, 3}) != null));
        }
    }

    static <T> Object primitive(Schema<T> schema, T value) throws Exception {
        String name = topic("primitive-" + schema.getSchemaInfo().getType());
        try (Producer<T> producer = client.newProducer(schema).topic(name).create();
                Consumer<T> consumer = client.newConsumer(schema).topic(name)
                        .subscriptionName("s").subscribe()) {
            producer.send(value);
            return consumer.receive(5, TimeUnit.SECONDS).getValue().equals(value);
        }
    }

    static Object primitives() throws Exception {
        return List.of(primitive(Schema.STRING, "x"), primitive(Schema.INT64, 7L),
                primitive(Schema.INT8, (byte) 3), primitive(Schema.BOOL, true),
                primitive(Schema.DOUBLE, 0.5), primitive(Schema.TIMESTAMP,
                        new java.sql.Timestamp(1000)));
    }

    static Object keyValue() throws Exception {
        Schema<KeyValue<String, User>> schema = Schema.KeyValue(Schema.STRING,
                Schema.AVRO(User.class), KeyValueEncodingType.SEPARATED);
        String name = topic("key-value");
        try (Producer<KeyValue<String, User>> producer =
                client.newProducer(schema).topic(name).create();
                Consumer<KeyValue<String, User>> consumer = client.newConsumer(schema)
                        .topic(name).subscriptionName("s").subscribe()) {
            producer.send(new KeyValue<>("k", user("a", 1)));
            KeyValue<String, User> got = consumer.receive(5, TimeUnit.SECONDS).getValue();
            return got.getKey() + " " + show(got.getValue());
        }
    }

    static Object overHttp() throws Exception {
        String name = topic("schema-http");
        Object none = answer(() -> admin.schemas().getSchemaInfo(name));
        client.newProducer(Schema.AVRO(User.class)).topic(name).create().close();
        SchemaInfo info = admin.schemas().getSchemaInfo(name);
        return map("none", none, "type", info.getType(), "text",
                JSON.readTree(info.getSchemaDefinition()), "version",
                admin.schemas().getSchemaInfoWithVersion(name).getVersion());
    }

    static Object tableView() throws Exception {
        try (Producer<String> producer = producing("table").create()) {
            producer.newMessage().key("a").value("1").send();
            producer.newMessage().key("a").value("2").send();
            producer.newMessage().key("b").value("3").send();
            try (TableView<String> view = client.newTableView(Schema.STRING)
                    .topic(topic("table")).create()) {
                return new TreeMap<>(Map.of("a", view.get("a"), "b", view.get("b")));
            }
        }
    }
}
