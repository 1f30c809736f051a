// The time that the page shows: now, or one gone by; with how much before it the lists and the heat
// are of.
import { Store } from "./store";

export interface When {
  at: number;
  last: number;
}

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
const LAST_MIN_MS = 60_000;
const TOLD_MAX = 40;
const LAST_MAX_MS = 31 * DAY_MS;

// Null: now.
export const when = new Store<When | null>(null);

// Why the time of an address is not shown; empty: it is, or there is none.
export const refusedTime = new Store("");

// What times are told from.
export const shownAt = (): number => when.value?.at ?? Date.now();

// The part of an address that says it: ?at=2026-11-27T03:12:00.000Z&last=3600
export function queryOf(shown: When | null): string {
  if (!shown) return "";
  const at = new Date(shown.at).toISOString();
  return `?at=${at}&last=${Math.round(shown.last / 1000)}`;
}

export function refusalOf(query: string): string {
  const text = new URLSearchParams(query).get("at");
  if (text === null || whenIn(query)) return "";
  const why = Number.isFinite(Date.parse(text)) ? "is in the future" : "is no time";
  return `${text.slice(0, TOLD_MAX)} ${why}`;
}

export function whenIn(query: string): When | null {
  const values = new URLSearchParams(query);
  const at = Date.parse(values.get("at") ?? "");
  const last = Number(values.get("last") ?? HOUR_MS / 1000) * 1000;
  if (!Number.isFinite(at) || at > Date.now()) return null;
  return { at, last: Math.min(LAST_MAX_MS, Math.max(LAST_MIN_MS, last || HOUR_MS)) };
}
