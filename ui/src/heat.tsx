// The heat map: a row a bundle, a column a sample, brighter with more bytes/s.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, count, duration, moment, plural, shortRange, split, told, utc } from "./format";
import type { HeatSeries as Series } from "../generated/openapi";
import type { HeatOfTime as Samples } from "./past";
import { listed } from "./sentences";
import { HEAT_ROWS, cluster, heat, notCounted, panel } from "./state";
import { use } from "./store";
import { Section } from "./section";
import { dark } from "./theme";
import { Told } from "./time";
import { Rows } from "./virtual";
import { when } from "./when";

// Few rows are taller: they are seen from farther away.
const rowHeight = (rows: number): number => (rows <= 10 ? 30 : rows <= 16 ? 24 : 20);
const RAMPS = {
  dark: ["#171c25", "#2b2547", "#5c2a63", "#a5385f", "#e3683f", "#f9b64a", "#fdf0b5"],
  light: ["#eceff3", "#fbe7c0", "#f9c878", "#f19c4b", "#dd6438", "#b0302f", "#6d1230"],
};

type Rgb = [number, number, number];
const rgb = (hex: string): Rgb => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as Rgb;

export function colour(part: number, ramp: readonly Rgb[]): Rgb {
  const at = Math.min(1, Math.max(0, part)) * (ramp.length - 1);
  const low = ramp[Math.floor(at)] as Rgb;
  const high = ramp[Math.ceil(at)] as Rgb;
  const rest = at - Math.floor(at);
  return low.map((value, i) => Math.round(value + ((high[i] as number) - value) * rest)) as Rgb;
}

export function rampOf(isDark: boolean): Rgb[] {
  return RAMPS[isDark ? "dark" : "light"].map(rgb);
}

// Brighter than in proportion, so that a bundle with a tenth of the load is still seen.
const brightness = (value: number, most: number): number => (most > 0 ? Math.sqrt(value / most) : 0);

function draw(canvas: HTMLCanvasElement, samples: Samples, most: number, isDark: boolean): void {
  const width = canvas.clientWidth;
  const tall = rowHeight(samples.bundles.length);
  const height = samples.bundles.length * tall;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  const columns = samples.times.length;
  if (!context || !columns || !width) return;
  context.scale(scale, scale);
  const ramp = rampOf(isDark);
  const image = new ImageData(columns, samples.bundles.length);
  samples.bundles.forEach((series, row) => {
    series.throughput.forEach((value, column) => {
      if (value === null) return;
      const at = 4 * (row * columns + column);
      image.data.set([...colour(brightness(value, most), ramp), 255], at);
    });
  });
  const small = new OffscreenCanvas(columns, samples.bundles.length);
  small.getContext("2d")?.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, width, height);
  context.fillStyle = isDark ? "#12161d" : "#ffffff";
  for (let row = 1; row <= samples.bundles.length; row += 1)
    context.fillRect(0, row * tall - 2, width, 2);
  for (const [row, series] of samples.bundles.entries())
    mark(context, series, row, { columns, width, isDark, tall: tall });
  for (const column of changesOf(samples)) {
    context.fillStyle = isDark ? "#c3cad6" : "#2b3442";
    context.fillRect(Math.round((column / columns) * width) - 1, 0, 2, height);
  }
}

// The columns in which another leader began; the first one has nothing before it.
function changesOf({ times, leaders }: Samples): number[] {
  return leaders.map(({ ts }) => times.findIndex((time) => time >= ts)).filter((column) => column > 0);
}

// A notch where the owner changed.
function mark(
  context: CanvasRenderingContext2D,
  series: Series,
  row: number,
  about: { columns: number; width: number; isDark: boolean; tall: number },
): void {
  for (const [column] of series.owners.slice(1)) {
    const x = Math.round((column / about.columns) * about.width);
    context.fillStyle = about.isDark ? "#0d1015" : "#ffffff";
    context.fillRect(x - 2, row * about.tall, 5, about.tall - 2);
    context.fillStyle = about.isDark ? "#8db4ff" : "#1f5fd6";
    context.fillRect(x - 0.5, row * about.tall - 1, 2, about.tall);
  }
}

interface Hint {
  x: number;
  y: number;
  text: string[];
}

function Map({ samples }: { samples: Samples }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hint, setHint] = useState<Hint | null>(null);
  const [wide, setWide] = useState(0);
  const isDark = use(dark);
  const most = peak(samples);
  const tall = rowHeight(samples.bundles.length);
  useLayoutEffect(() => {
    if (canvas.current) draw(canvas.current, samples, most, isDark);
  }, [samples, most, isDark, wide]);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWide(canvas.current?.clientWidth ?? 0));
    if (canvas.current) observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  const onMove = (event: MouseEvent): void => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box || event.clientX < box.left || event.clientX > box.right) return setHint(null);
    const series = samples.bundles[Math.floor((event.clientY - box.top) / tall)];
    const part = (event.clientX - box.left) / box.width;
    const column = Math.min(samples.times.length - 1, Math.floor(part * samples.times.length));
    if (!series) return setHint(null);
    setHint({ x: event.clientX, y: event.clientY, text: described(samples, series, column) });
  };
  return (
    <div class="map" onMouseMove={onMove} onMouseLeave={() => setHint(null)}>
      <Rows
        label="Bundles by load over time. Enter opens one."
        id="heat-rows"
        rows={samples.bundles}
        height={tall}
        rowKey={(series) => series.bundle}
        render={(series) => <Label series={series} />}
        open={(series) => panel.set({ kind: "bundle", name: series.bundle })}
        behind={
          <canvas
            ref={canvas}
            aria-hidden="true"
            style={{ height: `${samples.bundles.length * tall}px` }}
          />
        }
      />
      {hint && (
        <div
          class="hint"
          role="presentation"
          style={{
            left: `${Math.min(hint.x + 14, window.innerWidth - 260)}px`,
            top: `${hint.y + 16}px`,
          }}
        >
          {hint.text.map((line) => (
            <div key={line}>{line}</div>
          ))}
        </div>
      )}
    </div>
  );
}

