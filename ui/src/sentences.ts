// Decisions and moves as sentences.
import { bytes, duration, figure, messages, percent } from "./format";
import { plural, shortRange, split, utc } from "./format";
import type {
  AbsentBroker as Absent,
  DecisionShown as Decision,
  Move,
  SkipShown as Skip,
  UnloadShown as Unload,
} from "../generated/openapi";
import { counted } from "./returns";
import type { Counted } from "./returns";
import { shownAt } from "./when";

// Whether a bundle was made from another one by splits, or is that one.
export function isPartOf(bundle: string, whole: string): boolean {
  const [a, b] = [split(bundle), split(whole)];
  if (a.namespace !== b.namespace) return false;
  const [from = NaN, to = NaN] = a.range.split("_").map((text) => parseInt(text, 16));
  const [first = NaN, last = NaN] = b.range.split("_").map((text) => parseInt(text, 16));
  return first <= from && to <= last;
}

export interface Sentence {
  mark: "move" | "quiet" | "place" | "split" | "merge" | "bad";
  head: string;
  details: string[];
  /** The figures behind details that are in words. */
  figures?: string;
}

export function shortBundle(bundle: string): string {
  const { namespace, range } = split(bundle);
  return range.startsWith("0x") ? `${namespace} ${shortRange(range)}` : bundle;
}

