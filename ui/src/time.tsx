// A time. Its zone is said once, beside the clock of the page; the title says all of it, for who is
// elsewhere.
import type { JSX } from "preact";
import { IN_UTC, fullMoment, parsedUtc, told } from "./format";

export function Time({ at, text }: { at: number; text?: string }): JSX.Element {
  return (
    <time dateTime={new Date(at).toISOString()} title={fullMoment(at)}>
      {text ?? told(at)}
    </time>
  );
}

// A sentence whose times are in UTC.
export function Told({ text }: { text: string }): JSX.Element {
  const between = text.split(IN_UTC);
  const times = text.match(IN_UTC) ?? [];
  return (
    <>
      {between.map((words, index) => (
        <>
          {words}
          {times[index] && <Time at={parsedUtc(times[index])} />}
        </>
      ))}
    </>
  );
}
