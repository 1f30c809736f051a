// What was at a time gone by: the archives of all brokers are asked, and their answers merged.
import { Failure, V1, get } from "./api";
import { duration, plural, utc } from "./format";
import type { Broker } from "./state";
import type {
  AbsentBroker,
  ArchiveParts,
  ArchivedEvent,
  ArchivedEvents,
  ArchivedHeat,
  ArchivedLoads,
  ArchivedMoment,
  ArchivedSeries,
  ChangeShown,
  DecisionShown,
  DownShown,
  FindingShown,
  HeatSeries,
  HeatShown,
  HoldingLimit,
  InterruptionsShown,
  LapseShown,
  Move,
  Outcome,
  OutagesShown,
  PauseShown,
  RecordedSpan,
  Resource,
  ThrottledShown,
  UnknownLoads,
  UnrecordedSpan,
} from "../generated/openapi";
import { LATER } from "./sentences";
import { HOUR_MS } from "./when";
import type { When } from "./when";

const ARCHIVE = `${V1}/archive`;
const AT_ONCE = 8;
const PARTS_FOR_MS = 30_000;
const LISTED = 100;
const COLUMNS = 120;
const POINTS = 2_000;
const HEAT_ROWS = 60;
const MEMBERS = 500;
const NAMED = 3;
const NEAR_MS = 300_000; // without loads of a moment, the last before stand for it for so long
const COARSE_MS = 900_000; // averages over this time are kept of earlier days
// A broker that lives gives a sign within this time.
const SIGN_MS = 12_000;
// What is not served again so long after its broker left was wanted by nobody.
const NEXT_MS = 600_000;
const COMES = new Set(["left", "back", "starts", "leads"]);
const DECISIONS = ["unload", "place", "split", "skip", "move"].map((it) => `kind=decision.${it}`);

export interface Past {
  brokers: Broker[];
  absent: AbsentBroker[];
  bundles: number;
  leader: string | null;
  ledSince: number | null; // when its term began, if that is recorded
  heat: HeatOfTime;
  decisions: DecisionShown[];
  moves: Move[];
  changes: ChangeShown[];
  findings: FindingThen[];
  paused: PauseShown | null; // as far as it was ordered in the time of the lists
  throttled: ThrottledShown;
  lapses: string[]; // that brokers stood still or had no answer of the metadata store then
  lately: LapseTold[]; // and in the hour before
  unknown: string[]; // brokers that were there, of which no load of then is known
  stopped: string[]; // that brokers had stopped in order, which no leader has recorded by then
  notes: string[];
  missing: Record<string, string>;
}

// `before`: the leader of an earlier term that had found it, if the leader of then had not looked for it.
// `recordedAt`: when its words and figures were so.
export interface FindingThen extends FindingShown {
  before?: string;
  recordedAt?: number | null;
}

// A term that began.
export interface Led {
  ts: number;
  broker: string;
  epoch: number;
}

// The heat of a time, with the terms that began in it. Until `recordedUntil` it is what the brokers
// recorded, and after that the leader's samples; null: all of it is one of these.
export interface HeatOfTime extends HeatShown {
  leaders: Led[];
  recordedUntil: number | null;
}

export interface EarlierHeat {
  begin: number; // of all records in that time
  heat: HeatShown;
  leaders: Led[];
}

export async function askEarlierHeat(since: number, until: number, columns: number): Promise<EarlierHeat> {
  const range = `since=${Math.round(since)}&until=${Math.round(until)}`;
  const [heat, came] = await Promise.all([
    ask<ArchivedHeat>(`heat?${range}&columns=${columns}&limit=${HEAT_ROWS}`),
    events(["kind=member"], `${range}&limit=${MEMBERS}`),
  ]);
  const begins = heat.parts.flatMap(({ recorded }) => recorded.map(({ begin }) => begin));
  return {
    begin: Math.min(...begins),
    heat: heatOf(heat.parts, (until - since) / columns),
    leaders: ledIn(came.parts),
  };
}

function ledIn(members: ArchivedEvent[], since = 0): Led[] {
  const terms = members.filter(({ ts, record }) => text(record, "event") === "leads" && ts > since);
  return terms.map(({ ts, record }) => ({
    ts,
    broker: text(record, "of"),
    epoch: figure(record, "epoch") ?? 0,
  }));
}

interface Answers<T> {
  parts: T[];
  missing: Record<string, string>;
}

let known: { parts: ArchiveParts; at: number } | null = null;

async function allParts(): Promise<ArchiveParts> {
  if (!known || Date.now() - known.at > PARTS_FOR_MS)
    known = { parts: await get<ArchiveParts>(ARCHIVE), at: Date.now() };
  return known.parts;
}

