// What the leader decided and why, the newest first; also why nothing moved.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { shortNames } from "./format";
import type { DecisionShown as Decision } from "../generated/openapi";
import type { Earlier } from "./past";
import { archived, cluster, decisions, earlierOf, isDaemon, panel } from "./state";
import { use } from "./store";
import { returns } from "./returns";
import { Section } from "./section";
import { sentence } from "./sentences";
import { Time, Told } from "./time";
import { when } from "./when";

const FEW = 10; // of this term: those of earlier ones are shown, too
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

export function bundleOf(decision: Decision): string | null {
  if (decision.bundle) return decision.bundle;
  return decision.unloads?.length === 1 ? (decision.unloads[0]?.bundle ?? null) : null;
}

const NONE: Earlier = { decisions: [], recordedSince: "" };

// What was decided in earlier terms, which the archives know: about a bundle or a broker if named.
export function useEarlier(name: string | null, wanted: boolean): Earlier {
  const now = use(cluster);
  const epoch = !use(archived) || isDaemon(now) || !wanted ? 0 : (now?.leader.epoch ?? 0);
  const [earlier, setEarlier] = useState(NONE);
  useEffect(() => {
    let over = false;
    if (epoch)
      void earlierOf(name, epoch).then(([found]) => {
        if (!over) setEarlier(found ?? NONE);
      });
    return () => {
      over = true;
    };
  }, [name, epoch]);
  return epoch ? earlier : NONE;
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
            <Time at={decision.ts} />
            <div>
              {bundle ? (
                <button class="link" onClick={() => panel.set({ kind: "bundle", name: bundle })}>
                  <Told text={head} />
                </button>
              ) : (
                <span>
                  <Told text={head} />
                </span>
              )}
              {details.slice(0, details.length - more.length).map((line) => (
                <p key={line}>
                  <Told text={line} />
                </p>
              ))}
              {more.length > 0 && (
                <details>
                  <summary>{more.length} more</summary>
                  {more.map((line) => (
                    <p key={line}>
                  <Told text={line} />
                </p>
                  ))}
                </details>
              )}
              {figures && (
                <details>
                  <summary>figures</summary>
                  <p>
                    <Told text={figures} />
                  </p>
                </details>
              )}
            </div>
          </li>
        );
      })}
    </ol>
  );
}

// The newest first, as `admin decisions` has them: a leader also tells of moves of before its term,
// and brokers that do not lead may record later than it began. What both have, it knows better.
function inOrder(own: Decision[], earlier: Decision[]): Decision[] {
  const ids = new Set(own.map(({ id }) => id));
  return [...own, ...earlier.filter(({ id }) => !ids.has(id))].sort((a, b) => b.ts - a.ts);
}

export function Decisions(): JSX.Element {
  const all = use(decisions);
  use(returns);
  const then = use(when);
  const [choice, setChoice] = useState<keyof typeof CHOICES>("all");
  const { decisions: earlier } = useEarlier(null, all !== null && !then && all.length < FEW);
  const shown = inOrder(all ?? [], earlier).filter(CHOICES[choice]);
  const empty = !all
    ? "Waiting for the first answer."
    : all.length + earlier.length === 0
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
      <div class="scroll" tabIndex={0} role="group" aria-label="List of decisions">
        <Entries list={shown} />
      </div>
    </Section>
  );
}
