"""Rate limiting: PIP-322's token bucket and every limit of Pulsar, without I/O, timers or threads.

bucket → limit (two buckets and a fair queue) → publish, dispatch → broker (all limits of one
broker); tracker counts why a connection is paused; wakeups is the list of who is to be woken when,
for one timer in the adapter.

What a protocol server calls, where `throttling` is the broker's `BrokerThrottling`:

    timer           throttling.wakeups.on_earlier = arm            # arm(at_ns): (re)set the one
    timer
                    def fire(): throttling.wakeups.run(); at = throttling.wakeups.next_ns(); at is
                    None or arm(at)
    connection      self.throttle = throttling.connection(transport.pause_reading, self.go_on)
    go_on           parse what is buffered; when still not self.throttle.paused:
    transport.resume_reading()
    topic opens     topic.throttling = throttling.topic(name, published=topic.publish_rates)
    PRODUCER        producer.sender = topic.throttling.sender(producer.name, self.throttle)
    SEND            if topic.throttling.publish: producer.sender.charge(topic.throttling.publish,
    num_messages, size_bytes)
                    store it; then: if self.throttle.paused: stop parsing, keep the unparsed bytes
    producer gone   topic.throttling.leave(producer.sender)        # also for each producer of a
    lost connection
    disconnect      throttling.disconnect(self.throttle), after its producers left; drop the
    unparsed bytes
    SUBSCRIBE       topic.throttling.subscribe.try_subscribe(host, consumer_name, consumer_id),
    False: NotAllowedError
    first consumer  subscription.gate = topic.throttling.gate(subscription.name,
    subscription.dispatch)
    dispatch        if gate.limits: messages, size = gate.allowance(); (0, 0): return, `resume` will
    be called
                    send at most that (one entry may exceed it), then gate.charge(Charge(entries,
                    messages, size_bytes)); ask again
    topic closes    topic.throttling.close()                       # when its bundle is fenced;
    gates: close_gate(name)
    policies        set_namespace_policies, set_topic_policies, set_resource_group; settings are
    live

Everything runs on one event loop. `charge` may pause the caller's connection; `leave`, `close`,
policy changes and `wakeups.run` may resume connections, which then parse on before the call
returns.
"""