const words = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`).replace(/_/g, " ");

/** Figures that are shown in percent. */
const FRACTIONS = new Set(["usage", "average", "threshold"]);

export function numbers(why: Record<string, number | string> | undefined): string {
  return Object.entries(why ?? {})
    .map(([name, value]) => `${words(name)} ${FRACTIONS.has(name) ? `${(100 * Number(value)).toFixed(1)}%` : figure(value)}`)
    .join(", ");
}

/** What a move does to the usage of both brokers; empty if the figures are of another kind. */
function evened(why: Record<string, number | string> | undefined): string {
  const of = (name: string): number => Number(why?.[name] ?? NaN);
  const part = (name: string): string => `${(100 * of(name)).toFixed(1)} %`;
  const known = ["usage", "usageAfter", "destinationUsage", "destinationUsageAfter"];
  if (!known.every((name) => Number.isFinite(of(name)))) return "";
  const worth = of("gain") / of("price");
  const times = Number.isFinite(worth) ? `, ${worth.toFixed(1)} times what it costs clients` : "";
  const pause = times && why?.pauseSeconds ? `, who wait ${Number(of("pauseSeconds").toPrecision(2))} s each` : "";
  const errors = Math.max(of("usageError"), of("destinationError"));
  const sensors = Number.isFinite(errors)
    ? ` (sensors: ${part("usageMeasured")} and ${part("destinationMeasured")}; the model may be ${(100 * errors).toFixed(1)} points off)`
    : "";
  return (
    `it brings ${part("usage")} and ${part("destinationUsage")} to ` +
    `${part("usageAfter")} and ${part("destinationUsageAfter")}${times}${pause}${sensors}`
  );
}

/** Why a broker sheds, by the figures of Pulsar's shedders; empty if they are of another kind. In
 * the words of `compared` of the command line. */
function compared(reason: string, why: Record<string, number | string> | undefined): string {
  const of = (name: string): number => Number(why?.[name] ?? NaN);
  const part = (name: string): string => `${(100 * of(name)).toFixed(1)}\u202f%`;
  const plain = (name: string): string => figure(of(name));
  const has = (...names: string[]): boolean => names.every((name) => Number.isFinite(of(name)));
  const traffic = (name: string): string =>
    reason === "MsgRate" ? `${messages(of(name))} msg/s` : bytes(of(name));
  const goal = ["goal", "goalBytesPerSecond"].find((name) => has(name));
  if (!goal) return "";
  const other = why?.leastLoaded || "another one";
  const points = `${(100 * of("threshold")).toFixed(1)} points`;
  const so = (words: string): string =>
    `its broker ${words}; bundles of ${traffic(goal)} in all are to leave`;
  if (has("maxRate", "minRate", "differencePercent")) {
    const difference = `a difference of ${plain("differencePercent")}\u202f%`;
    return so(`has ${traffic("maxRate")}, ${other} ${traffic("minRate")}, ${difference}`);
  }
  if (has("maxThroughput", "minThroughput", "ratio")) {
    const both = `${traffic("maxThroughput")}, ${other} ${traffic("minThroughput")}`;
    return so(`has ${both}, a factor of ${plain("ratio")}`);
  }
  if (has("score", "destinationScore"))
    return so(`has a score of ${plain("score")}, the other one ${plain("destinationScore")}`);
  if (has("load", "destinationLoad"))
    return so(`has a load of ${plain("load")}, the other one ${plain("destinationLoad")}`);
  if (!has("usage", "threshold")) return "";
  const uses = `uses ${part("usage")}`;
  if (!has("average")) return so(`${uses}, the limit is ${part("threshold")}`);
  const mean = `the mean of ${part("average")}`;
  return why?.pass === "lowerBoundary"
    ? so(`${uses}, and another one is more than ${points} below ${mean}`)
    : so(`${uses}, more than ${points} above ${mean}`);
}

/** Why a bundle moves, in words where its figures are of a kind that has words. */
export function because(reason: string, why: Record<string, number | string> | undefined): string {
  const text = evened(why) || compared(reason, why);
  const by = text && why?.orderedBy ? `; ordered by ${why.orderedBy}` : "";
  const note = text && why?.cordonNote ? `; ${why.cordonNote}` : "";
  return [reason, text ? text + by + note : numbers(why)].filter(Boolean).join(": ");
}

const isWorded = (reason: string, why: Record<string, number | string> | undefined): boolean =>
  !!(evened(why) || compared(reason, why));

// CamelCase names of reasons are words that Pulsar made: "Overloaded" stays, "NoBundle" too.
export const skipText = ({ what, reason, times, firstAt }: Skip): string => {
  const text = what === "cluster" ? reason : `${what.includes("_0x") ? shortBundle(what) : what}: ${reason}`;
  return firstAt && times ? `${text} (${times} times since ${utc(firstAt)})` : text;
};

export function unloadText(unload: Unload, name: (broker: string) => string): string {
  const to = unload.destination === null ? "wherever it is placed" : name(unload.destination);
  return `${shortBundle(unload.bundle)} from ${name(unload.source)} to ${to}`;
}

type Name = (broker: string) => string;

// Times in it are in UTC: `Told` shows them.
export function sentence(decision: Decision, name: Name): Sentence {
  const say = SENTENCES[decision.kind];
  if (say) return say(decision, name);
  const head = `${decision.kind} ${decision.bundle ? shortBundle(decision.bundle) : ""}`.trim();
  return { mark: "quiet", head, details: decision.reason ? [decision.reason] : [] };
}

const SENTENCES: Record<string, (decision: Decision, name: Name) => Sentence> = {
  shed,
  newcomers: (decision) => ({
    mark: "quiet",
    head: "Nearly empty brokers get no bundle",
    details: (decision.skipped ?? []).map(skipText),
  }),
  skip: (decision) => ({
    mark: "quiet",
    head: `${decision.strategy ?? "The leader"} did not act`,
    details: (decision.skipped ?? []).map(skipText),
  }),
  place: (decision, name) => ({
    mark: "place",
    head: decision.broker
      ? `${shortBundle(decision.bundle ?? "")} placed on ${name(decision.broker)}`
      : `${shortBundle(decision.bundle ?? "")} could not be placed`,
    details: placed(decision, name),
    figures: numbers(decision.why) || undefined,
  }),
  split: (decision, name) => ({
    mark: decision.state === "failed" ? "bad" : "split",
    head: `${shortBundle(decision.bundle ?? "")} ${SPLITS[decision.state ?? ""] ?? "splits"}${
      decision.broker ? ` on ${name(decision.broker)}` : ""
    }`,
    details: [because(decision.reason ?? "", decision.why), decision.outcome?.text ?? ""].filter(
      Boolean,
    ),
  }),
  merge: (decision) => ({
    mark: "merge",
    head: `${(decision.parts ?? []).map(shortBundle).join(" and ")} merged`,
    details: [decision.reason ?? ""].filter(Boolean),
  }),
  move: moved,
  failure: (decision) => ({
    mark: "bad",
    head: `The step “${decision.step ?? ""}” failed`,
    details: [decision.error ?? ""].filter(Boolean),
  }),
};

function shed(decision: Decision, name: Name): Sentence {
  const unloads = decision.unloads ?? [];
  const skipped = decision.skipped ?? [];
  const strategy = decision.strategy ?? "The shedder";
  const total = decision.unloadsCount;
  if (unloads.length || total) {
    const others =
      total === undefined ? ", perhaps others, too" : total === unloads.length ? "" : `, ${unloads.length || "none"} of them here`;
    const paused = skipped.some(({ what, code }) => what === "cluster" && code === "Paused");
    const waits = paused ? " once moves are no longer paused" : "";
    return {
      mark: "move",
      head: `${strategy} moves ${plural(total ?? unloads.length, "bundle")}${others}${waits}`,
      details: unloads.map(
        (unload) =>
          `${unloadText(unload, name)}: ${because(unload.reason, unload.why)}`,
      ),
      figures: unloads.some((unload) => isWorded(unload.reason, unload.why))
        ? unloads.map((unload) => `${shortBundle(unload.bundle)}: ${numbers(unload.why)}`).join("; ")
        : undefined,
    };
  }
  const times = decision.times ?? 1;
  const since = decision.firstAt && times > 1 ? `, ${times} times since ${utc(decision.firstAt)}` : "";
  const average = decision.inputs?.averageUsage;
  const load = typeof average === "number" ? [`${plural(decision.inputs?.brokers ?? 0, "broker")}, average load ${percent(average)}`] : [];
  return {
    mark: "quiet",
    head: total === undefined ? `${strategy} decided` : `${strategy} moved nothing${since}`,
    details: [...load, ...skipped.map(skipText)],
  };
}

function placed(decision: Decision, name: Name): string[] {
  const others = decision.rejectedCount ?? Object.keys(decision.rejected ?? {}).length;
  const left = decision.candidates?.length ?? 0;
  const few = Object.entries(decision.rejected ?? {})
    .slice(0, 3)
    .map(([broker, reason]) => `not ${name(broker)}: ${reason}`);
  // The history has no candidates, and says the same as its reason.
  const why = decision.candidates ? choice(left, left + others) : decision.reason;
  return [...(why ? [why] : []), ...few, ...(others > 3 ? [`and ${others - 3} others were rejected`] : [])];
}

// As `placement_reason` of the broker says it.
function choice(left: number, brokers: number): string {
  const rejected = brokers > left;
  if (left > 1) return `one of ${left} equally good brokers${rejected ? `, out of ${brokers}` : ""}`;
  if (left === 0) return "no broker qualifies";
  return rejected ? `the one of ${brokers} brokers that was not rejected` : "the only broker";
}

/** The note of a pause, cordon or pin, and who ordered it; empty if neither is known. */
export const ordered = ({ note, by }: { note: string; by?: string }): string =>
  [note, by ? `by ${by}` : ""].filter(Boolean).join("; ");

const SPLITS: Record<string, string> = {
  running: "splits",
  done: "was split",
  failed: "was not split",
};

const ENDS: Record<string, string> = {
  done: "moved",
  failed: "was not moved",
  cancelled: "stays: its move was cancelled",
  expired: "stays: its move waited too long",
};

function moved(decision: Decision, name: Name): Sentence {
  const state = decision.state ?? "";
  const way =
    state === "done"
      ? ` from ${name(decision.source ?? "?")} to ${
          decision.destination ? name(decision.destination) : "another broker"
        }`
      : "";
  const pause = decision.outcome?.pauseMs;
  const outcome = counted(decision.move, decision.outcome ?? null);
  const unserved = typeof pause === "number" ? `unserved for ${pause.toFixed(pause < 10 ? 1 : 0)} ms` : "";
  return {
    mark: state === "failed" || clientsMissing(outcome) ? "bad" : "move",
    head: `${shortBundle(decision.bundle ?? "")} ${ENDS[state] ?? state}${way}`,
    details: [
      (state === "done" ? [clients(outcome), unserved] : [outcome?.text, unserved]).filter(Boolean).join(", "),
      because(decision.reason ?? "", decision.why),
    ].filter(Boolean),
    figures: isWorded(decision.reason ?? "", decision.why) ? numbers(decision.why) : undefined,
  };
}

const briefly = (ms: number): string => (ms < 1000 ? `${Math.round(ms)} ms` : duration(ms));

const fewOf = (back: number): string => (back ? `only ${back}` : "none");

// How many clients a move closed, and how long they were without a broker.
export function clients(outcome: Counted | null): string {
  const closed = outcome?.clientsClosed;
  if (typeof closed !== "number") return "";
  const back = outcome?.clientsBack;
  if (closed === 0) return "no clients";
  if (typeof back !== "number") return plural(closed, "client");
  if (typeof outcome?.lastBackMs === "number") {
    const some = back < closed ? fewOf(back) : String(back);
    return `${some} of ${plural(closed, "client")} back, the last after ${briefly(outcome.lastBackMs)}`;
  }
  const unserved = outcome?.clientsUnserved;
  const more = unserved ? `; ${unserved} more connected and got nothing` : "";
  const at = outcome?.clientsBackAt && back ? ` at ${outcome.clientsBackAt}` : "";
  const within = typeof outcome?.clientsWithinMs === "number" ? ` within ${briefly(outcome.clientsWithinMs)}` : "";
  if (back < closed) return `${fewOf(back)} of ${plural(closed, "client")} back${at}${within}${more}`;
  const longest = outcome?.clientsWaitedMs, mean = outcome?.clientsWaitedMeanMs;
  if (typeof longest !== "number") return `${back} of ${plural(closed, "client")} back${at}`;
  const waited = `${plural(closed, "client")} waited`;
  return `${waited} ${waits(longest, mean, back)}${at && `, back${at}`}`;
}

// How long clients waited: on the mean, and at most.
function waits(longest: number, mean: number | null | undefined, clients: number): string {
  if (typeof mean !== "number" || clients < 2) return briefly(longest);
  if (briefly(mean) === briefly(longest)) return `${briefly(longest)} each`;
  return `${briefly(mean)} on the mean, ${briefly(longest)} at most`;
}

const HOW: Record<string, string> = {
  stopped: "stopped in order",
  drained: "drained and stopped",
};
const ANSWERS = "answers, without a session";
const MAYBE_ANSWERS = "answered without a session, or another process did in its place";
const REPLACED = "had ended: another process answered in its place";
export const LATER = "; later it ";
const WAITING_MAX = 3;
export const COUNTED_MS = 600_000; // clients that come later than this are new ones

// When and how a broker left, and what became of its bundles: in the words of `loadmanager admin
// status` (`cli/admin/absences.py`).
export function absenceText(absence: Absent): string {
  const { broker, how, leftAt, sign, unheardMs } = absence;
  let text = `${broker} ${HOW[how] ?? how} ${duration(shownAt() - leftAt)} ago (${utc(leftAt)})`;
  if (how === "lost") {
    text += absence.storeSilent
      ? ", its session ended while the metadata store did not answer"
      : ", its session ended without a word";
    if (unheardMs) text += ` up to ${duration(unheardMs)} after its last sign`;
    if (sign) text += `; asked then, it ${signText(absence, sign)}`;
  }
  return `${text}; ${absentBundles(absence)}${absentClients(absence)}`;
}

