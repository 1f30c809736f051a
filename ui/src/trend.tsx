// How the load of a bundle or of a broker went, as a line.
import type { JSX } from "preact";
import { useAsked } from "./asked";
import { bytes, duration, percent } from "./format";
import { askUsage } from "./past";
import { archived, heat } from "./state";
import { use } from "./store";
import { HOUR_MS, when } from "./when";
import type { When } from "./when";

const SIZE = { width: 400, height: 56 };
const AGAIN_MS = 60_000; // a record is of a minute
const GAP_MS = 5_000; // records that follow each other may be so far apart

interface Point {
  x: number; // from 0 to 1
  value: number | null;
}

// `marks`: where a thing came to another owner, from 0 to 1.
function Line({ points, most, label, marks = [] }: {
  points: Point[];
  most: number;
  label: string;
  marks?: number[];
}): JSX.Element {
  let path = "";
  let begins = true;
  for (const { x, value } of points) {
    if (value !== null) {
      const y = SIZE.height - 2 - (value / most) * (SIZE.height - 6);
      path += `${begins ? "M" : "L"}${(x * SIZE.width).toFixed(1)} ${y.toFixed(1)}`;
    }
    begins = value === null;
  }
  return (
    <svg viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {marks.map((x) => (
        <line key={x} x1={x * SIZE.width} x2={x * SIZE.width} y1="0" y2={SIZE.height} />
      ))}
      <path d={path} />
    </svg>
  );
}

export function TrendOfBundle({ bundle }: { bundle: string }): JSX.Element | null {
  const then = use(when);
  const series = use(heat)?.bundles.find((each) => each.bundle === bundle);
  if (!series) return null;
  const values = series.throughput;
  const peak = Math.max(0, ...values.map((value) => value ?? 0));
  const last = Math.max(1, values.length - 1);
  const points = values.map((value, at) => ({ x: at / last, value }));
  return (
    <figure>
      <Line
        points={points}
        most={Math.max(1, peak)}
        label={`Bytes per second, at most ${bytes(peak)}`}
        marks={series.owners.slice(1).map(([at]) => at / last)}
      />
      <figcaption>
        bytes/s in the {then ? `${duration(then.last)} before` : "last minutes"}, at most {bytes(peak)}
      </figcaption>
    </figure>
  );
}

// Its most used resource, of a full one, minute by minute as it was recorded; where it is not, there is no line.
export function TrendOfBroker({ broker }: { broker: string }): JSX.Element | null {
  const recorded = use(archived);
  const then = use(when);
  return recorded || then ? <Usage broker={broker} then={then} /> : null;
}

function Usage({ broker, then }: { broker: string; then: When | null }): JSX.Element | null {
  const last = then?.last ?? HOUR_MS;
  const { answer } = useAsked(
    () => askUsage(broker, (then?.at ?? Date.now()) - last, then?.at ?? Date.now()),
    `${broker} ${then?.at} ${last}`,
    then === null,
    AGAIN_MS,
  );
  if (!answer?.records.length) return null;
  const { since, until, records } = answer;
  const x = (ts: number): number => (Math.max(ts, since) - since) / (until - since);
  const points: Point[] = [];
  let before = 0;
  for (const { ts, spanMs, usage } of records) {
    if (before && ts - spanMs - before > GAP_MS) points.push({ x: x(before), value: null });
    points.push({ x: x(ts - spanMs), value: usage }, { x: x(ts), value: usage });
    before = ts;
  }
  const peak = Math.max(...records.map(({ usage }) => usage));
  return (
    <figure>
      <Line points={points} most={Math.max(1, peak)} label={`Usage, at most ${percent(peak)}`} />
      <figcaption>
        usage of its fullest resource in the {then ? `${duration(last)} before` : `last ${duration(last)}`}, as
        shedders see it: at most {percent(peak)}
      </figcaption>
    </figure>
  );
}
