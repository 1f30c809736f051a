// What the page shows now, and how it is kept current.
import { Failure, V1, get } from "./api";
import type { Kind } from "./api";
import { askChanges, askClient, askDecision, askEarlier, askMarks, askMoves, askPast, askRecorded, askRefused, askToday, askUnproven } from "./past";
import type { ClientLine, Earlier, FindingThen, HeatOfTime, LapseTold, Marks, Past, Refusal } from "./past";
import { utc } from "./format";
import { Store } from "./store";
import * as stream from "./stream";
import { withEarlier } from "./terms";
import { DAY_MS, HOUR_MS, when } from "./when";
import type { When } from "./when";
import type {
  AbsentBroker as Absent,
  BrokerShown,
  ChangeShown,
  FindingsShown,
  ChangesShown as Changes,
  ClusterShown,
  ClustersShown,
  DecisionShown as Decision,
  DownShown,
  HeatShown,
  InterruptionsShown,
  LastSeen,
  Move,
  MovesShown as Moves,
  PinShown,
  ThrottledShown as Throttled,
  GoalShown,
  GoalsShown,
} from "../generated/openapi";

// Loads and heat have no events: they are asked for at intervals. With the stream of events, all
// else is asked for when something has happened.
const INTERVAL_MS = 2_000;
const LIVE_INTERVAL_MS = 5_000;
const AFTER_EVENT_MS = 250;
const ALL_EVERY_MS = 30_000;
const RETRY_MAX_MS = 10_000;
// What the page shows is old when the broker has not answered for so long, and the broker counts as
// silent after this: it may wait for a leader that is frozen meanwhile.
const LATE_MS = 5_000;
const LOOK_MS = 15_000;
const SLOW_FACTOR = 10;
const BROKERS_MAX = 1_000;
export const HEAT_ROWS = 60;
export const LISTED = 100;

export interface Link {
  state: "loading" | "ok" | "late" | Kind;
  message: string;
  since: number;
  retryAt: number;
}

export interface Broker extends BrokerShown {
  // Added here, for a broker that is no longer there.
  absence?: Absent;
}

export interface Cluster extends Omit<ClusterShown, "brokers"> {
  brokers: Broker[];
}

export type Panel = { kind: "bundle" | "broker" | "client"; name: string } | null;

// A daemon beside a Pulsar cluster has neither heat, limits, findings nor a stream of events.
export const isDaemon = (now: Cluster | null): boolean => typeof now?.fleet === "string";

export const link = new Store<Link>({ state: "loading", message: "", since: Date.now(), retryAt: 0 });
export const cluster = new Store<Cluster | null>(null);
export const clusters = new Store<ClustersShown | null>(null);
export const heat = new Store<HeatOfTime | null>(null);
export const decisions = new Store<Decision[] | null>(null);
export const moves = new Store<Moves | null>(null);
export const findings = new Store<FindingThen[]>([]);
export const goals = new Store<GoalShown[]>([]);
export const pins = new Store<Record<string, PinShown>>({});
// What the broker of the page has seen last of all brokers; asked for while nothing else is known.
export const lastSeen = new Store<LastSeen | null>(null);
export const throttled = new Store<Throttled | null>(null);
export const changes = new Store<Changes | null>(null);
export const problems = new Store<Record<string, string>>({});
// What is to be said of a time gone by: what is missing of it. Null: the page shows now.
export const pastNotes = new Store<string[] | null>(null);
// That brokers stood still or had no answer of the metadata store at that time.
export const pastLapses = new Store<string[]>([]);
// The same that had ended in the hour before it.
export const pastLately = new Store<LapseTold[]>([]);
// Whether what is known is of another time than the one that is chosen, which is still being read.
export const isReading = (): boolean => (when.value === null) !== (pastNotes.value === null);
// Brokers that had stopped in order by that time, of which no leader had recorded it.
export const pastStopped = new Store<string[]>([]);
// What is not counted at that time: brokers whose archives did not answer, each with the reason, and
// those of which no load of then is known.
export interface NotCounted {
  missing: Record<string, string>;
  unknown: string[];
}
const ALL_COUNTED: NotCounted = { missing: {}, unknown: [] };
export const notCounted = new Store<NotCounted>(ALL_COUNTED);
export const panel = new Store<Panel>(null);
export const toast = new Store<{ text: string; bad: boolean } | null>(null);