function signText({ backAt, sameProcess }: Absent, sign: string): string {
  // As `sign_told` of leader/documents/members.py.
  const gone = typeof backAt !== "number";
  const words = gone ? MAYBE_ANSWERS : sameProcess ? ANSWERS : REPLACED;
  const [first = "", later] = sign.replaceAll(ANSWERS, words).split(LATER);
  const then = later === undefined ? "" : `${LATER}${later}${meaningOf(later)}`;
  return `${first}${meaningOf(first)}${then}`;
}

// What follows from what a lost broker did when it was asked.
function meaningOf(sign: string): string {
  if (sign.startsWith("did not answer")) return " (frozen, or cut off)";
  return sign.includes("reached") ? " (its process has ended, or its host is away)" : "";
}

function absentBundles({ bundles = 0, placed = 0, placedAt, placedExact, leftAt, waiting = [] }: Absent): string {
  if (!bundles) return "it owned no bundle";
  const left = bundles - placed;
  const most = placedExact ? "" : " at most"; // `admin status` looks at the records of owners
  if (!left) return `${plural(bundles, "bundle")} placed after ${duration((placedAt ?? leftAt) - leftAt)}${most}`;
  const some = waiting.slice(0, WAITING_MAX);
  const more = left > some.length ? ` and ${left - some.length} more` : "";
  const named = some.length ? `: ${some.join(", ")}${more}` : "";
  return `${plural(bundles, "bundle")}, ${left} without an owner until the next lookup${named}`;
}

