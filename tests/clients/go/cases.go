package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var background = context.Background()

const definition = `{"type":"record","name":"User","namespace":"n","fields":[` +
	`{"name":"name","type":["null","string"],"default":null},{"name":"age","type":"int"}]}`
const incompatible = `{"type":"record","name":"User","namespace":"n","fields":[` +
	`{"name":"name","type":"int"},{"name":"age","type":"string"}]}`

type user struct {
	Name string `json:"name" avro:"name"`
	Age  int    `json:"age" avro:"age"`
}

func declare() {
	add("basic", basic)
	add("batches", batches)
	kinds := []pulsar.CompressionType{pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD}
	for _, kind := range kinds {
		add(fmt.Sprintf("compression %d", kind), func() (any, error) { return compressed(kind) })
	}
	add("chunks", chunks)
	add("message too large", func() (any, error) {
		producer, err := produce("large")
		if err != nil {
			return nil, err
		}
		return producer.Send(background, &pulsar.ProducerMessage{Payload: make([]byte, 6<<20)})
	})
	add("same producer name", sameName)
	for _, mode := range []pulsar.ProducerAccessMode{
		pulsar.ProducerAccessModeExclusive, pulsar.ProducerAccessModeWaitForExclusive} {
		add(fmt.Sprintf("access mode %d", mode), func() (any, error) { return exclusive(mode) })
	}
	add("exclusive consumer", func() (any, error) {
		if _, err := consume("exclusive"); err != nil {
			return nil, err
		}
		return consume("exclusive")
	})
	add("failover", failover)
	add("shared", shared)
	add("key_shared", func() (any, error) {
		consumer, err := consume("keyed", of(pulsar.KeyShared))
		return consumer != nil, err
	})
	add("negative acknowledgement", negative)
	add("dead letters", deadLetters)
	add("retry topic", retryTopic)
	add("deliver after", func() (any, error) {
		return delayed("after", &pulsar.ProducerMessage{DeliverAfter: 3 * time.Second})
	})
	add("deliver at", func() (any, error) {
		return delayed("at", &pulsar.ProducerMessage{DeliverAt: time.Now().Add(3 * time.Second)})
	})
	for _, batched := range []bool{false, true} {
		for _, inclusive := range []bool{false, true} {
			add(fmt.Sprintf("reader, batches %v, inclusive %v", batched, inclusive),
				func() (any, error) { return reader(batched, inclusive) })
		}
	}
	add("seek by id", seekByID)
	add("seek by time", seekByTime)
	add("cumulative", cumulative)
	add("part of a batch", partOfBatch)
	add("ack with response", ackWithResponse)
	add("unsubscribe", func() (any, error) {
		consumer, err := consume("unsubscribe")
		if err != nil {
			return nil, err
		}
		return "done", consumer.Unsubscribe()
	})
	add("pattern", pattern)
	add("non-persistent", nonPersistent)
	add("JSON", func() (any, error) { return typed("json", pulsar.NewJSONSchema) })
	add("AVRO", func() (any, error) { return typed("avro", pulsar.NewAvroSchema) })
	add("JSON incompatible", func() (any, error) { return changed("json", pulsar.NewJSONSchema) })
	add("AVRO incompatible", func() (any, error) { return changed("avro", pulsar.NewAvroSchema) })
	add("partitions of a topic", func() (any, error) {
		return client.TopicPartitions("persistent://public/clients/partitioned")
	})
	add("send to partitions", partitioned)
	add("namespace that does not exist", func() (any, error) {
		return client.CreateProducer(pulsar.ProducerOptions{Topic: "persistent://public/nosuch/t"})
	})
	add("tenant that does not exist", func() (any, error) {
		return client.CreateProducer(pulsar.ProducerOptions{Topic: "persistent://nosuch/n/t"})
	})
	add("transaction", func() (any, error) {
		return client.NewTransaction(time.Minute)
	})
	add("client with transactions", func() (any, error) {
		return pulsar.NewClient(pulsar.ClientOptions{URL: os.Args[1], Logger: quiet,
			EnableTransaction: true, OperationTimeout: 10 * time.Second})
	})
	add("table view", tableView)
}

