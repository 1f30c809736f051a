// Runs named cases against a service and prints one JSON line for each: {"case": …, "answer": …}.
// An answer has the code of an error, never its text. Arguments: service URL, how names of topics begin;
// then names of cases, if only some shall run.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const atOnce = 4
const limit = 60 * time.Second

type answer map[string]any
type body func() (any, error)

var client pulsar.Client
var quiet plog.Logger
var names []string
var cases = map[string]body{}

func add(name string, run body) {
	names = append(names, name)
	cases[name] = run
}

func main() {
	logrus.SetOutput(io.Discard)
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	quiet = plog.NewLoggerWithLogrus(silent)
	made, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], Logger: quiet,
		OperationTimeout: 20 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	client = made
	declare()
	gate := make(chan bool, atOnce)
	var printing sync.Mutex
	var all sync.WaitGroup
	if len(os.Args) > 3 {
		names = os.Args[3:]
	}
	for _, name := range names {
		all.Add(1)
		gate <- true
		go func() {
			defer all.Done()
			text, _ := json.Marshal(map[string]any{"case": name, "answer": run(cases[name])})
			printing.Lock()
			fmt.Println(string(text))
			printing.Unlock()
			<-gate
		}()
	}
	all.Wait()
}

// What a body answers, or the code of its error.
func run(one body) any {
	done := make(chan any, 1)
	go func() {
		got, err := one()
		if err != nil {
			got = code(err)
		}
		done <- got
	}()
	select {
	case got := <-done:
		return got
	case <-time.After(limit):
		return fmt.Sprintf("no answer within %v", limit)
	}
}

var coded = regexp.MustCompile(`^(?:server error: )?(\w+)(?::|$)`)

// The server's code of an error, or the client's result.
func code(err error) string {
	if os.Getenv("VERBOSE") != "" {
		fmt.Fprintln(os.Stderr, err)
	}
	if found := coded.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	if own, is := err.(*pulsar.Error); is {
		return fmt.Sprintf("result %v", own.Result())
	}
	return "error"
}

func topic(name string) string { return "persistent://public/clients/" + os.Args[2] + name }

func produce(name string, change ...func(*pulsar.ProducerOptions)) (pulsar.Producer, error) {
	options := pulsar.ProducerOptions{Topic: topic(name), DisableBatching: true}
	for _, one := range change {
		one(&options)
	}
	return client.CreateProducer(options)
}

func consume(name string, change ...func(*pulsar.ConsumerOptions)) (pulsar.Consumer, error) {
	options := pulsar.ConsumerOptions{
		Topic: topic(name), SubscriptionName: "s",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
	for _, one := range change {
		one(&options)
	}
	return client.Subscribe(options)
}

func of(kind pulsar.SubscriptionType) func(*pulsar.ConsumerOptions) {
	return func(options *pulsar.ConsumerOptions) { options.Type = kind }
}

// A producer and a consumer of one topic.
func both(name string, change ...func(*pulsar.ConsumerOptions)) (
	pulsar.Producer, pulsar.Consumer, error) {
	consumer, err := consume(name, change...)
	if err != nil {
		return nil, nil, err
	}
	producer, err := produce(name)
	return producer, consumer, err
}

// Sends "0", "1", … and returns their ids.
func send(producer pulsar.Producer, count int) ([]pulsar.MessageID, error) {
	ids := make([]pulsar.MessageID, count)
	errs := make(chan error, count)
	for i := range count {
		message := &pulsar.ProducerMessage{Payload: fmt.Append(nil, i)}
		producer.SendAsync(background, message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				ids[i] = id
				errs <- err
			})
	}
	for range count {
		if err := <-errs; err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// The next message, or nil when none comes within this time.
func next(consumer pulsar.Consumer, wait time.Duration) pulsar.Message {
	select {
	case got := <-consumer.Chan():
		return got.Message
	case <-time.After(wait):
		return nil
	}
}

// Texts as they come, acknowledged.
func receive(consumer pulsar.Consumer, count int) []string {
	texts := []string{}
	for len(texts) < count {
		message := next(consumer, 6*time.Second)
		if message == nil {
			break
		}
		texts = append(texts, string(message.Payload()))
		consumer.Ack(message)
	}
	return texts
}

func sorted(texts []string) []string {
	sort.Strings(texts)
	return texts
}

// Whether a duration is as long as it must be, and not much longer. Pulsar's clock of delayed
// messages ticks once a second, and rounds down.
func about(started time.Time, due time.Duration) string {
	switch took := time.Since(started); {
	case took < due-time.Second:
		return "early"
	case took < due+5*time.Second:
		return "in time"
	default:
		return "late"
	}
}