// A broker reports when its load changes, and at least so often; a minute more is a sign of trouble.
const REPORTS = "loadBalancerReportUpdateMaxIntervalMinutes";
export const staleAfter = new Store(16 * 60_000);

// Whether the brokers keep what was; not known yet: no.
export const archived = new Store(false);

let recordedEvery = 60_000;

async function readIntervals(): Promise<void> {
  try {
    const keys = await get<Record<string, string>>("/admin/v2/brokers/configuration/runtime");
    const minutes = Number(keys[REPORTS]);
    if (minutes > 0) staleAfter.set((minutes + 1) * 60_000);
    recordedEvery = 1000 * Number(keys["loadManagerHistoryIntervalSeconds"] ?? 60) || recordedEvery;
    archived.set(keys["loadManagerHistoryEnabled"] === "true" && keys["loadManagerArchiveMaxBytes"] !== "0");
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  }
}

let timer = 0;
let eventTimer = 0;
let happened = true;
let allAt = 0;
let failures = 0;
let running = false;

async function part<T>(name: string, path: string, take: (document: T) => void): Promise<void> {
  try {
    take(await get<T>(path));
    if (name in problems.value) {
      const { [name]: _, ...rest } = problems.value;
      problems.set(rest);
    }
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    problems.set({ ...problems.value, [name]: error.message });
  }
}

// Brokers that left and are not back, as rows: the leader remembers them for days.
function withGone(next: Cluster): Cluster {
  const listed = new Set(next.brokers.map((broker) => broker.broker));
  const rows = absences(next).filter(({ broker }) => !listed.has(broker)).map(goneRow);
  return rows.length ? { ...next, brokers: [...next.brokers, ...rows] } : next;
}

export const absences = (now: Cluster): Absent[] =>
  (now.absent ?? []).filter(({ backAt }) => typeof backAt !== "number");

// Those that were lost in the last hour, and are back.
export const returned = (now: Cluster, at: number): Absent[] =>
  (now.absent ?? []).filter(
    ({ how, leftAt, backAt }) => how === "lost" && typeof backAt === "number" && at - leftAt < HOUR_MS,
  );

function goneRow(absence: Absent): Broker {
  return {
    broker: absence.broker,
    url: null,
    serviceUrl: null,
    leader: false,
    state: "gone",
    cordon: null,
    version: absence.version ?? null,
    startedAt: absence.startedAt ?? null,
    usage: null,
    modelled: null,
    modelError: null,
    sensor: null,
    disks: [],
    resources: null,
    bundles: null,
    topics: null,
    producers: null,
    consumers: null,
    reportedAt: null,
    reportAgeMs: null,
    rate: null,
    throughput: null,
    msgRateIn: null,
    msgRateOut: null,
    msgThroughputIn: null,
    msgThroughputOut: null,
    absence,
  };
}

// What was shown of a time gone by is forgotten also if there is no answer.
async function askCluster(): Promise<Cluster> {
  try {
    return withGone(await get<Cluster>(`${V1}/cluster?limit=${BROKERS_MAX}`, undefined, LOOK_MS));
  } catch (error) {
    if (isPast && !when.value) forgetAll();
    throw error;
  }
}