func basic() (any, error) {
	producer, consumer, err := both("basic")
	if err != nil {
		return nil, err
	}
	sequence := int64(42)
	_, err = producer.Send(background, &pulsar.ProducerMessage{
		Payload: []byte("v"), Key: "k", OrderingKey: "o", SequenceID: &sequence,
		Properties: map[string]string{"a": "b"}, EventTime: time.UnixMilli(7),
	})
	if err != nil {
		return nil, err
	}
	got := next(consumer, 5*time.Second)
	return answer{"value": string(got.Payload()), "key": got.Key(), "ordering": got.OrderingKey(),
		"of": got.Properties(), "event": got.EventTime().UnixMilli(), "topic": got.Topic(),
		"redelivered": got.RedeliveryCount(), "last": producer.LastSequenceID()}, nil
}

func batches() (any, error) {
	consumer, err := consume("batches")
	if err != nil {
		return nil, err
	}
	producer, err := produce("batches", batching)
	if err != nil {
		return nil, err
	}
	ids, err := send(producer, 95)
	entries := map[int64]bool{}
	for _, id := range ids {
		entries[id.EntryID()] = true
	}
	return answer{"received": receive(consumer, 95), "entries": len(entries)}, err
}

func batching(options *pulsar.ProducerOptions) {
	options.DisableBatching = false
	options.BatchingMaxMessages = 10
	options.BatchingMaxPublishDelay = time.Second
}

func compressed(kind pulsar.CompressionType) (any, error) {
	name := fmt.Sprintf("compressed-%d", kind)
	consumer, err := consume(name)
	if err != nil {
		return nil, err
	}
	producer, err := produce(name, func(options *pulsar.ProducerOptions) {
		options.CompressionType = kind
	})
	if err != nil {
		return nil, err
	}
	text := bytes.Repeat([]byte("x"), 10_000)
	_, err = producer.Send(background, &pulsar.ProducerMessage{Payload: text})
	return bytes.Equal(next(consumer, 5*time.Second).Payload(), text), err
}

func chunks() (any, error) {
	consumer, err := consume("chunks")
	if err != nil {
		return nil, err
	}
	producer, err := produce("chunks", func(options *pulsar.ProducerOptions) {
		options.EnableChunking = true
	})
	if err != nil {
		return nil, err
	}
	large := make([]byte, 12<<20)
	rand.New(rand.NewSource(1)).Read(large)
	_, err = producer.Send(background, &pulsar.ProducerMessage{Payload: large})
	if err != nil {
		return nil, err
	}
	return bytes.Equal(next(consumer, 20*time.Second).Payload(), large), nil
}

func named(options *pulsar.ProducerOptions) { options.Name = "p" }

func sameName() (any, error) {
	if _, err := produce("name", named); err != nil {
		return nil, err
	}
	return produce("name", named)
}

func exclusive(mode pulsar.ProducerAccessMode) (any, error) {
	name := fmt.Sprintf("exclusive-%d", mode)
	access := func(mode pulsar.ProducerAccessMode) func(*pulsar.ProducerOptions) {
		return func(options *pulsar.ProducerOptions) { options.ProducerAccessMode = mode }
	}
	first, err := produce(name, access(pulsar.ProducerAccessModeExclusive))
	if err != nil {
		return nil, err
	}
	second := make(chan any, 1)
	go func() {
		_, err := produce(name, access(mode))
		if err != nil {
			second <- code(err)
		} else {
			second <- "created"
		}
	}()
	time.Sleep(1500 * time.Millisecond)
	early := len(second) > 0
	first.Close()
	return answer{"early": early, "second": <-second}, nil
}

func failover() (any, error) {
	name := func(name string) func(*pulsar.ConsumerOptions) {
		return func(options *pulsar.ConsumerOptions) {
			options.Type, options.Name = pulsar.Failover, name
		}
	}
	first, err := consume("failover", name("a"))
	if err != nil {
		return nil, err
	}
	second, err := consume("failover", name("b"))
	if err != nil {
		return nil, err
	}
	producer, err := produce("failover")
	if err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second)
	if _, err = send(producer, 5); err != nil {
		return nil, err
	}
	var active string
	for {
		select {
		case got := <-first.Chan():
			active = "a"
			first.Ack(got)
		case got := <-second.Chan():
			active = "b"
			second.Ack(got)
		case <-time.After(time.Second):
			return active, nil
		}
	}
}

func shared() (any, error) {
	producer, first, err := both("shared", of(pulsar.Shared))
	if err != nil {
		return nil, err
	}
	second, err := consume("shared", of(pulsar.Shared))
	if err != nil {
		return nil, err
	}
	_, err = send(producer, 90)
	got := append(receive(first, 90), receive(second, 90)...)
	return len(got), err
}

