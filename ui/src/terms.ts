// The heat of before the leader's term: a new leader has no sample of it, and the archives have it.
// They are asked once in a term, and a few times more while they lack the last minutes of before it.
import type { HeatShown } from "../generated/openapi";
import { Failure } from "./api";
import { askEarlierHeat } from "./past";
import type { EarlierHeat, HeatOfTime, Led } from "./past";

const COLUMNS = 120; // samples that a leader keeps
const HEAT_ROWS = 60;
const TRIES = 3;
const AGAIN_MS = 5_000; // after what had not ended yet is recorded
const ALIGNED = 0.5; // of a column
const BORN_MS = 30_000; // brokers that start elect a leader within this time: nothing was before

let epoch = 0; // of the term that `earlier` is of before
let tries = 0;
let askedAt = 0;
let isAsking = false;
let earlier: EarlierHeat | null = null;
let latest: HeatShown | null = null;

const has = (heat: HeatShown, column: number): boolean =>
  heat.bundles.some(({ throughput }) => typeof throughput[column] === "number");

// The first column in which the leader's samples have a figure.
const firstOf = (own: HeatShown): number => {
  const first = own.times.findIndex((_, column) => has(own, column));
  return first < 0 ? own.times.length : first;
};

const stepOf = (own: HeatShown): number => own.intervalSeconds * 1000;
const beginOf = (own: HeatShown): number => own.times[firstOf(own)] ?? own.times.at(-1) ?? 0;

function isAskedFor(own: HeatShown, term: number, everyMs: number): boolean {
  if (term !== epoch) [epoch, tries, askedAt, earlier, isAsking] = [term, 0, 0, null, false];
  if (isAsking || !own.times.length || own.times.length >= COLUMNS || tries >= TRIES) return false;
  const times = earlier?.heat.times ?? [];
  const last = times.findLastIndex((time) => time < beginOf(own) - ALIGNED * stepOf(own));
  const isWhole = earlier !== null && last >= 0 && has(earlier.heat, last);
  return !isWhole && Date.now() - askedAt >= everyMs + AGAIN_MS;
}

// The heat of a leader's term, with what was before it; null: that is not known yet, and `later` is
// called with it. `everyMs`: how often brokers record their loads.
export function withEarlier(
  own: HeatShown,
  term: Led,
  everyMs: number,
  later: (heat: HeatOfTime) => void,
): HeatOfTime | null {
  latest = own;
  if (!isAskedFor(own, term.epoch, everyMs)) return isKnown(own) ? joined(own, term) : null;
  tries += 1;
  isAsking = true;
  askedAt = Date.now();
  const step = stepOf(own);
  const before = COLUMNS - (own.times.length - firstOf(own));
  const begin = beginOf(own) - before * step;
  // A record ends after what it is of: those of the last columns end later.
  const after = Math.min(COLUMNS, Math.max(0, Math.floor((Date.now() - beginOf(own)) / step)));
  const isOver = (): boolean => term.epoch !== epoch;
  void ask(begin, beginOf(own) + after * step, before + after)
    .finally(() => {
      if (!isOver()) isAsking = false;
    })
    .then((answer) => {
      if (isOver()) return;
      earlier = answer ?? earlier;
      later(joined(latest ?? own, term));
    });
  return isKnown(own) ? joined(own, term) : null;
}

const isKnown = (own: HeatShown): boolean => own.times.length > 0 && (earlier !== null || !isAsking);

async function ask(since: number, until: number, columns: number): Promise<EarlierHeat | null> {
  try {
    return await askEarlierHeat(since, until, columns);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return null; // the map begins with the term, then
  }
}

// Whether there was a time before the term, and the brokers did not begin with it: the first average
// of a record that lasts into the term would stand for what was not.
const isLater = (term: Led, { begin, leaders }: EarlierHeat): boolean =>
  begin < term.ts - BORN_MS || leaders.some(({ epoch: other }) => other !== term.epoch);

// The columns of before that are shown: those that there is room for, from the first with a figure.
function columnsOf(own: HeatShown, { begin, heat: before }: EarlierHeat): number[] {
  const until = beginOf(own) - ALIGNED * stepOf(own);
  const room = COLUMNS - (own.times.length - firstOf(own));
  const earliest = before.times.flatMap((time, column) => (begin < time && time < until ? [column] : []));
  const last = earliest.slice(Math.max(0, earliest.length - room));
  const begins = last.findIndex((column) => has(before, column));
  return begins < 0 ? [] : last.slice(begins);
}

function joined(own: HeatShown, term: Led): HeatOfTime {
  const before = earlier;
  const columns = before && isLater(term, before) ? columnsOf(own, before) : [];
  if (!before || !columns.length) return { ...own, leaders: [], recordedUntil: null };
  const first = firstOf(own);
  const isCut = own.bundles.length >= HEAT_ROWS; // a bundle that is not there may be a cold one
  const [from = 0] = columns;
  const count = columns.length;
  const rows = new Map(before.heat.bundles.map((series) => [series.bundle, series]));
  for (const { bundle } of own.bundles) if (!rows.has(bundle)) rows.set(bundle, none(bundle));
  const byName = new Map(own.bundles.map((series) => [series.bundle, series]));
  const bundles = [...rows].map(([bundle, old]) => {
    const now = byName.get(bundle) ?? { ...none(bundle), exists: isCut };
    const owners: [number, string][] = [];
    const add = (column: number, owner: string): void => {
      if (owners.at(-1)?.[1] !== owner) owners.push([Math.max(0, column), owner]);
    };
    for (const [column, owner] of old.owners) if (column < from + count) add(column - from, owner);
    for (const [column, owner] of now.owners) add(column - first + count, owner);
    const recorded = columns.map((column) => old.throughput[column] ?? null);
    const sampled = own.times.slice(first).map((_, column) => now.throughput[column + first] ?? null);
    return { ...now, owners, throughput: [...recorded, ...sampled] };
  });
  const heat = (throughput: (number | null)[]): number =>
    throughput.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  const hottest = bundles
    .filter(({ bundle, throughput }) => byName.has(bundle) || throughput.some((value) => value !== null))
    .sort((a, b) => heat(b.throughput) - heat(a.throughput))
    .slice(0, Math.max(own.bundles.length, before.heat.bundles.length));
  return {
    ...own,
    times: [...columns.map((column) => before.heat.times[column] ?? 0), ...own.times.slice(first)],
    bundles: hottest.sort((a, b) => a.bundle.localeCompare(b.bundle)),
    leaders: [...before.leaders.filter((it) => it.epoch !== term.epoch), term],
    recordedUntil: beginOf(own),
  };
}

const none = (bundle: string): HeatShown["bundles"][number] => ({
  bundle,
  exists: true,
  owner: null,
  owners: [],
  rate: null,
  throughput: [],
});
