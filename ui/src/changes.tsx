// Who changed what: the changes that were allowed, the newest first.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useNames } from "./decisions";
import { plural } from "./format";
import type { ChangeShown as Change } from "../generated/openapi";
import { Section } from "./section";
import { LISTED, archived, changes, cluster, copy, earlierChanges, isDaemon } from "./state";
import { Store, use } from "./store";
import { Time, Told } from "./time";
import { when } from "./when";

function who({ role, proxied, address }: Change): string {
  const roles = [role, proxied].filter(Boolean).join(" for ");
  return [roles, address].filter(Boolean).join(" from ");
}

// Not what clients opened, nor what brokers ask of each other.
const isDecided = ({ over, what }: Change): boolean =>
  over !== "binary" && !what.includes("/loadmanager/v1/peers/");

const keyOf = ({ id, ts, broker, what, path }: Change): string =>
  id || [ts, broker, what, path].join(" ");

// The id of one that was looked for.
export const chosenChange = new Store("");

function Row({ change }: { change: Change }): JSX.Element {
  const name = useNames();
  const summary = useRef<HTMLElement>(null);
  const isChosen = use(chosenChange) === change.id;
  useEffect(() => {
    if (!isChosen) return;
    summary.current?.closest("details")?.setAttribute("open", "");
    summary.current?.focus();
    chosenChange.set("");
  }, [isChosen]);
  const told = [
    ["asked for", change.what],
    ["of", change.path],
    ["before", change.before],
    ["after", change.after],
    ["note", change.note],
  ].filter((part): part is [string, string] => Boolean(part[1]));
  return (
    <li>
      <Time at={change.ts} />
      <details>
        <summary ref={summary}>
          <span>
            <Told text={change.words ?? change.what} />
          </span>
          <p>
            {change.id && <code>{change.id} </code>}
            {who(change)}, at {name(change.broker)}
          </p>
        </summary>
        {change.id && navigator.clipboard && (
          <button class="copy" onClick={() => void copy(change.id!)}>
            Copy id
          </button>
        )}
        {told.map(([title, text]) => (
          <p key={title}>
            {title}: <code>{text}</code>
          </p>
        ))}
      </details>
    </li>
  );
}

// Those that the archives know and the brokers do not, because one was started since: `starts` is
// another then.
function useEarlier(wanted: boolean, starts: number): Change[] {
  const [list, setList] = useState<Change[]>([]);
  useEffect(() => {
    let over = false;
    if (wanted)
      void earlierChanges().then((found) => {
        if (!over) setList(found);
      });
    return () => {
      over = true;
    };
  }, [wanted, starts]);
  return wanted ? list : [];
}

export function Changes(): JSX.Element {
  const all = use(changes);
  const then = use(when);
  const now = use(cluster);
  const daemon = isDaemon(now);
  const known = use(archived) && !daemon;
  const name = useNames();
  const later = all?.changes ?? [];
  const starts = Math.max(0, ...(now?.brokers ?? []).map(({ startedAt }) => startedAt ?? 0));
  const earlier = useEarlier(all !== null && !then && known, starts);
  const listed = new Set(later.map(keyOf));
  const more = earlier.filter((it) => !listed.has(keyOf(it)));
  const decided = [...later, ...more].filter(isDecided);
  const rows = decided.sort((a, b) => b.ts - a.ts).slice(0, LISTED);
  const silent = Object.entries(all?.noAnswer ?? {});
  return (
    <Section
      id="changes"
      title="Who changed what"
      about={rows.length ? plural(rows.length, "change") : ""}
      empty={
        !all
          ? "Waiting for the first answer."
          : !rows.length && !silent.length
            ? then
              ? "Nobody changed anything in this time."
              : "Nobody has changed anything since the brokers started."
            : null
      }
    >
      <div class="scroll" tabIndex={0} role="group" aria-label="List of changes">
        <ol class="entries">
          {rows.map((change, index) => (
            <Row key={`${change.ts} ${change.broker} ${index}`} change={change} />
          ))}
        </ol>
        <ul class="list">
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