async function turnOnce(): Promise<void> {
  const then = when.value;
  if (then) return showPast(then);
  const now = await askCluster();
  if (when.value) return; // chosen meanwhile
  if (isPast) forgetAll();
  const all = happened || !stream.live.value || Date.now() - allAt >= ALL_EVERY_MS;
  happened = false;
  cluster.set(now);
  if (isArchived) void readIntervals(); // it may have had no answer meanwhile
  isArchived = false;
  const daemon = isDaemon(cluster.value);
  if (cluster.value && !daemon && mayHaveBeenDown(cluster.value)) void lookForDowns();
  const work = daemon
    ? [part<ClustersShown>("clusters", `${V1}/clusters`, (document) => clusters.set(document))]
    : [
        part<HeatShown>("heat", `${V1}/heat?limit=${HEAT_ROWS}`, showHeat),
        part<Throttled>("throttled", `${V1}/throttled`, (document) => throttled.set(document)),
      ];
  if (all) {
    allAt = Date.now();
    work.push(
      part<FindingsShown>("findings", `${V1}/findings`, (document) =>
        findings.set(
          document.findings.map((it) => ({ ...it, recordedAt: it.kind === "lost" ? null : document.lookedAt })),
        ),
      ),
      part<Moves>("moves", `${V1}/moves?limit=${LISTED}`, (document) => moves.set(document)),
      part<GoalsShown>("goals", `${V1}/goals`, (document) => goals.set(document.goals)),
      part<Changes>("changes", `${V1}/changes?limit=${LISTED}`, (document) => changes.set(document)),
      part<Record<string, PinShown>>("pins", `${V1}/pins`, (document) => pins.set(document)),
      part<{ decisions: Decision[] }>("decisions", `${V1}/decisions?limit=${LISTED}`, (document) =>
        decisions.set(document.decisions),
      ),
    );
  }
  await Promise.all(work);
}

let heatTerm = 0; // of the heat that is shown

// That of the term before stays until it is known what was before the new one.
function showHeat(own: HeatShown): void {
  const { broker = "", epoch = 0, since = 0 } = cluster.value?.leader ?? {};
  const plain = { ...own, leaders: [], recordedUntil: null };
  const show = (all: HeatOfTime | null): void => {
    if (when.value || (!all && heat.value && heatTerm !== epoch)) return;
    heat.set(all ?? plain);
    heatTerm = epoch;
  };
  show(archived.value ? withEarlier(own, { broker, epoch, ts: since }, recordedEvery, show) : plain);
}

function forgetAll(): void {
  if (isArchived) cluster.set(null);
  isPast = false;
  pastNotes.set(null);
  pastStopped.set([]);
  pastLapses.set([]);
  pastLately.set([]);
  notCounted.set(ALL_COUNTED);
  problems.set({});
  happened = true;
  for (const store of [heat, decisions, moves, throttled, changes]) store.set(null);
}

let shownOf: When | null = null;
let isPast = false; // whether a time gone by is shown, or being read

// A time gone by does not change: it is asked for once.
async function showPast(then: When): Promise<void> {
  if (then === shownOf && pastNotes.value) return;
  isPast = true;
  pastNotes.set(null);
  if (!cluster.value) isArchived = !(await isLed());
  await lookForDowns();
  const past = await askPast(then);
  if (downAt(then.at)) Object.assign(past, { brokers: [], bundles: 0, leader: null, notes: [], unknown: [], stopped: [], findings: [] });
  if (hadEnded(past.ledSince, then.at)) {
    past.leader = null;
    for (const broker of past.brokers) broker.leader = false;
  }
  if (when.value !== then) return;
  shownOf = then;
  pastLapses.set(past.lapses);
  pastLately.set(past.lately);
  pastStopped.set(past.stopped);
  notCounted.set({ missing: past.missing, unknown: past.unknown });
  problems.set({});
  findings.set(past.findings);
  goals.set([]);
  pins.set({});
  cluster.set(clusterOf(cluster.value ?? UNKNOWN, then, past));
  heat.set(past.heat);
  decisions.set(past.decisions);
  moves.set({ moves: past.moves, paused: past.paused, running: 0, takenUp: [], waiting: 0 });
  changes.set({ changes: past.changes, noAnswer: {}, notAsked: 0 });
  throttled.set(past.throttled);
  const missing = Object.entries(past.missing).map(([broker, why]) => `${broker}: ${why}`);
  const isBefore = then.at < recordsBegin && recordsBegin < Infinity;
  const notes = isBefore
    ? [`The records of this cluster begin at ${utc(recordsBegin)}: this time is before that`]
    : [...past.stopped, ...past.notes];
  pastNotes.set([...notes, ...missing]);
}

