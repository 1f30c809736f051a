// Figures and times for people. Figures keep their width, so that a list does not flicker.
import { shownAt } from "./when";

const UNITS = ["", "k", "M", "G", "T"];

function scaled(value: number, unit: string): string {
  let rest = value;
  let step = 0;
  while (rest >= 999.5 && step < UNITS.length - 1) {
    rest /= 1000;
    step += 1;
  }
  const digits = rest >= 99.5 || rest === 0 || (step === 0 && rest >= 9.95) ? 0 : 1;
  return `${rest.toFixed(digits)} ${UNITS[step]}${unit}`.trimEnd();
}

export const messages = (rate: number): string => scaled(rate, "").replace(" ", "\u202f");
export const bytes = (throughput: number): string => scaled(throughput, "B/s");
export const count = (value: number): string => value.toLocaleString("en-US");
export const percent = (part: number): string => `${Math.round(part * 100)}\u202f%`;

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}

// A time that may be on another day: 28 Nov, 06:00; and in another year: 28 Nov 2025, 06:00
export function moment(ms: number, seconds = false): string {
  const then = new Date(ms);
  return then.toLocaleString("en-GB", {
    day: "numeric",
    month: "short",
    ...(then.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    ...(seconds ? { second: "2-digit" } : {}),
  });
}

// The clock, with the day if that is another one: a time of tomorrow is not one that is over.
export const told = (ms: number): string =>
  new Date(ms).toDateString() === new Date(shownAt()).toDateString() ? clock(ms) : moment(ms, true);

// The zone of all times on the page, as it is then: GMT-5
export const zone = (ms: number): string =>
  new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" })
    .formatToParts(ms)
    .find(({ type }) => type === "timeZoneName")?.value ?? "";

// With all that is known of it: Sat, 28 Nov 2026, 01:00:00 GMT-5 (06:00:00 UTC)
export function fullMoment(ms: number): string {
  const here = new Date(ms).toLocaleString("en-GB", {
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    timeZoneName: "short",
  });
  const utc = `${new Date(ms).toISOString().slice(11, 19)} UTC`;
  return here.endsWith(" UTC") ? here : `${here} (${utc})`;
}

// Texts of brokers have their times in UTC: 2026-11-28T06:00:00Z
export const IN_UTC = /\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)/g;

export const parsedUtc = (utc: string): number => Date.parse(utc.replace(" ", "T"));

// As a plain text, for a title, say; `Told` shows the same with titles of its times.
export const inZone = (text: string): string =>
  text.replace(IN_UTC, (found) => told(parsedUtc(found)));

// A time within a sentence of the page, as brokers have theirs.
export const utc = (ms: number): string => `${new Date(ms).toISOString().slice(0, 19)}Z`;

export function duration(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return inParts(s, 60, "min", 1, "s");
  return s < 172_800 ? inParts(s, 3600, "h", 60, "min") : `${Math.round(s / 86_400)} days`;
}

const PARTS_BELOW = 10; // so many hours or minutes are told without minutes or seconds

function inParts(s: number, unit: number, name: string, part: number, partName: string): string {
  const parts = Math.round(s / part), per = unit / part;
  const whole = Math.floor(parts / per), rest = parts % per;
  return whole < PARTS_BELOW && rest ? `${whole} ${name} ${rest} ${partName}` : `${Math.round(s / unit)} ${name}`;
}

export function figure(value: unknown): string {
  if (typeof value === "string" && /^-?\d+\.\d+$/.test(value)) return figure(Number(value)); // archives
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
}

// 0x7fffffff_0xbfffffff → 80–c0: as many digits as tell a range from its neighbours.
export function shortRange(range: string): string {
  const [from, to] = range.split("_").map((text) => parseInt(text, 16));
  if (from === undefined || to === undefined || Number.isNaN(from) || Number.isNaN(to)) return range;
  let digits = 2;
  while (digits < 8 && to - from < 16 ** (8 - digits)) digits += 1;
  const unit = 16 ** (8 - digits);
  const most = 16 ** digits - 1;
  const shown = (hash: number): string =>
    Math.min(most, Math.round(hash / unit))
      .toString(16)
      .padStart(digits, "0");
  return `${shown(from)}–${shown(to)}`;
}

export function split(bundle: string): { namespace: string; range: string } {
  const at = bundle.lastIndexOf("/");
  return { namespace: bundle.slice(0, at), range: bundle.slice(at + 1) };
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// 127.0.0.1:8081 among 127.0.0.1:… → :8081; hosts of one domain → their first part
export function shortNames(ids: readonly string[]): (id: string) => string {
  const hosts = new Set(ids.map((id) => id.slice(0, id.lastIndexOf(":"))));
  const ports = new Set(ids.map((id) => id.slice(id.lastIndexOf(":"))));
  if (hosts.size === 1 && ids.length > 1) return (id) => id.slice(id.lastIndexOf(":"));
  if (ports.size !== 1) return (id) => id;
  return (id) => {
    const host = id.slice(0, id.lastIndexOf(":"));
    return /^[\d.]+$/.test(host) ? host : (host.split(".")[0] ?? host);
  };
}