function described(samples: Samples, series: Series, column: number): string[] {
  const value = series.throughput[column] ?? null;
  const owner = series.owners.filter(([at]) => at <= column).at(-1)?.[1];
  return [
    series.bundle,
    `${told(samples.times[column] ?? 0)}  ${
      value === null ? "not reported, or not among the hottest" : bytes(value)
    }`,
    owner && value !== null ? `on ${owner}` : "",
    ...ledAt(samples, column).map(({ ts, broker }) => `${broker} began to lead at ${told(ts)}`),
  ].filter(Boolean);
}

const ledAt = ({ times, leaders }: Samples, column: number): Samples["leaders"] =>
  leaders.filter(({ ts }) => times.findIndex((time) => time >= ts) === column);

function Label({ series }: { series: Series }): JSX.Element {
  const { namespace, range } = split(series.bundle);
  const last = series.throughput.at(-1) ?? null;
  const ended = !series.exists;
  return (
    <div class={ended ? "heat-row ended" : "heat-row"}>
      <span class="name" title={series.bundle}>
        <b>{shortRange(range)}</b>{" "}
        <small class="cut">
          <bdi>{namespace}</bdi>
        </small>
      </span>
      <span class="space" />
      <span class="number">{last === null ? "–" : bytes(last)}</span>
    </div>
  );
}

function peak(samples: Samples): number {
  let most = 0;
  for (const series of samples.bundles)
    for (const value of series.throughput) if (value !== null && value > most) most = value;
  return most;
}

function Legend({ samples }: { samples: Samples }): JSX.Element {
  const isDark = use(dark);
  const most = peak(samples);
  const stops = RAMPS[isDark ? "dark" : "light"].join(", ");
  return (
    <span class="legend">
      0 <i style={{ background: `linear-gradient(90deg, ${stops})` }} /> {bytes(most)}
      <span class="notch" aria-hidden="true" /> moved
      {changesOf(samples).length > 0 && (
        <>
          <span class="notch led" aria-hidden="true" /> new leader
        </>
      )}
    </span>
  );
}

// Of how many bundles the rows are.
function countText(samples: Samples): string {
  const there = samples.bundles.filter(({ exists }) => exists).length;
  if (samples.total <= there) return count(there);
  const all = samples.total < Infinity ? ` of ${count(samples.total)}` : "";
  if (samples.bundles.length >= HEAT_ROWS) return `the ${count(there)} hottest${all}`;
  return `${count(there)}${all}; of the others no traffic is reported`;
}

// Who began to lead in the time that is shown, and what of it is recorded; empty: nobody, nothing.
function termsText(samples: Samples): string {
  const first = samples.times[0] ?? 0;
  const changes = samples.leaders.filter(({ ts }) => ts > first).sort((a, b) => a.ts - b.ts);
  const last = changes.at(-1);
  const others = changes.length - 1;
  const more = others > 0 ? `, after ${plural(others, "other new leader")}` : "";
  const who = last ? `${last.broker} began to lead at ${utc(last.ts)}${more}` : "";
  const until = samples.recordedUntil;
  const before = until ? `until ${utc(until)} the map is what the brokers recorded` : "";
  return [who, before].filter(Boolean).join("; ");
}

export function Heat(): JSX.Element {
  const samples = use(heat);
  const now = use(cluster);
  const then = use(when);
  const nothing = !samples
    ? "Waiting for the first samples."
    : samples.bundles.length === 0
      ? then
        ? "No broker recorded the traffic of a bundle in this time."
        : now?.bundles
        ? "No broker has reported traffic of a bundle yet."
        : "No bundle has an owner yet. The first lookup of a topic places its bundle."
      : null;
  const times = samples?.times ?? [];
  const past = times.length > 1 ? (times.at(-1) ?? 0) - (times[0] ?? 0) : 0;
  const { missing, unknown } = use(notCounted);
  const without = [...Object.keys(missing), ...unknown].sort();
  const terms = samples ? termsText(samples) : "";
  return (
    <Section
      id="heat"
      title="Heat of bundles"
      about={samples ? countText(samples) : ""}
      tools={samples && !nothing && <Legend samples={samples} />}
      empty={nothing}
    >
      {samples && !nothing && (
        <>
          <div class="axis" aria-hidden="true">
            <span>{then ? moment(times[0] ?? 0) : `${duration(past)} ago`}</span>
            <span>bytes/s in and out</span>
            <span>{then ? moment(times.at(-1) ?? 0) : "now"}</span>
          </div>
          <Map samples={samples} />
          {without.length > 0 && (
            <p class="small line problem">Without what {listed(without)} carried then, which is not known.</p>
          )}
          {terms && (
            <p class="small line">
              <Told text={`${terms}.`} />
            </p>
          )}
        </>
      )}
    </Section>
  );
}