func negative() (any, error) {
	producer, consumer, err := both("negative", of(pulsar.Shared),
		func(options *pulsar.ConsumerOptions) {
			options.NackRedeliveryDelay = 100 * time.Millisecond
		})
	if err != nil {
		return nil, err
	}
	_, err = send(producer, 1)
	counts := []uint32{}
	for range 3 {
		message := next(consumer, 5*time.Second)
		counts = append(counts, message.RedeliveryCount())
		consumer.Nack(message)
	}
	return counts, err
}

func policy(name string) func(*pulsar.ConsumerOptions) {
	return func(options *pulsar.ConsumerOptions) {
		options.Type = pulsar.Shared
		options.NackRedeliveryDelay = 50 * time.Millisecond
		options.DLQ = &pulsar.DLQPolicy{
			MaxDeliveries: 2, DeadLetterTopic: topic(name + "-DLQ"),
			RetryLetterTopic: topic(name + "-RETRY"), InitialSubscriptionName: "kept",
		}
	}
}

func letter(name string) (any, error) {
	dead, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic(name + "-DLQ"), SubscriptionName: "kept",
	})
	if err != nil {
		return nil, err
	}
	return receive(dead, 1), nil
}

func deadLetters() (any, error) {
	producer, consumer, err := both("dead", policy("dead"))
	if err != nil {
		return nil, err
	}
	if _, err = send(producer, 1); err != nil {
		return nil, err
	}
	deliveries := 0
	for message := next(consumer, 3*time.Second); message != nil; {
		deliveries++
		consumer.Nack(message)
		message = next(consumer, 3*time.Second)
	}
	kept, err := letter("dead")
	return answer{"deliveries": deliveries, "kept": kept}, err
}

func retryTopic() (any, error) {
	producer, consumer, err := both("retry", policy("retry"),
		func(options *pulsar.ConsumerOptions) { options.RetryEnable = true })
	if err != nil {
		return nil, err
	}
	if _, err = send(producer, 1); err != nil {
		return nil, err
	}
	came, started := []string{}, time.Now()
	for message := next(consumer, 5*time.Second); message != nil; {
		came = append(came, about(started, time.Duration(len(came))*1500*time.Millisecond))
		consumer.ReconsumeLater(message, 1500*time.Millisecond)
		message = next(consumer, 5*time.Second)
	}
	kept, err := letter("retry")
	return answer{"came": came, "kept": kept}, err
}

func delayed(name string, message *pulsar.ProducerMessage) (any, error) {
	producer, consumer, err := both("delayed-"+name, of(pulsar.Shared))
	if err != nil {
		return nil, err
	}
	started := time.Now()
	message.Payload = []byte("later")
	if _, err = producer.Send(background, message); err != nil {
		return nil, err
	}
	if _, err = send(producer, 1); err != nil {
		return nil, err
	}
	return answer{"got": receive(consumer, 2), "came": about(started, 3*time.Second)}, nil
}

func reader(batched, inclusive bool) (any, error) {
	name := fmt.Sprintf("reader-%v-%v", batched, inclusive)
	producer, err := produce(name, func(options *pulsar.ProducerOptions) {
		if batched {
			batching(options)
		}
	})
	if err != nil {
		return nil, err
	}
	ids, err := send(producer, 12)
	if err != nil {
		return nil, err
	}
	reading, err := client.CreateReader(pulsar.ReaderOptions{
		Topic: topic(name), StartMessageID: ids[5], StartMessageIDInclusive: inclusive,
	})
	if err != nil {
		return nil, err
	}
	texts := []string{}
	for reading.HasNext() {
		message, err := reading.Next(background)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(message.Payload()))
	}
	return texts, nil
}

func seekByID() (any, error) {
	producer, consumer, err := both("seek")
	if err != nil {
		return nil, err
	}
	ids, err := send(producer, 10)
	if err != nil {
		return nil, err
	}
	receive(consumer, 10)
	if err = consumer.Seek(ids[7]); err != nil {
		return nil, err
	}
	return receive(consumer, 4), nil
}

func seekByTime() (any, error) {
	producer, consumer, err := both("seek-time")
	if err != nil {
		return nil, err
	}
	send(producer, 3)
	time.Sleep(50 * time.Millisecond)
	then := time.Now()
	time.Sleep(50 * time.Millisecond)
	send(producer, 1)
	receive(consumer, 4)
	if err = consumer.SeekByTime(then); err != nil {
		return nil, err
	}
	return receive(consumer, 2), nil
}