// Whether the whole cluster was down between the begin of a term and a moment: nobody was left to record
// that the term ended.
const hadEnded = (since: number | null, at: number): boolean =>
  since !== null && downs.value.some(({ begin }) => since < begin && begin <= at);

// Whether a leader answers. Without one, while the metadata store is silent, say, the archives still
// tell what was.
async function isLed(): Promise<boolean> {
  try {
    cluster.set(await askCluster());
    return true;
  } catch (error) {
    if (!(error instanceof Failure) || !NO_LEADER.includes(error.kind)) throw error;
    return false;
  }
}

const NO_LEADER: Kind[] = ["unavailable", "unreachable"];
const UNKNOWN: Cluster = {
  absent: [],
  at: 0,
  awaited: 0,
  balancing: true,
  brokers: [],
  bundles: 0,
  cycles: 0,
  expected: 0,
  fleet: null,
  headroom: null,
  hold: null,
  leader: { broker: "", epoch: 0, since: 0, url: "" },
  manager: "modular",
  mode: null,
  moves: { running: 0, waiting: 0 },
  paused: null,
  placement: "",
  shedder: "",
  storeSilentMs: null,
  total: 0,
};
let isArchived = false; // all that is known of the cluster is of the archives

function clusterOf(now: Cluster, then: When, past: Past): Cluster {
  return withGone({
    ...now,
    at: then.at,
    absent: past.absent,
    brokers: past.brokers,
    bundles: past.bundles,
    total: past.brokers.length,
    expected: 0,
    headroom: null,
    hold: null,
    mode: null,
    paused: past.paused,
    balancing: true,
    moves: { running: 0, waiting: 0 },
    leader: { ...now.leader, broker: past.leader ?? "" },
  });
}

export const marksOf = (since: number, until: number): Promise<Marks[]> =>
  orNone(askMarks(since, until).then((marks) => [marks])); // the bar is of use without

async function orNone<T>(answer: Promise<T[]>): Promise<T[]> {
  try {
    return await answer;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return []; // a broker without an archive, or of an earlier version
  }
}

// When the whole cluster was down: asked for with a time gone by, and in the present only if no
// broker has run for a day, until that is recorded; a broker may have no archive.
export const downs = new Store<DownShown[]>([]);
const DOWN_AGAIN_MS = 5 * 60_000;
const SOON_AGAIN_MS = 30_000; // archives have what was just recorded some seconds later
let downsAt = 0;

function mayHaveBeenDown({ brokers }: Cluster): boolean {
  const starts = brokers.flatMap(({ startedAt }) => (startedAt ? [startedAt] : []));
  const oldest = Math.min(...starts); // by the brokers' clocks, as the times of records
  return starts.length > 0 && Date.now() - oldest < DAY_MS && downsAt < oldest + 2 * DOWN_AGAIN_MS;
}

export const downAt = (at: number): DownShown | undefined =>
  downs.value.find(({ begin, end }) => begin < at && at < end);

let recordsBegin = -Infinity; // -Infinity: that is not known
let recordEnds: number[] = [];

// When the last sign before a time was that any broker recorded; null: that is not known.
export function lastBefore(at: number): number | null {
  const before = recordEnds.filter((end) => end < at);
  return at < downsAt && before.length ? Math.max(...before) : null;
}

async function lookForDowns(): Promise<void> {
  const starts = (cluster.value?.brokers ?? []).map(({ startedAt }) => startedAt ?? 0);
  const isNew = !when.value && Date.now() - Math.max(0, ...starts) < 2 * DOWN_AGAIN_MS;
  if (Date.now() - downsAt < (isNew ? SOON_AGAIN_MS : DOWN_AGAIN_MS)) return;
  downsAt = Date.now();
  const [recorded] = await orNone(askRecorded().then((answer) => [answer]));
  recordsBegin = recorded?.begin ?? -Infinity;
  recordEnds = recorded?.ends ?? [];
  downs.set(recorded?.downs ?? []);
}