// The same of one that is back.
export function returnText(absence: Absent): string {
  const away = typeof absence.backAt === "number" ? duration(absence.backAt - absence.leftAt) : "";
  const how = absence.sameProcess ? "the same process" : "restarted";
  return `${absenceText(absence)}; the broker is back after ${away}, ${how}`;
}

// What became of the clients of a broker that left, as it had last published them.
function absentClients(absence: Absent): string {
  const { clients, clientsBack: back = 0, clientsWaitedMs: longest, clientsWaitedMeanMs: mean, unheardMs } = absence;
  if (!clients) return "";
  const those = plural(clients, "client");
  const missing = back < clients;
  const within = missing && isCounted(absence) ? ` within ${duration(COUNTED_MS)}` : "";
  const some = `${fewOf(back)} of ${those} back${within}`;
  const counted = ", as the leader counted"; // `admin status` looks at the records of clients, too
  if (typeof longest !== "number") return missing ? `; ${some}${counted}` : `; ${those} back`;
  const most = unheardMs ? `up to ${duration(longest + unheardMs)}: ` : "";
  const before = unheardMs ? ` since it was lost, and up to ${duration(unheardMs)} before` : "";
  const waited = `waited ${most}${waits(longest, mean, back)}${before}`;
  return missing ? `; ${some}, who ${waited}${counted}` : `; ${those} ${waited}`;
}