func cumulative() (any, error) {
	producer, consumer, err := both("cumulative")
	if err != nil {
		return nil, err
	}
	ids, err := send(producer, 10)
	if err != nil {
		return nil, err
	}
	for range 10 {
		next(consumer, 5*time.Second)
	}
	if err = consumer.AckIDCumulative(ids[6]); err != nil {
		return nil, err
	}
	consumer.Close()
	again, err := consume("cumulative")
	if err != nil {
		return nil, err
	}
	return receive(again, 3), nil
}

func partOfBatch() (any, error) {
	indexes := func(options *pulsar.ConsumerOptions) {
		options.Type = pulsar.Shared
		options.EnableBatchIndexAcknowledgment = true
	}
	consumer, err := consume("part", indexes)
	if err != nil {
		return nil, err
	}
	producer, err := produce("part", batching)
	if err != nil {
		return nil, err
	}
	if _, err = send(producer, 10); err != nil {
		return nil, err
	}
	for i := range 10 {
		if message := next(consumer, 5*time.Second); i%3 != 0 {
			consumer.Ack(message)
		}
	}
	consumer.Close()
	again, err := consume("part", indexes)
	if err != nil {
		return nil, err
	}
	return receive(again, 4), nil
}

func ackWithResponse() (any, error) {
	producer, consumer, err := both("response", func(options *pulsar.ConsumerOptions) {
		options.AckWithResponse = true
	})
	if err != nil {
		return nil, err
	}
	if _, err = send(producer, 1); err != nil {
		return nil, err
	}
	return "done", consumer.Ack(next(consumer, 5*time.Second))
}

func pattern() (any, error) {
	first, err := produce("pattern-a")
	if err != nil {
		return nil, err
	}
	send(first, 1)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		TopicsPattern:               topic("pattern-.*"),
		AutoDiscoveryPeriod:         time.Second,
		SubscriptionName:            "s",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return nil, err
	}
	got := receive(consumer, 1)
	second, err := produce("pattern-b")
	if err != nil {
		return nil, err
	}
	send(second, 1)
	return append(got, receive(consumer, 1)...), nil
}

func nonPersistent() (any, error) {
	name := "non-" + topic("np")
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: name, SubscriptionName: "s"})
	if err != nil {
		return nil, err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: name})
	if err != nil {
		return nil, err
	}
	_, err = send(producer, 5)
	return receive(consumer, 5), err
}

func partitioned() (any, error) {
	name := "persistent://public/clients/partitioned"
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: name, SubscriptionName: "s"})
	if err != nil {
		return nil, err
	}
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: name, DisableBatching: true,
	})
	if err != nil {
		return nil, err
	}
	_, err = send(producer, 9)
	return sorted(receive(consumer, 9)), err
}

func typed[T pulsar.Schema](name string, schema func(string, map[string]string) T) (any, error) {
	got := []string{}
	for i := range 6 {
		name := topic(fmt.Sprintf("typed-%s-%d", name, i))
		producer, err := client.CreateProducer(pulsar.ProducerOptions{
			Topic: name, Schema: schema(definition, nil),
		})
		if err != nil {
			return nil, err
		}
		consumer, err := client.Subscribe(pulsar.ConsumerOptions{
			Topic: name, SubscriptionName: "s", Schema: schema(definition, nil),
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
		})
		if err != nil {
			return nil, err
		}
		message := &pulsar.ProducerMessage{Value: &user{"a", i}}
		if _, err = producer.Send(background, message); err != nil {
			return nil, err
		}
		var value user
		if err = next(consumer, 5*time.Second).GetSchemaValue(&value); err != nil {
			return nil, err
		}
		got = append(got, fmt.Sprint(value))
	}
	return got, nil
}

func changed[T pulsar.Schema](name string, schema func(string, map[string]string) T) (any, error) {
	name = topic("changed-" + name)
	_, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: name, Schema: schema(definition, nil),
	})
	if err != nil {
		return nil, err
	}
	return client.CreateProducer(pulsar.ProducerOptions{
		Topic: name, Schema: schema(incompatible, nil),
	})
}

func tableView() (any, error) {
	text := pulsar.NewStringSchema(nil)
	producer, err := produce("table", func(options *pulsar.ProducerOptions) { options.Schema = text })
	if err != nil {
		return nil, err
	}
	for i := range 3 {
		producer.Send(background, &pulsar.ProducerMessage{
			Key: []string{"a", "a", "b"}[i], Value: fmt.Sprint(i),
		})
	}
	view, err := client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic("table"), Schema: text, SchemaValueType: reflect.TypeFor[*string](),
	})
	if err != nil {
		return nil, err
	}
	return sorted(view.Keys()), nil
}
