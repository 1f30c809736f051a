// What the leader decided and why, the newest first; also why nothing moved.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { clock, shortNames } from "./format";
import type { DecisionShown as Decision } from "../generated/openapi";
import { cluster, decisions, panel } from "./state";
import { use } from "./store";
import { Section } from "./section";
import { sentence } from "./sentences";
import { when } from "./when";

const LINES = 4;
const QUIET_LINES = 1;
const CHOICES = {
  all: () => true,
  acts: (decision: Decision) => sentence(decision, String).mark !== "quiet",
};

export function useNames(): (broker: string) => string {
  const now = use(cluster);
  return shortNames(now?.brokers.map(({ broker }) => broker) ?? []);
}

function bundleOf(decision: Decision): string | null {
  if (decision.bundle) return decision.bundle;
  return decision.unloads?.length === 1 ? (decision.unloads[0]?.bundle ?? null) : null;
}

export function Entries({ list }: { list: Decision[] }): JSX.Element {
  const name = useNames();
  return (
    <ol class="entries">
      {list.map((decision) => {
        const { mark, head, details, figures } = sentence(decision, name);
        const few = mark === "quiet" ? QUIET_LINES : LINES;
        const more = details.length > few + 1 ? details.slice(few) : [];
        const bundle = bundleOf(decision);
        return (
          <li key={decision.id} class={mark}>
            <time dateTime={new Date(decision.ts).toISOString()}>{clock(decision.ts)}</time>
            <div>
              {bundle ? (
                <button class="link" onClick={() => panel.set({ kind: "bundle", name: bundle })}>
                  {head}
                </button>
              ) : (
                <span>{head}</span>
              )}
              {details.slice(0, details.length - more.length).map((line) => (
                <p key={line}>{line}</p>
              ))}
              {more.length > 0 && (
                <details>
                  <summary>{more.length} more</summary>
                  {more.map((line) => (
                    <p key={line}>{line}</p>
                  ))}
                </details>
              )}
              {figures && (
                <details>
                  <summary>figures</summary>
                  <p>{figures}</p>
                </details>
              )}
            </div>
          </li>
        );
      })}
    </ol>
  );
}

export function Decisions(): JSX.Element {
  const all = use(decisions);
  const [choice, setChoice] = useState<keyof typeof CHOICES>("all");
  const shown = (all ?? []).filter(CHOICES[choice]);
  const empty = !all
    ? "Waiting for the first answer."
    : all.length === 0
      ? when.value
        ? "No decision is recorded of this time."
        : "The leader has decided nothing yet: its term has just begun."
      : shown.length === 0
        ? "Nothing was done lately. “All” shows why."
        : null;
  return (
    <Section
      id="decisions"
      title="Decisions"
      about="newest first"
      tools={
        <select
          aria-label="Which decisions"
          value={choice}
          onChange={(event) => setChoice(event.currentTarget.value as keyof typeof CHOICES)}
        >
          <option value="all">all</option>
          <option value="acts">those that did something</option>
        </select>
      }
      empty={empty}
    >
      <div class="scroll" tabIndex={0} role="region" aria-label="Decisions">
        <Entries list={shown} />
      </div>
    </Section>
  );
}
