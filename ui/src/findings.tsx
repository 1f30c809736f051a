// What the leader finds wrong, now or at the time that is shown; nothing where nothing is.
import type { JSX } from "preact";
import { duration } from "./format";
import type { FindingThen as Finding } from "./past";
import { findings } from "./state";
import { use } from "./store";
import { Time, Told } from "./time";
import { shownAt } from "./when";

function Card({ finding }: { finding: Finding }): JSX.Element {
  return (
    <li>
      <details>
        <summary>
          <b>
            <Told text={finding.title} />
          </b>{" "}
          <span class="small">
            {finding.before
              ? `as ${finding.before} had found before its term ended, not known to be over; `
              : ""}
            since <Time at={finding.since} /> ({duration(shownAt() - finding.since)})
            {finding.recordedAt != null && (
              <>
                ; as of <Time at={finding.recordedAt} />
              </>
            )}
          </span>
        </summary>
        <p>
          <Told text={finding.text} /> {finding.advice}
        </p>
        {finding.command && (
          <p>
            <code>{finding.command}</code>
          </p>
        )}
      </details>
    </li>
  );
}

export function Findings(): JSX.Element | null {
  const all = use(findings);
  if (!all.length) return null;
  return (
    <section class="findings" id="findings" aria-label="Found wrong">
      <ul>
        {all.map((finding) => (
          <Card key={`${finding.kind} ${finding.about}`} finding={finding} />
        ))}
      </ul>
    </section>
  );
}
