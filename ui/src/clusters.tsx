// The clusters of a fleet daemon, the worst first, each with its page; nothing for a single one.
import type { JSX } from "preact";
import { duration, percent, plural } from "./format";
import type { ClusterSummary } from "../generated/openapi";
import { clusters } from "./state";
import { use } from "./store";

const LEVELS = { leads: "ok", waits: "busy", problem: "bad" };

function level({ state, held }: ClusterSummary): string {
  if (!state) return "unknown";
  return state === "leads" && held ? "warn" : LEVELS[state];
}

function text(cluster: ClusterSummary): string {
  if (!cluster.state) return "asks for another token";
  if (cluster.state !== "leads") return cluster.why ?? cluster.state;
  const parts = [cluster.mode ?? "", plural(cluster.brokers ?? 0, "broker")];
  const { lowestUsage: low, highestUsage: high } = cluster;
  if (typeof low === "number" && typeof high === "number") parts.push(`${percent(low)} – ${percent(high)}`);
  if (cluster.modelled) parts.push(`${cluster.modelled} by the model`);
  if (cluster.openGoals) parts.push(plural(cluster.openGoals, "goal"));
  if (typeof cluster.readAt === "number") parts.push(`read ${duration(Date.now() - cluster.readAt)} ago`);
  if (cluster.held) parts.push(cluster.held);
  return parts.join(" · ");
}

export function Clusters(): JSX.Element | null {
  const all = use(clusters);
  if (!all || all.clusters.length < 2) return null;
  return (
    <nav class="clusters" aria-label="Clusters of this daemon">
      <ul>
        {all.clusters.map((cluster) => (
          <li key={cluster.name} class={`status ${level(cluster)}`} title={text(cluster)}>
            <i aria-hidden="true" />
            {cluster.name === all.name ? (
              <b aria-current="page">{cluster.name}</b>
            ) : (
              <a href={`${location.protocol}//${location.hostname}:${cluster.port}/ui`}>{cluster.name}</a>
            )}{" "}
            <span class="small">{text(cluster)}</span>
          </li>
        ))}
      </ul>
    </nav>
  );
}
