// Limits that held somebody in the last ten seconds, and whom.
import type { JSX } from "preact";
import { useNames } from "./decisions";
import { bytes, count, duration, messages, plural } from "./format";
import type { HeldConnection, HoldingLimit as Limit } from "../generated/openapi";
import type { Refusal } from "./past";
import { useRecorded } from "./recorded";
import { refused, throttled } from "./state";
import { use } from "./store";
import { Section } from "./section";
import { Time } from "./time";
import { when } from "./when";

function rates(limit: Limit): string {
  const parts = [];
  if (limit.configuredMessagesPerS >= 0)
    parts.push(
      `${messages(limit.deliveredMessagesPerS)} of ${messages(limit.configuredMessagesPerS)} msg/s`,
    );
  if (limit.configuredBytesPerS >= 0)
    parts.push(`${bytes(limit.deliveredBytesPerS)} of ${bytes(limit.configuredBytesPerS)}`);
  return parts.join(", ");
}

function Row({ broker, limit }: { broker: string; limit: Limit }): JSX.Element {
  const more = limit.waitersTotal - limit.waiters.length;
  return (
    <li>
      <details>
        <summary>
          <span class="limit">{limit.name.replace("persistent://", "")}</span>
          <span class="number">{rates(limit)}</span>
          <span class="small">
            {broker} {limit.waiters.some(({ waits }) => waits) ? "holds" : "held"}{" "}
            {/* of a past minute, how many waited at its end is recorded: maybe nobody did any more */}
            {limit.waitersTotal > 0 ? plural(limit.waitersTotal, "client") : "somebody"}
            {typeof limit.heldAgoMs === "number" && ` for ${duration(limit.heldAgoMs)}`}
            {typeof limit.waitedLatelyMs === "number" && `, who waited ${duration(limit.waitedLatelyMs)} in all`}
          </span>
        </summary>
        <ul>
          {limit.waiters.map((waiter) => (
            <li key={`${waiter.topic} ${waiter.name} ${waiter.client ?? ""}`}>
              {waiter.kind} {waiter.name}
              {waiter.client ? ` from ${waiter.client}` : ""} on{" "}
              {waiter.topic.replace("persistent://", "")}
              {waiter.waits ? ", waits now" : ""}
            </li>
          ))}
          {more > 0 && <li>and {count(more)} more</li>}
        </ul>
      </details>
    </li>
  );
}

// A limit that began to hold a connection this much later than another is shown with its own time.
const LATER_MS = 1_000;

// The limits that hold a connection, each with its own time if that is shorter than the whole.
function limitsOf({ limits, heldAgoMs, limitsHeldAgoMs }: HeldConnection): string {
  const named = limits.map((limit) => {
    const ago = limitsHeldAgoMs?.[limit] ?? heldAgoMs;
    const own = ago < heldAgoMs - LATER_MS ? ` (for the last ${duration(ago)})` : "";
    return limit.replace("persistent://", "") + own;
  });
  return named.join(" and ");
}

const REFUSED_SHOWN = 10;

function Refused({ lines }: { lines: Refusal[] }): JSX.Element | null {
  if (!lines.length) return null;
  const more = lines.length - REFUSED_SHOWN;
  const times = lines.reduce((sum, it) => sum + it.times, 0);
  return (
    <details class="refused">
      <summary>{plural(times, "refusal")} in the last hour</summary>
      <ul class="list small">
        {lines.slice(0, REFUSED_SHOWN).map(({ ts, text }) => (
          <li key={`${ts} ${text}`}>
            <Time at={ts} /> {text}
          </li>
        ))}
        {more > 0 && <li>and {count(more)} more: loadmanager admin find --refused</li>}
      </ul>
    </details>
  );
}

export function Throttled(): JSX.Element {
  const all = use(throttled);
  const then = use(when);
  const name = useNames();
  const entries = Object.entries(all?.brokers ?? {});
  const rows = entries.flatMap(([broker, { limits }]) => limits.map((limit) => ({ broker, limit })));
  const causes = entries.flatMap(([broker, report]) =>
    Object.entries(report.causes)
      .filter(([cause]) => !cause.endsWith("publish rate"))
      .map(([cause, connections]) => `${name(broker)}: ${plural(connections, "connection")} held by ${cause}`),
  );
  const beside = entries.flatMap(([broker, report]) =>
    (report.connections ?? [])
      .filter(({ othersTotal }) => othersTotal)
      .map(
        (it) =>
          `${name(broker)}: connection ${it.client} is held for ${duration(it.heldAgoMs)} by ` +
          `${limitsOf(it)}; ${plural(it.othersTotal, "other topic")} on it wait`,
      ),
  );
  const silent = Object.entries(all?.noAnswer ?? {});
  const about = rows.length ? plural(rows.length, "limit") : "";
  const turnedAway = useRecorded(refused, "", !then);
  const nobody = all && !rows.length && !causes.length;
  return (
    <Section
      id="throttled"
      title="Throttled"
      about={about}
      empty={
        !all
          ? "Waiting for the first answer."
          : nobody && !silent.length && !turnedAway.length
            ? then
              ? "No limit held anybody then."
              : `No limit held anybody in the last ten seconds${
                all.notAsked ? `, on those brokers that were asked (${all.notAsked} were not)` : ""
              }.`
            : null
      }
    >
      <div class="scroll" tabIndex={0} role="group" aria-label="List of limits">
        <Refused lines={turnedAway} />
        <ul class="list limits">
          {rows.map(({ broker, limit }) => (
            <Row key={`${broker} ${limit.name}`} broker={name(broker)} limit={limit} />
          ))}
          {[...beside, ...causes].map((line) => (
            <li key={line} class="small">
              {line}
            </li>
          ))}
          {silent.map(([broker, why]) => (
            <li key={broker} class="small problem">
              {name(broker)} {why}
            </li>
          ))}
        </ul>
      </div>
    </Section>
  );
}