// The bundles of a broker that nobody serves; none where it and all of its clients are back: nobody
// asks for those.
export function unserved({ backAt, clients, clientsBack = 0, placed = 0, bundles = 0 }: Absent): number {
  const unasked = typeof backAt === "number" && typeof clients === "number" && clientsBack >= clients;
  return unasked ? 0 : bundles - placed;
}

// Whether nobody counts its clients any more.
export function isCounted({ leftAt, placedAt, placed = 0, bundles = 0 }: Absent): boolean {
  return placed === bundles && shownAt() > Math.max(leftAt, placedAt ?? 0) + COUNTED_MS;
}

// Whether clients that a move closed have not come back.
export function clientsMissing(outcome: Move["outcome"]): boolean {
  const { clientsClosed, clientsBack } = outcome ?? {};
  return typeof clientsClosed === "number" && typeof clientsBack === "number" && clientsBack < clientsClosed;
}

// Whether nobody said if the clients that a move closed have come back.
export function clientsUnknown(outcome: Move["outcome"]): boolean {
  const { clientsClosed, clientsBack } = outcome ?? {};
  return !!clientsClosed && typeof clientsBack !== "number";
}

const LISTED = 3;

// Some names, and how many more there are.
export function listed(names: readonly string[]): string {
  const more = names.length - LISTED;
  return names.slice(0, LISTED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
