// A time. Its zone is said once, beside the clock of the page; the title says all of it, for who is
// elsewhere.
import type { JSX } from "preact";
import { fullMoment, told } from "./format";

export function Time({ at, text }: { at: number; text?: string }): JSX.Element {
  return (
    <time dateTime={new Date(at).toISOString()} title={fullMoment(at)}>
      {text ?? told(at)}
    </time>
  );
}
