// What the broker of the page has seen last of all brokers: shown while it can reach no leader, and
// the page knows nothing else.
import type { JSX } from "preact";
import { bytes, duration, messages, percent, plural } from "./format";
import type { LastSeen as Seen } from "../generated/openapi";
import { lastSeen } from "./state";
import { use } from "./store";
import { Time } from "./time";

type BrokerSeen = Seen["brokers"][number];

function figures({ report }: BrokerSeen): string {
  if (!report) return "no report of it can be read";
  const { bundles, rate, throughput, usage } = report;
  return [
    typeof usage === "number" ? `${percent(usage)} used` : "",
    plural(bundles ?? 0, "bundle"),
    `${messages(rate ?? 0)} msg/s`,
    bytes(throughput ?? 0),
  ]
    .filter(Boolean)
    .join(", ");
}

function Row({ seen, broker }: { seen: Seen; broker: BrokerSeen }): JSX.Element {
  const { reportedAt, reportAgeMs } = broker.report ?? {};
  return (
    <li>
      <b>{broker.broker}</b>
      {broker.broker === seen.leader && <span class="chip leader">{seen.leads ? "leader" : "led"}</span>}
      {broker.broker === seen.by && <span class="chip">this broker</span>}
      <span class="small">{figures(broker)}</span>
      {reportedAt && (
        <span class="small">
          reported at <Time at={reportedAt} />, {duration(reportAgeMs ?? 0)} ago
        </span>
      )}
    </li>
  );
}

export function LastSeen(): JSX.Element {
  const seen = use(lastSeen);
  if (!seen) return <p class="empty big">Nothing is known of this cluster yet.</p>;
  const more = seen.total - seen.brokers.length;
  const term = seen.epoch === null ? "" : `, term ${seen.epoch}`;
  const leader = seen.leader
    ? `${seen.leader} ${seen.leads ? "leads, as far as it knows" : "led"}${term}.`
    : "It had not seen who led.";
  return (
    <section class="part last-seen" id="last-seen" aria-labelledby="last-seen-title">
      <header>
        <h2 id="last-seen-title">Brokers as of before</h2>
        <span class="about">{plural(seen.total, "broker")}</span>
      </header>
      <p class="line">
        What {seen.by} had seen by <Time at={seen.seenAt} />, {duration(seen.at - seen.seenAt)} ago
        {seen.storeSilentMs === null ? "" : ", with the last answer of the metadata store"}: who is
        there now is not known. {leader}
      </p>
      <ul class="list">
        {seen.brokers.map((broker) => (
          <Row key={broker.broker} seen={seen} broker={broker} />
        ))}
      </ul>
      {more > 0 && <p class="more">and {plural(more, "other")}</p>}
    </section>
  );
}
