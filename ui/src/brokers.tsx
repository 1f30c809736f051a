// Brokers as load bars: the bar is the most used resource, the ticks are all of them.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { bytes, count, duration, inZone, messages, percent, plural } from "./format";
import type { Broker } from "./state";
import type { CordonShown as Cordon, Resources } from "../generated/openapi";
import { cluster, notCounted, panel, staleAfter } from "./state";
import { use } from "./store";
import { Section } from "./section";
import { absenceText, listed, ordered } from "./sentences";
import { Rows } from "./virtual";
import { shownAt, when } from "./when";

const CELLS_FROM = 9; // fewer are all seen in the list
const CELLS_MAX = 300;
const STEPS = 20; // rows do not change places for less than a step of load

const stepOf = ({ usage }: Broker): number => (usage === null ? -1 : Math.round(usage * STEPS));
const byName = (a: Broker, b: Broker): number =>
  a.broker.localeCompare(b.broker, undefined, { numeric: true });

const ORDERS = {
  load: (a: Broker, b: Broker) => stepOf(b) - stepOf(a),
  name: () => 0,
  bundles: (a: Broker, b: Broker) => (b.bundles ?? 0) - (a.bundles ?? 0),
  traffic: (a: Broker, b: Broker) => (b.throughput ?? 0) - (a.throughput ?? 0),
};
type Order = keyof typeof ORDERS;

export function heatClass(usage: number): string {
  if (usage >= 0.85) return "hot";
  return usage >= 0.7 ? "warm" : "cool";
}

export function Chips({ broker }: { broker: Broker }): JSX.Element {
  const { cordon } = broker;
  return (
    <>
      {broker.leader && <span class="chip leader">leader</span>}
      {cordon && (
        <span
          class={`chip ${cordon.state === "stopped" ? "stopped" : "cordoned"}`}
          title={cordon.state === "stopped" ? `drained and stopped. ${ordered(cordon)}` : ordered(cordon)}
        >
          {cordonText(cordon)}
        </span>
      )}
      {isStale(broker) && (
        <span class="chip stale">report {duration(broker.reportAgeMs ?? 0)} old</span>
      )}
      {broker.sensor && (
        <span class="chip stale" title={broker.sensor.text}>
          {broker.sensor.code === "NoSensor" ? "no CPU sensor" : "sensor mistrusted"}
        </span>
      )}
      {broker.state === "unreadable" && <span class="chip gone">report unreadable</span>}
      {broker.state === "gone" && (
        <span class="chip gone" title={broker.absence && inZone(absenceText(broker.absence))}>
          {broker.absence
            ? `${broker.absence.how} ${duration(shownAt() - broker.absence.leftAt)} ago`
            : "gone"}
        </span>
      )}
    </>
  );
}

// Whether a broker runs: one that was drained and has stopped is no reason to worry.
export const runs = ({ state }: Broker): boolean => state !== "gone" && state !== "stopped";

// Whether no load of it is known, at a time gone by.
const isUnknown = (broker: Broker): boolean => runs(broker) && when.value !== null && broker.usage === null;

export function cordonText(cordon: Cordon): string {
  if (cordon.state !== "draining" || typeof cordon.left !== "number") return cordon.state;
  return `draining, ${count(cordon.left)} left`;
}

export function isStale(broker: Broker): boolean {
  return runs(broker) && (broker.reportAgeMs ?? 0) > staleAfter.value;
}

const RESOURCES: [keyof Resources, string][] = [
  ["cpu", "CPU"],
  ["memory", "memory"],
  ["directMemory", "message memory"],
  ["bandwidthIn", "network in"],
  ["bandwidthOut", "network out"],
];

export function resourcesOf(broker: Broker): { name: string; part: number }[] {
  return RESOURCES.flatMap(([key, name]) => {
    const part = broker.resources?.[key]?.fraction;
    return typeof part === "number" ? [{ name, part }] : [];
  });
}

/** What a broker uses by the model, with its error; empty if the leader has no model of it. */
export function modelledText({ modelled, modelError }: Broker): string {
  if (typeof modelled !== "number" || typeof modelError !== "number") return "";
  return `${percent(modelled)} ± ${(100 * modelError).toFixed(1)} points`;
}

function Bar({ broker }: { broker: Broker }): JSX.Element {
  const usage = broker.usage ?? 0;
  return (
    <span class={`bar ${isUnknown(broker) ? "unknown" : heatClass(usage)}`} aria-hidden="true">
      <i class="fill" style={{ transform: `scaleX(${Math.min(1, usage)})` }} />
      {resourcesOf(broker).map(({ name, part }) => (
        <i
          key={name}
          class="tick"
          title={`${name} ${percent(part)}`}
          style={{ left: `${Math.min(100, part * 100)}%` }}
        />
      ))}
    </span>
  );
}

