// Who changed what: the changes that were allowed, the newest first.
import type { JSX } from "preact";
import { useNames } from "./decisions";
import { clock, plural } from "./format";
import type { ChangeShown as Change } from "../generated/openapi";
import { Section } from "./section";
import { changes, copy } from "./state";
import { use } from "./store";
import { when } from "./when";

function who(change: Change): string {
  const role = change.role || "nobody in particular";
  return change.proxied ? `${role} for ${change.proxied}` : role;
}

function Row({ change }: { change: Change }): JSX.Element {
  const name = useNames();
  const told = [
    ["of", change.path],
    ["before", change.before],
    ["after", change.after],
    ["note", change.note],
  ].filter((part): part is [string, string] => Boolean(part[1]));
  return (
    <li>
      <time dateTime={new Date(change.ts).toISOString()}>{clock(change.ts)}</time>
      <details>
        <summary>
          <span>{change.what}</span>
          <p>
            {change.id && <code>{change.id} </code>}
            {who(change)} from {change.address}, at {name(change.broker)}
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

export function Changes(): JSX.Element {
  const all = use(changes);
  const then = use(when);
  const name = useNames();
  const rows = all?.changes ?? [];
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
      <div class="scroll" tabIndex={0} role="region" aria-label="Who changed what">
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