export const lastOfClient = (name: string, until: number | null): Promise<ClientLine[]> =>
  orNone(askClient(name, until, 1).then(({ lines }) => lines));
export const earlierOf = (name: string | null, epoch: number): Promise<Earlier[]> =>
  orNone(askEarlier(name, epoch).then((earlier) => [earlier]));
async function lookAtLastSeen(): Promise<void> {
  const [seen] = await orNone(get<LastSeen>(`${V1}/last-seen`, undefined, LOOK_MS).then((it) => [it]));
  lastSeen.set(seen ?? null); // an earlier version has no such answer
}

export const unproven = (): Promise<LapseTold[]> => orNone(askUnproven(Date.now() - HOUR_MS));
export const refused = (): Promise<Refusal[]> => orNone(askRefused(Date.now() - HOUR_MS));
export const todays = (): Promise<InterruptionsShown[]> =>
  orNone(askToday().then((today) => [today]));
export const recordedMoves = (id?: string): Promise<Move[]> => orNone(askMoves(id));
export const decisionOf = (id: string): Promise<Decision[]> => orNone(askDecision(id));
export const earlierChanges = (): Promise<ChangeShown[]> => orNone(askChanges());

export function refresh(): Promise<void> {
  happened = true;
  return look();
}

function onEvent(): void {
  happened = true;
  if (!eventTimer)
    eventTimer = window.setTimeout(() => {
      eventTimer = 0;
      void look();
    }, AFTER_EVENT_MS);
}

async function look(): Promise<void> {
  if (running) return;
  running = true;
  clearTimeout(timer);
  const began = performance.now();
  const interval = (): number => (stream.live.value ? LIVE_INTERVAL_MS : INTERVAL_MS);
  let wait = interval();
  const lateTimer = window.setTimeout(() => {
    if (link.value.state === "ok" && !when.value) link.set({ ...link.value, state: "late" });
  }, LATE_MS);
  try {
    await turnOnce();
    failures = 0;
    if (link.value.state !== "ok") {
      const late = link.value.state === "late";
      link.set({ state: "ok", message: "", since: Date.now(), retryAt: 0 });
      if (!late && !isDaemon(cluster.value)) {
        void stream.begin(onEvent);
        void readIntervals();
      }
    }
    wait = Math.max(interval(), SLOW_FACTOR * (performance.now() - began));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    failures += 1;
    downsAt = 0;
    happened = false;
    wait = Math.min(INTERVAL_MS * 2 ** Math.min(failures - 1, 4), RETRY_MAX_MS);
    const since = link.value.state === error.kind ? link.value.since : Date.now();
    link.set({ state: error.kind, message: error.message, since, retryAt: Date.now() + wait });
    if (error.kind === "unavailable" && !cluster.value) await lookAtLastSeen();
  } finally {
    clearTimeout(lateTimer);
    running = false;
    // What happened meanwhile is looked at soon.
    timer = window.setTimeout(look, happened ? AFTER_EVENT_MS : wait);
  }
}

export function begin(): void {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) return stream.stop();
    if (!isDaemon(cluster.value)) void stream.begin(onEvent);
    void refresh();
  });
  when.follow(() => {
    if (when.value) pastNotes.set(null); // until it is read, nothing is shown as of that time
    void refresh();
  });
  void refresh();
}

let toastTimer = 0;
export function tell(text: string, bad = false): void {
  clearTimeout(toastTimer);
  toast.set({ text, bad });
  toastTimer = window.setTimeout(() => toast.set(null), bad ? 15_000 : 6_000);
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    tell(`Copied: ${text}`);
  } catch {
    tell("This browser lets the page copy nothing.", true);
  }
}

// Where another broker shows this page: only if this one was reached at an address that brokers
// advertise. Behind a port that is forwarded the names that they have elsewhere lead nowhere.
export function pageOf({ broker, url }: Broker, brokers: Broker[]): string | null {
  const here = brokers.find((each) => each.url && new URL(each.url).origin === location.origin);
  return url && here && here.broker !== broker ? `${url}/ui` : null;
}