// Names that differ at their ends, as ports of one host, are cut at their begin where there is no
// room.
const isCutAtBegin = (brokers: readonly Broker[]): boolean =>
  new Set(brokers.map(({ broker }) => broker.replace(/:\d+$/, ""))).size < brokers.length;

function Row({ broker, cut }: { broker: Broker; cut: boolean }): JSX.Element {
  const modelled = modelledText(broker);
  return (
    <div class={`broker ${broker.state}`}>
      <span class="name">
        <b class={cut ? "cut" : ""} title={broker.broker}>
          <bdi>{broker.broker}</bdi>
        </b>
        <Chips broker={broker} />
      </span>
      <Bar broker={broker} />
      <span class="number strong" title={modelled && `by the model ${modelled}`}>
        {broker.usage === null ? "–" : `${broker.sensor ? "≈ " : ""}${percent(broker.usage)}`}
      </span>
      {runs(broker) && (
        <>
          <span class="number small">{plural(broker.bundles ?? 0, "bundle")}</span>
          <span class="number small">{broker.rate === null ? "–" : messages(broker.rate)} msg/s</span>
          <span class="number small">{broker.throughput === null ? "–" : bytes(broker.throughput)}</span>
        </>
      )}
    </div>
  );
}

function cellClass(broker: Broker): string {
  if (!runs(broker)) return "gone";
  return isUnknown(broker) ? "unknown" : heatClass(broker.usage ?? 0);
}

function cellText(broker: Broker): string {
  if (!runs(broker)) return broker.state;
  return isUnknown(broker) ? "not counted, its load of then is not known" : percent(broker.usage ?? 0);
}

// All brokers at a glance, a cell each; the list has the same for those who do not see it.
function Cells({ brokers }: { brokers: Broker[] }): JSX.Element {
  const fullest = brokers.length > CELLS_MAX ? [...brokers].sort(ORDERS.load).slice(0, CELLS_MAX) : [...brokers];
  return (
    <div class="cells" aria-hidden="true">
      {fullest.sort(byName).map((broker) => (
        <i
          key={broker.broker}
          class={cellClass(broker)}
          title={`${broker.broker}: ${cellText(broker)}`}
          onClick={() => panel.set({ kind: "broker", name: broker.broker })}
        />
      ))}
    </div>
  );
}

function nothing(filter: string, isPast: boolean): string {
  if (filter) return `No broker's name contains “${filter}”.`;
  return isPast ? "No broker is recorded of then." : "No broker is known.";
}

export function Brokers(): JSX.Element {
  const now = use(cluster);
  const then = use(when);
  const without = use(notCounted);
  const [order, setOrder] = useState<Order>("load");
  const [filter, setFilter] = useState("");
  const shown = useMemo(() => {
    const all = now?.brokers ?? [];
    const kept = filter ? all.filter((broker) => broker.broker.includes(filter)) : [...all];
    return kept.sort((a, b) => ORDERS[order](a, b) || byName(a, b));
  }, [now, order, filter]);
  if (!now) return <Section id="brokers" title="Brokers" empty="Waiting for the first answer." />;
  const live = now.brokers.filter(runs).length;
  const missing = Object.keys(without.missing);
  const cut = isCutAtBegin(now.brokers);
  return (
    <Section
      id="brokers"
      title="Brokers"
      about={now.total > live ? `${count(live)} of ${count(now.total)}` : count(live)}
      tools={
        <>
          <input
            id="broker-filter"
            type="search"
            placeholder="filter"
            aria-label="Show brokers whose name contains"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value.trim())}
          />
          <select
            aria-label="Order of brokers"
            value={order}
            onChange={(event) => setOrder(event.currentTarget.value as Order)}
          >
            <option value="load">by load</option>
            <option value="name">by name</option>
            <option value="bundles">by bundles</option>
            <option value="traffic">by traffic</option>
          </select>
        </>
      }
      empty={shown.length ? null : nothing(filter, then !== null)}
    >
      {missing.length > 0 && (
        <p class="small line problem">
          Not counted: {listed(missing)}, whose {missing.length > 1 ? "archives" : "archive"} did not answer.
        </p>
      )}
      {now.brokers.length >= CELLS_FROM && <Cells brokers={now.brokers} />}
      <Rows
        label="Brokers. Enter opens one."
        id="broker-rows"
        rows={shown}
        height={50}
        rowKey={(broker) => broker.broker}
        render={(broker) => <Row broker={broker} cut={cut} />}
        open={(broker) => panel.set({ kind: "broker", name: broker.broker })}
      />
    </Section>
  );
}