async function ask<T>(question: string): Promise<Answers<T>> {
  const { brokers, beside } = await allParts();
  const path = `${ARCHIVE}/${question}`;
  if (!brokers.length) return { parts: [await get<T>(path)], missing: {} };
  const fileOf = (name: string): Promise<T> => get<T>(`${path}&part=${encodeURIComponent(name)}`);
  const asked: [string, () => Promise<T>][] = [
    ...brokers.map((it): [string, () => Promise<T>] => [it, () => get<T>(path, it)]),
    ...beside.map((it): [string, () => Promise<T>] => [it, () => fileOf(it)]),
  ];
  const answers: Answers<T> = { parts: [], missing: {} };
  const worker = async (): Promise<void> => {
    for (let next = asked.shift(); next; next = asked.shift()) {
      try {
        answers.parts.push(await next[1]());
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        try {
          answers.parts.push(await fileOf(next[0])); // it may be frozen, and its file be beside
        } catch (again) {
          if (!(again instanceof Failure)) throw again;
          answers.missing[next[0]] = error.message;
        }
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return answers;
}

export interface UsageThen {
  since: number;
  until: number;
  records: { ts: number; spanMs: number; usage: number }[];
}

// What a broker recorded of itself, the oldest first; that of one that does not answer is beside another one.
export async function askUsage(broker: string, since: number, until: number): Promise<UsageThen> {
  const name = encodeURIComponent(broker);
  const path = `${ARCHIVE}/series?kind=broker_load&name=${name}&since=${since}&until=${until}&limit=${POINTS}`;
  const { brokers, beside } = await allParts();
  const file = brokers.length || beside.length ? `${path}&part=${name}` : path; // a daemon has but one
  let series: ArchivedSeries;
  try {
    series = await (brokers.includes(broker) ? get<ArchivedSeries>(path, broker) : get<ArchivedSeries>(file));
  } catch (error) {
    if (!(error instanceof Failure) || !brokers.includes(broker)) throw error;
    series = await get<ArchivedSeries>(file); // it may be frozen
  }
  const column = series.columns.indexOf("usage");
  const records = series.points.map(({ ts, spanMs, figures }) => ({ ts, spanMs, usage: figures[column] ?? 0 }));
  return { since, until, records };
}

interface Events extends Answers<ArchivedEvent> {
  since: string; // from when on there are records of the time that was asked for
  runs: Map<string, RecordedSpan[]>; // broker → when its archive has records within that time
}

async function events(kinds: string[], range: string): Promise<Events> {
  const { parts, missing } = await ask<ArchivedEvents>(`events?${[...kinds, range].join("&")}`);
  const found = parts.flatMap((part) => part.events).sort((a, b) => b.last - a.last || b.ts - a.ts);
  const begins = parts.flatMap(({ part, recorded }) =>
    recorded.slice(0, 1).map(({ begin }): [string, number] => [part, begin]),
  );
  const runs = new Map(parts.map(({ part, recorded }) => [part, recorded]));
  return { parts: found, missing, since: recordsSince(begins), runs };
}

// In the words of `loadmanager admin history` (`records_since` in cli/admin/archives.py).
function recordsSince(begins: [string, number][]): string {
  if (!begins.length) return "No archive that answers has records of this time.";
  const first = Math.min(...begins.map(([, begin]) => begin));
  const later = begins
    .filter(([, begin]) => begin - first > GAP_MS)
    .sort(([a, at], [b, other]) => other - at || a.localeCompare(b))
    .map(([part, begin]) => `${part} since ${utc(begin)}`);
  const more = later.length > GAPS_SHOWN ? ` and ${later.length - GAPS_SHOWN} more later` : "";
  const of = later.length ? `; of ${later.slice(0, GAPS_SHOWN).join(", ")}${more}` : "";
  return `Records since ${utc(first)}${of}: what was before is not recorded.`;
}

const GAP_MS = 30_000; // a broker gives a sign every ten seconds
const GAPS_SHOWN = 5;

// From when on the archives that answer have records, and when the cluster was down since.
export interface Recorded {
  begin: number; // Infinity: they have none
  ends: number[]; // when processes gave their last signs
  downs: DownShown[];
}

export async function askRecorded(): Promise<Recorded> {
  const isDaemon = !(await allParts()).brokers.length; // its archive says nothing of brokers
  const [{ parts }, downs] = await Promise.all([
    ask<ArchivedEvents>("events?kind=member&limit=1"),
    isDaemon ? [] : askOutages(0, null).then((outages) => outages.downs),
  ]);
  const runs = parts.flatMap(({ recorded }) => recorded);
  const begin = Math.min(...runs.map((run) => run.begin));
  return { begin, ends: runs.map(({ end }) => end), downs };
}

// Any broker answers for all: when brokers stood still or could not prove their sessions, and when all
// were down.
const askOutages = (since: number, until: number | null): Promise<OutagesShown> =>
  get<OutagesShown>(`${ARCHIVE}/outages?since=${since}${until === null ? "" : `&until=${until}`}`);

// Of which brokers no load of a moment is known, whatever is recorded next to it; and which were lost
// about then.
const askUnknown = (at: number): Promise<UnknownLoads> => get<UnknownLoads>(`${ARCHIVE}/unknown?at=${at}`);

// What a client did, or what was done to it, the newest first.
export interface ClientLine {
  ts: number;
  bad: boolean;
  text: string;
}

const CLIENT = ["attached", "left", "refused"].map((it) => `kind=client.${it}`);

export interface ClientThen {
  lines: ClientLine[];
  recordedSince: string;
}

export async function askClient(name: string, until: number | null, limit = LISTED): Promise<ClientThen> {
  const range = `about=${encodeURIComponent(name)}&limit=${limit}`;
  const { parts, since } = await events(CLIENT, until === null ? range : `until=${until}&${range}`);
  const lines = parts.slice(0, limit).map(({ ts, record }) => ({
    ts,
    bad: text(record, "event") === "refused",
    text: clientText(record),
  }));
  return { lines, recordedSince: since };
}

function clientText(record: ArchivedEvent["record"]): string {
  const of = (field: string): string => text(record, field);
  const within = of("subscription") ? ` of ${of("subscription")}` : "";
  const on = of("topic") ? ` on ${of("topic").replace(/^persistent:\/\//, "")}` : "";
  const roles = (record["roles"] as string[] | undefined) ?? [];
  const as = roles.length ? ` as ${roles.join(", ")}` : "";
  const who = `${of("what")} ${of("name")}`.trim() + `${within} from ${of("client")}${as}${on}`;
  if (of("event") === "attached") return `${who} is served by ${of("broker")}`;
  if (of("event") === "refused") {
    const times = figure(record, "times") ?? 1;
    const often = times > 1 ? `, ${times} times` : "";
    return `${who} was refused by ${of("broker")}: ${of("reason")} (${of("code")}${often})`;
  }
  const stayed = duration(figure(record, "attachedMs") ?? 0);
  const sent = of("destination") ? `; it was sent to ${of("destination")}` : "";
  const messages = plural(figure(record, "messages") ?? 0, "message");
  return `${who} left ${of("broker")} after ${stayed} and ${messages}: ${of("reason")}${sent}`;
}

// A bundle as it was: its owner is exact, its traffic an average.
export interface BundleThen {
  owner: string | null;
  since: number | null; // null: longer than is recorded
  unknown: string; // why what it carried is not known, though there is a record next to the moment
  traffic: { msgRateIn: number; msgRateOut: number; throughput: number; producers: number; consumers: number } | null;
  decisions: DecisionShown[];
  recordedSince: string;
}

export async function askBundle(bundle: string, at: number): Promise<BundleThen> {
  const about = `about=${encodeURIComponent(bundle)}&until=${at}&limit=${LISTED}`;
  const near = `name=${encodeURIComponent(bundle)}&since=${at - NEAR_MS}&until=${at + COARSE_MS}`;
  const [decided, steps, members, loads, doubts] = await Promise.all([
    events(DECISIONS, about),
    events(["kind=ownership"], about),
    events(["kind=member"], `until=${at}&limit=${MEMBERS}`),
    ask<ArchivedSeries>(`series?kind=bundle_load&${near}`),
    askUnknown(at),
  ]);
  const points = loads.parts.flatMap(({ columns, points: some }) =>
    some.map((point) => ({ ...point, of: (name: string) => point.figures[columns.indexOf(name)] ?? 0 })),
  );
  const point =
    points.find(({ ts, spanMs }) => ts - spanMs < at && at <= ts) ??
    points.filter(({ ts }) => ts <= at).at(-1);
  const step = steps.parts.find(({ record }) => ["Owned", "Free"].includes(text(record, "after")));
  const by = step && text(step.record, "after") === "Owned" ? text(step.record, "broker") : null;
  const left = members.parts.find(
    ({ ts, record }) => text(record, "event") === "left" && text(record, "of") === by && ts > (step?.ts ?? 0),
  );
  // The newest of what is recorded counts: a report of its load says who had it, too.
  const reported = point && Math.max(step?.ts ?? 0, left?.ts ?? 0) <= point.ts - point.spanMs;
  const owner = reported ? point.broker : left ? null : by;
  const unknown = (point && doubts.brokers[point.broker]) ?? "";
  return {
    owner,
    since: owner === by ? (step?.ts ?? null) : null,
    unknown,
    traffic: point && !unknown
      ? {
          msgRateIn: point.of("msg_rate_in"),
          msgRateOut: point.of("msg_rate_out"),
          throughput: point.of("msg_throughput_in") + point.of("msg_throughput_out"),
          producers: point.of("producers"),
          consumers: point.of("consumers"),
        }
      : null,
    decisions: decisionsOf(asOf(decided.parts, at)),
    recordedSince: decided.since,
  };
}

// The bundles of a broker as they were, the hottest first, and what was decided about it until then.
// Of one that had left: what it had when it did, and where each bundle was served next.
export interface BrokerThen {
  bundles: { bundle: string; rate: number; throughput: number; next: { broker: string; afterMs: number } | null }[];
  unknown: string; // why what they carried is not known: the figures are of another time
  leftAt: number | null;
  decisions: DecisionShown[];
  recordedSince: string;
}

export async function askBroker(broker: string, at: number): Promise<BrokerThen> {
  const about = `about=${encodeURIComponent(broker)}&until=${at}&limit=${LISTED}`;
  const came = (await events(["kind=member"], about)).parts.find(
    ({ record }) => text(record, "of") === broker && COMES.has(text(record, "event")),
  );
  const leftAt = came && text(came.record, "event") === "left" ? leftAtOf(came) : null;
  const moment = leftAt === null ? at : leftAt - 1;
  const [loads, decided, steps, doubts] = await Promise.all([
    ask<ArchivedMoment>(`loads?at=${moment}&kind=bundle_load`),
    events(DECISIONS, about),
    leftAt === null
      ? { parts: [] }
      : events(["kind=ownership"], `since=${leftAt}&until=${leftAt + NEXT_MS}&limit=${MEMBERS}`),
    askUnknown(moment),
  ]);
  const own = loads.parts.flatMap((part) => part.loads).filter((each) => each.broker === broker);
  const next = new Map<string, ArchivedEvent>(); // the steps are the newest first
  for (const step of steps.parts)
    if (text(step.record, "after") === "Owned") next.set(text(step.record, "bundle"), step);
  const bundles = own.flatMap(({ columns, figures }) =>
    Object.entries(figures).map(([bundle, row]) => {
      const of = (name: string): number => row[columns.indexOf(name)] ?? 0;
      const step = next.get(bundle);
      return {
        bundle,
        rate: of("msg_rate_in") + of("msg_rate_out"),
        throughput: of("msg_throughput_in") + of("msg_throughput_out"),
        next: step ? { broker: text(step.record, "broker"), afterMs: step.ts - (leftAt ?? step.ts) } : null,
      };
    }),
  );
  bundles.sort((a, b) => b.throughput - a.throughput || a.bundle.localeCompare(b.bundle));
  return {
    bundles,
    unknown: doubts.brokers[broker] ?? "",
    leftAt,
    decisions: decisionsOf(asOf(decided.parts, at)),
    recordedSince: decided.since,
  };
}

export async function askPast({ at, last }: When): Promise<Past> {
  const since = at - last;
  const range = `since=${since}&until=${at}`;
  const heatQuestion = `heat?${range}&columns=${COLUMNS}&limit=${HEAT_ROWS}`;
  const [loads, heat, decided, changed, came, later, found, { lapses }, { brokers: unknown, lost }] = await Promise.all([
    ask<ArchivedMoment>(`loads?at=${at}&kind=broker_load&kind=throttle`),
    ask<ArchivedHeat>(heatQuestion),
    events(DECISIONS, `${range}&limit=${LISTED}`),
    events(["kind=change"], `${range}&limit=${LISTED}`),
    events(["kind=member"], `until=${at}&limit=${MEMBERS}`),
    askLater(at),
    events(["kind=finding"], `since=${at - FINDINGS_MS}&until=${at}&limit=${FINDINGS}`),
    askOutages(at - HOUR_MS, at + HOUR_MS),
    askUnknown(at),
  ]);
  const all = loads.parts.flatMap((part) => part.loads);
  // Dead, though nobody recorded that it was lost: its archive has no sign of it, as `ended_before` of
  // the command line has it.
  const dead = new Set(
    heat.parts.filter(({ recorded }) => at - (recorded.at(-1)?.end ?? at) > SIGN_MS).map(({ part }) => part),
  );
  const stops = stopsIn(came.parts);
  const brokers = all
    .filter(({ kind, broker }) => kind === "broker_load" && !dead.has(broker) && !stops.has(broker))
    .filter(({ broker, ts, spanMs }) => !leftBy(came.parts, broker, ts - spanMs))
    .flatMap(brokerRows);
  // Loads are over a time that the moment lies in, and may go on after it.
  const ends = Math.max(at, ...brokers.map(({ reportedAt }) => reportedAt ?? 0));
  const stepsRange = `since=${at - NEAR_MS}&until=${ends}&limit=${MEMBERS}`;
  const steps = await events(["kind=ownership"], stepsRange);
  for (const broker of brokers) broker.bundles = bundlesOf(broker, steps.parts, at);
  for (const broker of brokers) if (broker.broker in unknown) Object.assign(broker, NOT_KNOWN);
  const changes = ordersOf(changed.parts);
  const again = new Set(decided.parts.filter((event) => event.last > at).map(({ ts }) => ts));
  const decisions = decisionsOf(
    asOf(decided.parts, at),
    (ts) => !again.has(ts) && afterAll(decided.parts)(ts),
  );
  const led = leaderAt(came.parts, decided.parts);
  const around = { before: came.parts, later: later.parts, runs: came.runs };
  const leader = led && stillLed(led, around, at) ? led : null;
  for (const broker of brokers) broker.leader = broker.broker === leader;
  const gone = absentAt(came.parts, new Set(brokers.map(({ broker }) => broker)), at);
  await servedNext(gone, at);
  for (const it of gone) it.storeSilent = it.how === "lost" && lapses.some((lapse) => hadEnded(lapse, it));
  return {
    brokers,
    absent: gone,
    bundles: brokers.reduce((sum, broker) => sum + (broker.bundles ?? 0), 0),
    leader,
    ledSince: termAt(came.parts)?.ts ?? null,
    heat: { ...heatOf(heat.parts, last / COLUMNS), leaders: ledIn(came.parts, since), recordedUntil: null },
    decisions: decisions.slice(0, LISTED),
    moves: decided.parts.filter(({ kind }) => kind === "decision.move").map(moveOf),
    changes,
    findings: findingsAt(found.parts, came.parts, at).filter((it) => !isOver(it, gone)),
    paused: pausedAt(changes, at),
    throttled: throttledOf(
      all.filter(({ kind, broker }) => kind === "throttle" && brokers.some((it) => it.broker === broker)),
      unknown,
      loads.missing,
    ),
    lapses: lapses.filter(({ since: begin, until }) => begin <= at && at <= until).map(lapseThen),
    lately: lapses.filter(({ until }) => until < at).map(lapseTold),
    unknown: brokers.map(({ broker }) => broker).filter((it) => it in unknown),
    stopped: [...stops].map(([broker, ts]) => `${broker} had stopped in order since ${utc(ts)}`),
    notes: [
      ...Object.entries(lost).map(([broker, text]) => `${broker} was lost about then: ${text}`),
      ...notesOf(loads.parts, brokers.length, new Set(gone.map(({ broker }) => broker)), at),
      ...unknownNotes(brokers.map(({ broker }) => broker).filter((it) => it in unknown), unknown),
    ],
    missing: { ...loads.missing, ...heat.missing, ...decided.missing, ...found.missing },
  };
}

// Events as they stood at a moment, as `as_of` of the command line has it: of a reason that came again
// the record has the figures of the last time.
const asOf = (found: ArchivedEvent[], at: number): ArchivedEvent[] =>
  found.map((event) => (event.last <= at ? event : begun(event)));

function begun(event: ArchivedEvent): ArchivedEvent {
  const code = text(event.record, "code") || text(event.record, "reason");
  const reason = `${code} since ${utc(event.ts)}, with figures that are not recorded of then`;
  const record = { ...event.record, reason, why: {} } as unknown as ArchivedEvent["record"];
  return { ...event, last: event.ts, times: 1, record };
}

// What leaders had found wrong, as `findings_then` of the command line has it
// (engine/findings/recorded.py): what stood in the term of then; and at the ends of those before, if
// these ended within the hour, and no later leader knows that it is over: each looks anew.
const FINDINGS_MS = 2 * HOUR_MS;
const FINDINGS = 2_000;
const KNOWN_AT_ONCE = ["lost", "leader", "unserved"]; // at the first look, also of before the term

function findingsAt(steps: ArchivedEvent[], members: ArchivedEvent[], at: number): FindingThen[] {
  const terms = new Map<number, ArchivedEvent[]>();
  for (const step of [...steps].sort((a, b) => a.ts - b.ts)) {
    const epoch = figure(step.record, "epoch") ?? 0;
    terms.set(epoch, [...(terms.get(epoch) ?? []), step]);
  }
  const epochs = [...terms.keys()].sort((a, b) => b - a);
  const led = members.find(({ record }) => text(record, "event") === "leads");
  let epoch = epochs[0] ?? 0, begun = terms.get(epoch)?.[0]?.ts ?? at;
  if (led && leaderAt(members, []) === null) [epoch, begun] = [epoch + 1, at]; // nobody led any more
  else if (led && (figure(led.record, "epoch") ?? 0) >= epoch)
    [epoch, begun] = [figure(led.record, "epoch") ?? 0, led.ts];
  terms.set(epoch, terms.get(epoch) ?? []);
  return [...standingOf(terms.get(epoch) ?? []).values(), ...leftBefore(terms, begun, at)];
}

// `begun`: when the last term began.
function leftBefore(terms: Map<number, ArchivedEvent[]>, begun: number, at: number): FindingThen[] {
  let left: FindingThen[] = [];
  const inOrder = [...terms.entries()].sort(([a], [b]) => a - b).map(([, steps]) => steps);
  inOrder.slice(1).forEach((later, index) => {
    const own = inOrder[index] ?? [];
    const ended = index + 2 === inOrder.length ? begun : (later[0]?.ts ?? begun);
    if (at - ended < HOUR_MS) {
      const by = text(own.at(-1)?.record ?? {}, "broker");
      const stood = [...standingOf(own).values()].map((it) => ({ ...it, before: by }));
      left = [...left.filter((it) => !stood.some((other) => isSame(it, other))), ...stood];
    }
    left = left.filter((it) => !knows(later, it));
  });
  return left;
}

const isSame = (a: FindingThen, b: FindingThen): boolean => a.kind === b.kind && a.about === b.about;

// Whether a leader with these records knows whether it is so.
function knows(steps: ArchivedEvent[], { kind, about }: FindingThen): boolean {
  const of = (record: ArchivedEvent["record"], field: string): string => text(record, field);
  if (KNOWN_AT_ONCE.includes(kind) && steps.some(({ record }) => of(record, "event") === "looked")) return true;
  return steps.some(({ record }) => of(record, "what") === kind && of(record, "about") === about);
}

// Whether what an earlier leader had found of a lost broker was over, by the records of members and
// owners.
function isOver({ kind, about, since, before }: FindingThen, gone: AbsentBroker[]): boolean {
  const loss = gone.find(({ broker, leftAt }) => broker === about && Math.abs(leftAt - since) < SIGN_MS);
  if (before === undefined || !loss) return false;
  if (kind === "lost") return typeof loss.backAt === "number";
  return kind === "unserved" && loss.placed >= loss.bundles;
}

function standingOf(steps: ArchivedEvent[]): Map<string, FindingThen> {
  const standing = new Map<string, FindingThen>();
  for (const { ts, record } of steps) {
    const of = (field: string): string => text(record, field);
    const key = `${of("what")} ${of("about")}`;
    if (of("event") === "ended") standing.delete(key);
    else if (of("event") !== "looked")
      standing.set(key, {
        kind: of("what") as FindingShown["kind"],
        about: of("about"),
        since: figure(record, "since") ?? 0,
        title: of("title"),
        text: of("text"),
        advice: of("advice"),
        command: of("command") || null,
        recordedAt: ts,
      });
  }
  return standing;
}

// Whether a broker had left, although its last load stands for the moment: by the last that is
// recorded of it, if that is newer than the load.
function leftBy(members: ArchivedEvent[], broker: string, loaded: number): boolean {
  const last = members.find(({ record }) => text(record, "of") === broker && COMES.has(text(record, "event")));
  return last !== undefined && last.ts >= loaded && text(last.record, "event") === "left";
}

// Brokers of which the last that is recorded is that they stop in order, as they did themselves, and
// since when.
function stopsIn(members: ArchivedEvent[]): Map<string, number> {
  const looked = new Set<string>(), stops = new Map<string, number>();
  for (const { ts, record } of members) {
    const of = text(record, "of"), event = text(record, "event");
    if (looked.has(of) || !(COMES.has(event) || event === "stops")) continue;
    looked.add(of);
    if (event === "stops") stops.set(of, ts);
  }
  return stops;
}

// Who led: the term that began last, unless its leader had left, or stopped in order. Earlier versions
// recorded no terms: then the last decision says it.
function leaderAt(members: ArchivedEvent[], decided: ArchivedEvent[]): string | null {
  const term = termAt(members);
  if (term) return text(term.record, "of");
  if (members.some(({ record }) => text(record, "event") === "leads")) return null;
  const [last] = decided;
  return last ? text(last.record, "broker") || null : null;
}

function termAt(members: ArchivedEvent[]): ArchivedEvent | null {
  const left = new Set<string>();
  for (const event of members) {
    const { record } = event, of = text(record, "of");
    // What a leader records of itself is how an earlier session of it had ended.
    const isLeft = text(record, "event") === "left" && text(record, "broker") !== of;
    if (isLeft || text(record, "event") === "stops") left.add(of);
    if (text(record, "event") === "leads") return left.has(of) ? null : event;
  }
  return null;
}

interface Around {
  before: ArchivedEvent[]; // of members, the newest first
  later: ArchivedEvent[]; // after the moment, the newest first, too
  runs: Map<string, RecordedSpan[]>; // broker → when its archive has records, until the moment
}

// Whether somebody still led whose term was the last that began before a moment, as `leader_then` of
// the command line has it (cli/admin/leaders.py): its session was proven, and it gave signs until then.
function stillLed(led: string, { before, later, runs }: Around, at: number): boolean {
  const own = later.filter(({ record }) => text(record, "of") === led).reverse();
  const proven = own.filter(({ record }) => text(record, "event") === "proven");
  const lapse = proven.find(({ record }) => figure(record, "tookMs"));
  if (lapse && lapse.ts - (figure(lapse.record, "tookMs") ?? 0) <= at) return false;
  const last = before.find(
    ({ record }) => text(record, "of") === led && ["unanswered", "proven", "starts", "leads"].includes(text(record, "event")),
  );
  if (last && text(last.record, "event") === "unanswered" && !proven.length) return false;
  const begun = termAt(before)?.ts ?? 0;
  const ends = (runs.get(led) ?? []).map(({ end }) => end);
  const loss = own.find(({ record }) => text(record, "event") === "left");
  const unheard = loss && figure(loss.record, "unheardMs");
  const next = later.findLast(({ record }) => text(record, "event") === "leads");
  if (loss && typeof unheard === "number" && next && loss.ts <= next.ts + MINUTE_MS)
    if (Math.max(begun, loss.ts - unheard, ...ends) < at) return false;
  const ended = own.find(({ record }) => ["left", "starts"].includes(text(record, "event")));
  if (ends.length && ended && text(ended.record, "event") === "left")
    ends.push(leftAtOf(ended) - unheardOf(ended));
  return !ends.length || at - Math.max(...ends) <= SIGN_MS;
}

// For how long a broker had not been heard of when its session was over.
function unheardOf(left: ArchivedEvent): number {
  return Math.max(0, (figure(left.record, "unheardMs") ?? 0) - (left.ts - leftAtOf(left)));
}

// What was decided in earlier terms, about a bundle or a broker if one is named.
export interface Earlier {
  decisions: DecisionShown[];
  recordedSince: string;
}

export async function askEarlier(name: string | null, epoch: number): Promise<Earlier> {
  const about = name === null ? "" : `about=${encodeURIComponent(name)}&`;
  const { parts, since } = await events(DECISIONS, `${about}limit=${LISTED}`);
  const whole = name === null ? afterAll(parts) : undefined;
  const earlier = decisionsOf(parts, whole).filter((decision) => (decision.epoch ?? 0) < epoch);
  return { decisions: earlier, recordedSince: since };
}

// Whether a time is after those of which an answer may lack events: it has at most `LISTED`.
function afterAll(parts: ArchivedEvent[]): (ts: number) => boolean {
  const oldest = parts.length < LISTED ? -Infinity : Math.min(...parts.map(({ last }) => last));
  return (ts) => ts > oldest;
}

// The last moves, of this term and of earlier ones; or one by its id.
export async function askMoves(id = ""): Promise<Move[]> {
  const about = id && `about=${encodeURIComponent(id)}&`;
  const { parts } = await events(["kind=decision.move"], `${about}limit=${LISTED}`);
  return parts.slice(0, LISTED).map(moveOf);
}

// A decision by the id that its leader gave it.
export async function askDecision(id: string): Promise<DecisionShown[]> {
  const { parts } = await events(DECISIONS, `about=${encodeURIComponent(id)}&limit=${LISTED}`);
  return decisionsOf(parts.filter(({ record }) => idsOf(record)[0] === id), () => true);
}

// Who changed what before the brokers started: they remember only what came later.
export async function askChanges(): Promise<ChangeShown[]> {
  const { parts } = await events(["kind=change"], `limit=${LISTED}`);
  return ordersOf(parts).slice(0, LISTED);
}

// Without what brokers ask of each other: it follows from what was ordered.
const ordersOf = (parts: ArchivedEvent[]): ChangeShown[] =>
  parts.map(changeOf).filter(({ what }) => !what.includes(`${V1}/peers/`));

function pausedAt(changes: ChangeShown[], at: number): PauseShown | null {
  const last = changes.find(({ path }) => path === "/loadmanager/wishes/pause");
  if (!last?.after) return null;
  const untilMs = Number(/"untilMs":(\d+)/.exec(last.after)?.[1] ?? 0);
  const note = /"note":"([^"\\]*)"/.exec(last.after)?.[1] ?? "";
  if (untilMs <= at) return null;
  return { until: untilMs, note, by: last.role || last.address, since: last.ts };
}

const changeOf = ({ ts, record }: ArchivedEvent): ChangeShown =>
  ({ ...(record as unknown as ChangeShown), ts });

// What moves and lost brokers did to clients today, as the leader counts it: `admin status` says the same.
export const askToday = (): Promise<InterruptionsShown> => get<InterruptionsShown>(`${V1}/interruptions`);

const SAME_MS = 1_500; // what ends and begins within this is one event
const STILL = "frozen, or without a CPU";

// When brokers stood still or could not prove their sessions, a line for each event, in the words of
// `admin status` (`Lapse` in cli/admin/downtimes.py).
export interface LapseTold {
  end: number;
  text: string;
}

const lapseTold = (lapse: LapseShown): LapseTold => ({ end: lapse.end, text: lapseText(lapse) });

// The same of a moment within it.
function lapseThen(lapse: LapseShown): string {
  if (lapse.since === lapse.begin || lapse.brokers.length === 1) return lapseText(lapse);
  return `The metadata store did not answer ${lapse.brokers.length} brokers then. ${lapseText(lapse)}`;
}

function lapseText(lapse: LapseShown): string {
  const { begin, end, since, brokers: all, stoodMs } = lapse;
  const between = lapse.isOpen
    ? `From ${utc(since)} until ${utc(end)} at least`
    : `From ${utc(since)} to ${utc(end)} (${duration(end - since)})`;
  const more = all.length > NAMED ? ` and ${all.length - NAMED} more` : "";
  const who = `${all.slice(0, NAMED).join(", ")}${more}`;
  if (lapse.isOpen) return `${between} ${who} had no answer of the metadata store: no record tells how that ended.`;
  if (!lapse.isUnproven) {
    const stayed = all.length > 1 ? "their sessions stayed proven" : "its session stayed proven";
    return `${between} at most ${who} had no answer of the metadata store: ${stayed}.`;
  }
  if (since < begin) {
    const prove = all.length > 1 ? "they could not prove their sessions" : "its session was not proven";
    return `${between} at most ${who} had no answer of the metadata store: ${prove} from ${utc(begin)} on.`;
  }
  const least = Math.min(...all.map((name) => stoodMs[name] ?? 0));
  if (least && end - begin - least <= SAME_MS) return `${between} ${who} stood still: ${STILL}.`;
  if (all.length === 1) {
    const why = least ? `for ${duration(least)}, ${STILL}` : "or did not reach the metadata store";
    return `${between} ${who} could not prove its session: it stood still${least ? " " : ", "}${why}.`;
  }
  return `${between} ${who} could not prove their sessions: the metadata store did not answer, or they stood still.`;
}

export const askUnproven = async (since: number): Promise<LapseTold[]> =>
  (await askOutages(since, null)).lapses.map(lapseTold);

// Who was refused something since then and how often, the last one first.
export interface Refusal extends ClientLine {
  times: number;
}

const OF_REFUSAL = ["address", "roles", "what", "name", "topic", "subscription", "broker", "code", "reason"];
const REFUSALS = 1_000;

export async function askRefused(since: number): Promise<Refusal[]> {
  const { parts } = await events(["kind=client.refused"], `since=${since}&limit=${REFUSALS}`);
  const refusals = new Map<string, { last: number; times: number; record: ArchivedEvent["record"] }>();
  for (const { last, record } of parts) {
    const key = JSON.stringify(OF_REFUSAL.map((field) => record[field] ?? null));
    const before = refusals.get(key);
    const times = figure(record, "times") ?? 1;
    if (before) before.times += times;
    else refusals.set(key, { last, times, record });
  }
  return [...refusals.values()].map(({ last, times, record }) => ({
    ts: last,
    bad: true,
    times,
    text: clientText({ ...record, times: times as never }),
  }));
}

// When something happened, for the bar: brokers that started, left, began to lead or could not prove
// their session, and moves.
export interface Mark {
  ts: number;
  kind: "left" | "back" | "leads" | "proven" | "move";
  text: string;
}

// A time of which records are missing, and in words whose and why.
export interface Lack {
  begin: number;
  end: number;
  text: string;
}

export interface Marks {
  marks: Mark[];
  lacks: Lack[];
}

export async function askMarks(since: number, until: number): Promise<Marks> {
  const range = `since=${since}&until=${until}&limit=${MEMBERS}`;
  const answers = await ask<ArchivedEvents>(`events?kind=member&kind=decision.move&${range}`);
  return {
    marks: answers.parts.flatMap(({ events: some }) => marksIn(some)),
    lacks: lacksIn(answers, since, until),
  };
}

// Without those of another time, of which answers tell, too.
function lacksIn({ parts, missing }: Answers<ArchivedEvents>, since: number, until: number): Lack[] {
  const own = parts.flatMap(({ part, unrecorded = [] }) =>
    unrecorded.map((it) => ({ begin: it.begin, end: Math.max(it.begin + 1, it.end ?? until), text: lackText(part, it) })),
  );
  const whole = Object.entries(missing).map(([broker, why]) => ({
    begin: since,
    end: until,
    text: `what ${broker} recorded from ${utc(since)} to ${utc(until)} cannot be asked for: ${why}`,
  }));
  return [...own, ...whole].filter(({ begin, end }) => begin <= until && end >= since);
}

// In the words of the command line (`lacking_text` in cli/admin/archives.py).
function lackText(broker: string, { begin, end, reason }: UnrecordedSpan): string {
  if (end === null) return `${broker} has recorded nothing since ${utc(begin)}: ${reason}`;
  if (!begin) return `${broker}: its archive began anew at ${utc(end)}, without what was before: ${reason}`;
  return `${broker} did not record all from ${utc(begin)} to ${utc(end)}: ${reason}`;
}

const marksIn = (found: ArchivedEvent[]): Mark[] =>
  found.flatMap(({ kind, ts, record }): Mark[] => {
    if (kind === "decision.move") return [{ ts, kind: "move", text: `${record["bundle"]} moved` }];
    const of = text(record, "of");
    switch (text(record, "event")) {
      case "left":
        return [{ ts: figure(record, "leftAt") ?? ts, kind: "left", text: `${of} ${text(record, "how")}` }];
      case "back":
        return [{ ts, kind: "back", text: `${of} is back` }];
      case "starts":
        return [{ ts, kind: "back", text: `${of} starts` }];
      case "leads":
        return [{ ts, kind: "leads", text: `${of} leads, term ${text(record, "epoch")}` }];
      case "stood": {
        const took = duration(figure(record, "tookMs") ?? 0);
        return [{ ts, kind: "proven", text: `${of} stood still for ${took}, until now` }];
      }
      case "unanswered": {
        const silent = duration(figure(record, "unheardMs") ?? 0);
        return [{ ts, kind: "proven", text: `${of} has had no answer of the metadata store for ${silent}` }];
      }
      case "proven": {
        const took = figure(record, "tookMs") ?? 0;
        const what = took
          ? `could not prove its session for ${duration(took)}`
          : `had no answer of the metadata store for ${duration(figure(record, "unheardMs") ?? 0)}`;
        return [{ ts, kind: "proven", text: `${of} ${what}, until now` }];
      }
      default:
        return [];
    }
  });

function notesOf(parts: ArchivedMoment[], brokers: number, gone: Set<string>, at: number): string[] {
  const isJust = Date.now() - at < SIGN_MS; // there may be no sign yet
  const silent = parts
    .filter(({ part, recorded }) => !recorded.length && !gone.has(part) && !isJust)
    .map(({ part }) => part);
  if (brokers && silent.length) {
    const more = silent.length > NAMED ? ` and ${silent.length - NAMED} more` : "";
    return [`${silent.slice(0, NAMED).join(", ")}${more} recorded nothing then`];
  }
  if (brokers) return [];
  const begins = parts.flatMap(({ recorded }) => recorded.map(({ begin }) => begin));
  return begins.length
    ? ["No broker recorded a load then"]
    : ["No broker that answers recorded anything then"];
}

// How many bundles a broker had: those that its load counted at the end of its time, and what it took
// and gave up between that and the moment.
function bundlesOf({ broker, bundles, reportedAt }: Broker, steps: ArchivedEvent[], at: number): number {
  const counted = reportedAt ?? 0;
  const [begin, end] = [Math.min(counted, at), Math.max(counted, at)];
  const between = steps.filter(
    ({ ts, record }) => ts > begin && ts <= end && text(record, "broker") === broker,
  );
  const taken = between.filter(({ record }) => text(record, "after") === "Owned" && served(record, "before") === 0);
  const given = between.filter(({ record }) => served(record, "after") === 0 && served(record, "before") === 1);
  const more = taken.length - given.length;
  return Math.max(0, (bundles ?? 0) + (counted > at ? -more : more));
}

// Whether a bundle in this state is its broker's: 1, or else 0.
const served = (record: ArchivedEvent["record"], field: string): number =>
  Number(["Owned", "Splitting", "Releasing"].includes(text(record, field)));

function brokerRows(loads: ArchivedLoads): Broker[] {
  return Object.entries(loads.figures).map(([broker, row]) => {
    const of = (column: string): number => row[loads.columns.indexOf(column)] ?? 0;
    const resource = (name: string): Resource => {
      const usage = of(`${name}_usage`), limit = of(`${name}_limit`);
      return { usage, limit, fraction: limit > 0 ? usage / limit : null };
    };
    return {
      broker,
      url: null,
      serviceUrl: null,
      leader: false,
      state: "active",
      cordon: null,
      version: null,
      startedAt: null,
      usage: of("usage"),
      modelled: null,
      modelError: null,
      sensor: null,
      disks: [],
      resources: {
        cpu: resource("cpu"),
        memory: resource("memory"),
        directMemory: resource("direct_memory"),
        bandwidthIn: resource("bandwidth_in"),
        bandwidthOut: resource("bandwidth_out"),
      },
      bundles: of("bundles"),
      topics: of("topics"),
      producers: of("producers"),
      consumers: of("consumers"),
      reportedAt: loads.ts,
      reportAgeMs: null,
      rate: of("msg_rate_in") + of("msg_rate_out"),
      throughput: of("msg_throughput_in") + of("msg_throughput_out"),
      msgRateIn: of("msg_rate_in"),
      msgRateOut: of("msg_rate_out"),
      msgThroughputIn: of("msg_throughput_in"),
      msgThroughputOut: of("msg_throughput_out"),
    };
  });
}

interface Member {
  of: string;
  event: string;
  how?: string;
  leftAt?: number;
  tookMs?: number;
  unheardMs?: number;
  bundles?: number;
  clients?: number;
  clientsBack?: number;
  clientsWaitedMs?: number;
  clientsWaitedMeanMs?: number;
  sameProcess?: boolean;
}

// When the session of a broker that left was over: recorded some time later, by the leader's clock.
const leftAtOf = ({ ts, record }: ArchivedEvent): number => figure(record, "leftAt") ?? ts;

// Brokers that had left and were not back, or left in the hour before; the newest event first.
function absentAt(members: ArchivedEvent[], there: Set<string>, at: number): AbsentBroker[] {
  const absent = new Map<string, AbsentBroker>();
  const looked = new Set<string>(); // how they left last counts
  const later = new Map<string, Map<string, ArchivedEvent>>(); // broker → event → the last such one
  for (const event of members) {
    const record = event.record as unknown as Member;
    const after = later.get(record.of) ?? new Map<string, ArchivedEvent>();
    if (record.event !== "left") {
      if (!after.has(record.event)) after.set(record.event, event);
      later.set(record.of, after);
      continue;
    }
    later.delete(record.of); // what follows is of the time before
    if (looked.has(record.of)) continue;
    looked.add(record.of);
    const absence = absenceOf(event, after);
    const isBack = typeof absence.backAt === "number";
    if (isBack ? at - absence.leftAt > HOUR_MS : there.has(record.of)) continue;
    absent.set(record.of, absence);
  }
  return [...absent.values()];
}

// As the leader of then had it: each time is that of what happened, and not of its record.
function absenceOf(event: ArchivedEvent, after: Map<string, ArchivedEvent>): AbsentBroker {
  const record = event.record as unknown as Member;
  const leftAt = leftAtOf(event);
  const memberOf = (name: string): Member | undefined =>
    after.get(name)?.record as unknown as Member | undefined;
  const timeOf = (name: string): number | null => {
    const took = memberOf(name)?.tookMs;
    return typeof took === "number" ? leftAt + took : (after.get(name)?.ts ?? null);
  };
  const clients = memberOf("clients"), later = memberOf("later")?.how;
  const sign = memberOf("sign")?.how ?? "";
  const unheard = record.unheardMs;
  return {
    broker: record.of,
    how: (record.how as AbsentBroker["how"]) ?? "lost",
    leftAt,
    backAt: timeOf("back"),
    bundles: record.bundles ?? 0,
    placed: after.has("placed") ? (record.bundles ?? 0) : 0,
    placedAt: timeOf("placed"),
    placedExact: false,
    restarts: 0,
    lostBefore: [],
    lostByStore: [],
    storeSilent: false,
    sameProcess: memberOf("back")?.sameProcess ?? false,
    sign: later ? `${sign || "did not answer"}${LATER}${later}` : sign,
    startedAt: null,
    version: null,
    waiting: [],
    clients: clients?.clients ?? null,
    clientsAt: null,
    clientsBack: clients?.clientsBack ?? 0,
    clientsWaitedMs: clients?.clientsWaitedMs ?? null,
    clientsWaitedMeanMs: clients?.clientsWaitedMeanMs ?? null,
    unheardMs: typeof unheard === "number" ? Math.max(0, unheard - (event.ts - leftAt)) : null,
  };
}

// What is not known of a broker of which no record is of the moment.
const NOT_KNOWN: Partial<Broker> = {
  usage: null,
  resources: null,
  topics: null,
  producers: null,
  consumers: null,
  rate: null,
  throughput: null,
  msgRateIn: null,
  msgRateOut: null,
  msgThroughputIn: null,
  msgThroughputOut: null,
};

// What was recorded of members soon after a moment, the newest first.
const askLater = (at: number): Promise<Events> =>
  events(["kind=member"], `since=${at + 1}&until=${at + HOUR_MS}&limit=${MEMBERS}`);

const MINUTE_MS = 60_000;

function unknownNotes(brokers: string[], unknown: Record<string, string>): string[] {
  const why = [...new Set(brokers.map((it) => unknown[it] ?? ""))];
  return why.map((each) => {
    const those = brokers.filter((it) => unknown[it] === each);
    const more = those.length > NAMED ? ` and ${those.length - NAMED} more` : "";
    return `What ${those.slice(0, NAMED).join(", ")}${more} carried then is not known: ${each}`;
  });
}

// Whether a session ended because the store did not answer, as `lapse_of` of
// engine/history/lapses.py.
const hadEnded = ({ begin, end, since, brokers }: LapseShown, { broker, leftAt }: AbsentBroker): boolean =>
  since < begin && brokers.includes(broker) && since <= leftAt && leftAt <= end + CONSEQUENCE_MS;

const CONSEQUENCE_MS = 5_000;

// Which bundles of brokers that were lost had an owner again by a moment: by the records of owners, as
// the command line has it. A leader records that only once it knows of all of them.
async function servedNext(absent: AbsentBroker[], at: number): Promise<void> {
  const waits = absent.filter(({ how, bundles, placed }) => how === "lost" && placed < bundles);
  const some = waits.slice(0, ASKED_MAX);
  if (!some.length) return;
  const begin = Math.min(...some.map(({ leftAt, unheardMs }) => leftAt - (unheardMs ?? 0)));
  const [after, ...own] = await Promise.all([
    events(["kind=ownership"], `since=${begin}&until=${at}&limit=${STEPS}`),
    ...some.map(({ broker }) =>
      events(["kind=ownership"], `about=${encodeURIComponent(broker)}&until=${at}&limit=${STEPS}`),
    ),
  ]);
  if (after.parts.length >= STEPS) return; // nobody knows what the others say
  some.forEach((absence, index) => serveNext(absence, own[index]?.parts ?? [], after.parts));
}

const ASKED_MAX = 8;
const STEPS = 2_000;

// `own`: the steps of the broker; `after`: all since it left; both until the moment.
function serveNext(absence: AbsentBroker, own: ArchivedEvent[], after: ArchivedEvent[]): void {
  const { broker, leftAt, bundles } = absence;
  const left = leftAt - (absence.unheardMs ?? 0);
  const had = new Map<string, number>(); // bundle → since when
  for (const { ts, record } of [...own].sort((a, b) => a.ts - b.ts)) {
    if (text(record, "broker") !== broker || ts > leftAt) continue;
    if (text(record, "after") === "Owned") had.set(text(record, "bundle"), ts);
    else if (text(record, "after") === "Free" && (text(record, "cause") !== "loss" || ts < left))
      had.delete(text(record, "bundle"));
  }
  const next = new Map<string, number>(); // when it had an owner again, at first
  for (const { ts, record } of after) {
    const bundle = text(record, "bundle");
    const isNew = ts > (had.get(bundle) ?? Infinity) && (ts > leftAt || text(record, "broker") !== broker);
    if (isNew && text(record, "after") === "Owned") next.set(bundle, Math.min(ts, next.get(bundle) ?? ts));
  }
  const waiting = [...had.keys()].filter((bundle) => !next.has(bundle)).sort();
  if (!had.size) return; // its records are missing
  absence.waiting = waiting;
  absence.placed = Math.max(0, bundles - waiting.length);
  if (waiting.length) return;
  absence.placedAt = Math.max(leftAt, ...next.values());
  absence.placedExact = true;
}

function heatOf(parts: ArchivedHeat[], stepMs: number): HeatShown {
  const times = parts[0]?.times ?? [];
  const rows = new Map<string, { of: string; throughput: (number | null)[] }[]>();
  for (const part of parts)
    for (const { bundle, throughput } of part.bundles)
      rows.set(bundle, [...(rows.get(bundle) ?? []), { of: part.part, throughput }]);
  const bundles = [...rows].map(([bundle, of]) => merged(bundle, of));
  const heat = (series: HeatSeries): number =>
    series.throughput.reduce<number>((sum, value) => sum + (value ?? 0), 0);
  bundles.sort((a, b) => heat(b) - heat(a) || a.bundle.localeCompare(b.bundle));
  // Of an archive that has more than it told, it is not known how many of them others have, too.
  const total = parts.some(({ cutOff }) => cutOff) ? Infinity : bundles.length;
  return {
    bundles: bundles.slice(0, HEAT_ROWS),
    intervalSeconds: stepMs / 1000,
    kept: times.length,
    times,
    total,
  };
}

// A bundle that moved has a row at each of its brokers.
function merged(
  bundle: string,
  rows: { of: string; throughput: (number | null)[] }[],
): HeatSeries {
  const owners: [number, string][] = [];
  const throughput = (rows[0]?.throughput ?? []).map((_, column) => {
    let best: { of: string; value: number } | null = null;
    for (const row of rows) {
      const value = row.throughput[column];
      if (typeof value === "number" && (!best || value > best.value)) best = { of: row.of, value };
    }
    if (best && owners.at(-1)?.[1] !== best.of) owners.push([column, best.of]);
    return best?.value ?? null;
  });
  return { bundle, exists: true, owner: owners.at(-1)?.[1] ?? null, owners, rate: null, throughput };
}

const text = (record: ArchivedEvent["record"], name: string): string => String(record[name] ?? "");
const figure = (record: ArchivedEvent["record"], name: string): number | null =>
  typeof record[name] === "number" ? (record[name] as number) : null;

function outcomeOf(record: ArchivedEvent["record"]): Outcome {
  return {
    text: text(record, "outcome"),
    code: null,
    owner: text(record, "owner") || null,
    clientsClosed: figure(record, "clientsClosed"),
    clientsBack: figure(record, "clientsBack"),
    clientsBackAt: text(record, "clientsBackAt") || null,
    clientsUnserved: figure(record, "clientsUnserved"),
    clientsWithinMs: figure(record, "clientsWithinMs"),
    clientsWaitedMs: figure(record, "clientsWaitedMs"),
    clientsWaitedMeanMs: figure(record, "clientsWaitedMeanMs"),
    pauseMs: figure(record, "pauseMs"),
    unansweredSince: figure(record, "unansweredSince"),
  };
}

// `ts` is when it ended; an earlier version dated it when its clients had been counted.
function moveOf({ ts, record }: ArchivedEvent): Move {
  const startedAt = figure(record, "startedAt");
  return {
    id: text(record, "move"),
    bundle: text(record, "bundle"),
    source: text(record, "source"),
    destination: text(record, "destination") || null,
    reason: text(record, "reason"),
    why: (record["why"] ?? {}) as Move["why"],
    author: text(record, "author") as Move["author"],
    state: text(record, "state") as Move["state"],
    swap: null,
    createdAt: (startedAt ?? ts) - (figure(record, "waitedMs") ?? 0),
    startedAt,
    endedAt: ts,
    outcome: outcomeOf(record),
    clients: figure(record, "clients"),
  };
}

// What one cycle unloaded and left is one decision, as `loadmanager admin decisions` has it.
const idsOf = (record: ArchivedEvent["record"]): string[] => (record["ids"] ?? []) as string[];

// `whole`: whether all records of a cycle of this time are among them. Of others nobody knows if they
// moved more.
function decisionsOf(found: ArchivedEvent[], whole = (_ts: number): boolean => false): DecisionShown[] {
  const cycles = new Map<string, DecisionShown>();
  const decisions: DecisionShown[] = [];
  for (const event of found) {
    const { record } = event;
    const action = event.kind.slice("decision.".length);
    const epoch = figure(record, "epoch") ?? 0, number = figure(record, "cycle") ?? 0;
    const head = { id: idsOf(record)[0] ?? `${epoch}-a${event.id}`, ts: event.last, epoch, cycle: number };
    if (action !== "unload" && action !== "skip") {
      decisions.push({ ...head, kind: action, ...single(action, event) });
      continue;
    }
    const key = [epoch, number, record["strategy"], event.last].join(" ");
    const strategy = text(record, "strategy");
    const cycle = cycles.get(key) ?? { ...head, kind: "shed", strategy, unloads: [], skipped: [] };
    if (action === "unload")
      cycle.unloads?.push({
        bundle: text(record, "bundle"),
        source: text(record, "source"),
        destination: text(record, "destination") || null,
        reason: text(record, "reason"),
        why: (record["why"] ?? {}) as Record<string, string>,
      });
    else {
      const { what, code, reason } = record as Record<string, string>;
      const why = (record["why"] ?? {}) as Record<string, string>;
      const again = event.times > 1 ? { times: event.times, firstAt: event.ts } : {};
      cycle.skipped?.push({ what: what ?? "", code: code ?? "", reason: reason ?? "", why, ...again });
    }
    cycles.set(key, cycle);
  }
  for (const cycle of cycles.values()) if (whole(cycle.ts)) cycle.unloadsCount = cycle.unloads?.length;
  return [...decisions, ...cycles.values()].sort((a, b) => b.ts - a.ts);
}

function single(action: string, { record, ts }: ArchivedEvent): Partial<DecisionShown> {
  const bundle = text(record, "bundle"), reason = text(record, "reason");
  const destination = text(record, "destination") || null;
  const why = (record["why"] ?? {}) as Record<string, string>;
  if (action === "place") {
    const figures = (record["figures"] ?? {}) as Record<string, string>;
    return { bundle, reason, broker: destination, rejected: why, why: figures };
  }
  const ended = { bundle, reason, why, state: text(record, "state"), outcome: outcomeOf(record) };
  if (action === "split") return { ...ended, broker: text(record, "owner") || null };
  return {
    ...ended,
    move: text(record, "move"),
    author: text(record, "author"),
    source: text(record, "source"),
    destination,
    endedAt: ts,
  };
}

// Those of brokers of which the loads of then are known.
function throttledOf(
  all: ArchivedLoads[],
  unknown: Record<string, string>,
  missing: Record<string, string>,
): ThrottledShown {
  const noAnswer: Record<string, string> = {};
  for (const broker of Object.keys(unknown)) noAnswer[broker] = "is not counted: what it did then is not known";
  for (const broker of Object.keys(missing)) noAnswer[broker] = "is not counted: its archive did not answer";
  return { ...holdsOf(all.filter(({ broker }) => !(broker in unknown))), noAnswer };
}

// Limits that held somebody in the interval that was recorded.
function holdsOf(all: ArchivedLoads[]): ThrottledShown {
  const brokers: ThrottledShown["brokers"] = {};
  for (const { broker, columns, figures, spanMs } of all) {
    const limits = Object.entries(figures).flatMap(([name, row]): HoldingLimit[] => {
      const of = (column: string): number => row[columns.indexOf(column)] ?? 0;
      if (!of("held")) return [];
      const [level = "", limit = ""] = name.split(/: (.*)/);
      return [
        {
          name: limit,
          level,
          configuredMessagesPerS: of("configured_messages_per_s"),
          configuredBytesPerS: of("configured_bytes_per_s"),
          deliveredMessagesPerS: of("delivered_messages_per_s"),
          deliveredBytesPerS: of("delivered_bytes_per_s"),
          held: of("held"),
          waitedMs: of("waited_ms"),
          queueLength: of("queue_length"),
          waiters: [],
          waitersTotal: of("queue_length"),
          error: null,
          forgivenTokens: 0,
          messages: 0,
          nextMs: 0,
          sizeBytes: 0,
          topics: [],
          wakeups: 0,
          waitedLatelyMs: null,
          heldAgoMs: null,
          windowS: spanMs / 1000,
        },
      ];
    });
    if (limits.length)
      brokers[broker] = {
        causes: {},
        connections: [],
        subscriptions: [],
        limits,
        limitsTotal: limits.length,
        pausedConnections: 0,
      };
  }
  return { brokers, noAnswer: {}, notAsked: 0 };
}
