// What the panel shows of a time gone by, and of a client, whom only the archives know for long.
import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";
import { useAsked } from "./asked";
import { Entries } from "./decisions";
import { bytes, count, duration, messages, moment, plural, shortRange, split } from "./format";
import { askBroker, askBundle, askClient } from "./past";
import { cluster } from "./state";
import { use } from "./store";
import { Time, Told } from "./time";
import { BUNDLES, Facts, More, RecordedSince, Resources, brokerLink, bundleLink } from "./story";
import { TrendOfBroker, TrendOfBundle } from "./trend";

function State({ asking, problem }: { asking: boolean; problem: string }): JSX.Element {
  return (
    <>
      {problem && <p class="problem">{problem}.</p>}
      {asking && !problem && <p class="empty">Asking the archives.</p>}
    </>
  );
}

function NotKnown({ why }: { why: string }): JSX.Element {
  return (
    <p class="empty">
      <Told text={`What it carried then is not known: ${why}.`} />
    </p>
  );
}

export function BundleAt({ name, at }: { name: string; at: number }): JSX.Element {
  const { answer, problem } = useAsked(() => askBundle(name, at), `${name} ${at}`, false);
  const { namespace, range } = split(name);
  const traffic = answer?.traffic;
  const facts: [string, ComponentChildren][] = traffic
    ? [
        ["Messages", `${messages(traffic.msgRateIn)} in, ${messages(traffic.msgRateOut)} out /s`],
        ["Bytes", bytes(traffic.throughput)],
        ["Clients", `${plural(traffic.producers, "producer")}, ${plural(traffic.consumers, "consumer")}`],
      ]
    : [["Traffic", answer?.unknown ? <Told text={`not known: ${answer.unknown}`} /> : "none is recorded of then"]];
  return (
    <>
      <p class="kind">Bundle of {namespace}</p>
      <h2 title={name}>{shortRange(range)}</h2>
      <p class="small mono">{range}</p>
      <p class="small">As of <Time at={at} text={moment(at, true)} /></p>
      <State asking={!answer} problem={problem} />
      {answer && (
        <>
          <Facts
            facts={[
              [
                "Owner",
                answer.owner ? (
                  <>
                    {brokerLink(answer.owner)}
                    {answer.since ? ` for ${duration(at - answer.since)}` : ""}
                  </>
                ) : (
                  "nobody, or it is not recorded"
                ),
              ],
              ...facts,
            ]}
          />
          <TrendOfBundle bundle={name} />
          <h3>What had been decided about it</h3>
          {answer.decisions.length ? (
            <Entries list={answer.decisions} />
          ) : (
            <p class="empty">Nothing is recorded of the time before.</p>
          )}
          <RecordedSince since={answer.recordedSince} />
        </>
      )}
    </>
  );
}

export function BrokerAt({ name, at }: { name: string; at: number }): JSX.Element {
  const broker = use(cluster)?.brokers.find((each) => each.broker === name);
  const { answer, problem } = useAsked(() => askBroker(name, at), `${name} ${at}`, false);
  const [most, setMost] = useState(BUNDLES);
  return (
    <>
      <p class="kind">Broker</p>
      <h2>{name}</h2>
      <p class="small">As of <Time at={at} text={moment(at, true)} /></p>
      {broker?.resources ? (
        <>
          <Resources broker={broker} />
          <Facts
            facts={[
              ["Bundles", count(broker.bundles ?? 0)],
              ["Topics", count(broker.topics ?? 0)],
              ["Messages", `${messages(broker.rate ?? 0)} /s`],
              ["Bytes", bytes(broker.throughput ?? 0)],
            ]}
          />
        </>
      ) : (
        answer && <NotKnown why={answer.unknown || "no record is of that time"} />
      )}
      <TrendOfBroker broker={name} />
      <State asking={!answer} problem={problem} />
      {answer && (
        <>
          {answer.leftAt === null ? (
            <h3>Its bundles, the hottest first</h3>
          ) : (
            <h3>What it had when it left at <Time at={answer.leftAt} />, and where each was served next</h3>
          )}
          {answer.unknown && broker?.resources && <NotKnown why={answer.unknown} />}
          <ul class="list">
            {answer.bundles.slice(0, most).map(({ bundle, rate, throughput, next }) => (
              <li key={bundle} class="owned">
                {bundleLink(bundle)}
                <span class="number">{answer.unknown ? "–" : messages(rate)} msg/s</span>
                <span class="number">{answer.unknown ? "–" : bytes(throughput)}</span>
                {answer.leftAt !== null && (
                  <span class="small">
                    {next
                      ? `at ${next.broker} after ${duration(next.afterMs)}`
                      : "by nobody in the ten minutes after"}
                  </span>
                )}
              </li>
            ))}
          </ul>
          <More of={answer.bundles.length - most} show={() => setMost(Infinity)} />
          {!answer.bundles.length && <p class="empty">None is recorded of then.</p>}
          <h3>What had been decided about it</h3>
          {answer.decisions.length ? (
            <Entries list={answer.decisions} />
          ) : (
            <p class="empty">Nothing is recorded of the time before.</p>
          )}
          <RecordedSince since={answer.recordedSince} />
        </>
      )}
    </>
  );
}

export function OfClient({ name, at }: { name: string; at: number | null }): JSX.Element {
  const { answer, problem } = useAsked(() => askClient(name, at), `${name} ${at}`, at === null);
  return (
    <>
      <p class="kind">Client</p>
      <h2>{name}</h2>
      {at !== null && <p class="small">As of <Time at={at} text={moment(at, true)} /></p>}
      <h3>When it came, left and was refused</h3>
      <State asking={!answer} problem={problem} />
      {answer?.lines.length === 0 && <p class="empty">Nothing is recorded of it.</p>}
      <ul class="list lines">
        {answer?.lines.map(({ ts, text, bad }) => (
          <li key={`${ts} ${text}`} class={bad ? "problem" : ""}>
            <Time at={ts} /> <Told text={text} />
          </li>
        ))}
      </ul>
      {answer && <RecordedSince since={answer.recordedSince} />}
    </>
  );
}
