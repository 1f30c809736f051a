// What operators do. Each action first shows what will happen, and the command that does the same.
import type { JSX } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Failure, V1, call } from "./api";
import { useNames } from "./decisions";
import { giveBackFocus } from "./focus";
import { bytes, count, duration, inZone, messages, percent, plural, split, utc } from "./format";
import type { Broker } from "./state";
import { Told } from "./time";
import type { BundleShown as Bundle, GoalShown, Move, SealedPlan } from "../generated/openapi";
import { cluster, moves, refresh, tell } from "./state";
import { known, priceText } from "./moves";
import { because, numbers, ordered, shortBundle, skipText } from "./sentences";
import { Store, use } from "./store";

type Values = Record<string, string>;

interface Field {
  name: string;
  label: string;
  value: string;
  options?: { value: string; label: string }[];
}

interface Question {
  title: string;
  // What will happen, with the present values of the fields.
  plan: (values: Values) => string[];
  table?: JSX.Element;
  fields?: Field[];
  command?: (values: Values) => string;
  label: string;
  // Does it; returns what to tell. Without it there is nothing to do.
  run?: (values: Values) => Promise<string>;
}

const question = new Store<Question | null>(null);
const HOURS = [
  { value: "", label: "no" },
  { value: "1800", label: "for 30 minutes" },
  { value: "7200", label: "for 2 hours" },
  { value: "86400", label: "for a day" },
];
const SPANS = HOURS.slice(1);
const NOTE: Field = { name: "note", label: "Note for others", value: "" };

export function Dialog(): JSX.Element | null {
  const asked = use(question);
  return asked ? <Asked asked={asked} key={asked.title} /> : null;
}

function Asked({ asked }: { asked: Question }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const first = Object.fromEntries((asked.fields ?? []).map(({ name, value }) => [name, value]));
  const [values, setValues] = useState<Values>(first);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Failure | null>(null);
  const close = (): void => question.set(null);
  useLayoutEffect(() => {
    box.current?.showModal();
    return giveBackFocus;
  }, []);
  const go = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!asked.run || busy) return;
    setBusy(true);
    setProblem(null);
    try {
      const text = await asked.run(values);
      close();
      tell(text);
      void refresh();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      setProblem(error);
      setBusy(false);
    }
  };
  return (
    <dialog
      ref={box}
      onClose={close}
      aria-labelledby="dialog-title"
      class={asked.table ? "wide" : ""}
    >
      <form onSubmit={go}>
        <h2 id="dialog-title">{asked.title}</h2>
        {asked.fields?.map((field) => (
          <label key={field.name}>
            {field.label}
            <Input
              field={field}
              value={values[field.name] ?? ""}
              change={(value) => setValues({ ...values, [field.name]: value })}
            />
          </label>
        ))}
        <ul class="plan">
          {asked.plan(values).map((line) => (
            <li key={line}>
              <Told text={line} />
            </li>
          ))}
        </ul>
        {asked.table}
        {asked.command && (
          <p class="command">
            The same in a terminal: <code>{asked.command(values)}</code>
          </p>
        )}
        {problem && (
          <div class="problem" role="alert">
            <Told text={problem.message} />
            <ul>
              {driftOf(problem).map((line) => (
                <li key={line}>{line}</li>
              ))}
            </ul>
          </div>
        )}
        <footer>
          <button type="button" onClick={close}>
            {asked.run ? "Cancel" : "Close"}
          </button>
          {asked.run && (
            <button type="submit" class="primary" disabled={busy}>
              {busy ? "Working…" : asked.label}
            </button>
          )}
        </footer>
      </form>
    </dialog>
  );
}

function Input(props: {
  field: Field;
  value: string;
  change: (value: string) => void;
}): JSX.Element {
  const { field, value, change } = props;
  if (!field.options)
    return <input value={value} onInput={(event) => change(event.currentTarget.value)} />;
  return (
    <select value={value} onChange={(event) => change(event.currentTarget.value)}>
      {field.options.map((option) => (
        <option key={option.value} value={option.value}>
          {option.label}
        </option>
      ))}
    </select>
  );
}

function driftOf(failure: Failure): string[] {
  const { body } = failure;
  if (typeof body !== "object" || body === null || !("drift" in body)) return [];
  const drift = body.drift as { bundle: string | null; reason: string }[];
  return drift.map(({ bundle, reason }) =>
    inZone(bundle ? `${shortBundle(bundle)}: ${reason}` : reason),
  );
}

const quoted = (note: string): string => (note ? ` --note '${note.replace(/'/g, "’")}'` : "");
const admin = (rest: string): string => `loadmanager admin ${rest}`;
const span = (seconds: string): string => `${Number(seconds) / 60}m`;

// Bundles

// What a move does to clients comes first: until they are served again, more passes than the bundle
// is without an owner.
function priceExpected(): string {
  const price = priceText(known.value);
  return price.length
    ? `In the last moves, ${price.join("; ")}.`
    : "How long clients will wait is not known yet: no move that is recorded says it.";
}

function affected(bundle: Bundle): string {
  if (bundle.rate === null) return "What it carries is not reported yet; all of it goes along.";
  const clients = (bundle.producers ?? 0) + (bundle.consumers ?? 0);
  return `${plural(bundle.topics ?? 0, "topic")} with ${plural(clients, "client")} and ${messages(
    bundle.rate,
  )} msg/s, ${bytes(bundle.throughput ?? 0)} go with it.`;
}

function destinations(except: string | null): Field["options"] {
  return [...(cluster.value?.brokers ?? [])]
    .filter(({ broker, state, cordon }) => broker !== except && state !== "gone" && !cordon)
    .sort((a, b) => (a.usage ?? 9) - (b.usage ?? 9))
    .map(({ broker, usage }) => ({
      value: broker,
      label: usage === null ? broker : `${broker} (load ${percent(usage)})`,
    }));
}

interface Moved {
  state: string | null;
  outcome: { text: string; pauseMs?: number | null } | null;
}

export function moveBundle(bundle: Bundle): void {
  const options = destinations(bundle.owner) ?? [];
  const name = shortBundle(bundle.bundle);
  question.set({
    title: `Move ${name}`,
    label: "Move it",
    fields: [
      { name: "to", label: "To", value: options[0]?.value ?? "", options },
      { name: "pin", label: "Pin it there", value: "", options: HOURS },
      NOTE,
    ],
    plan: ({ to, pin }) =>
      options.length
        ? [
            bundle.owner
              ? `${bundle.owner} stops serving it and gives it up; ${to} takes it; then the clients are told.`
              : `Nobody owns it now; ${to} gets it.`,
            affected(bundle),
            priceExpected(),
            pin || bundle.pinnedTo
              ? "The balancer leaves it there until the pin ends."
              : "The balancer may move it on after the grace period.",
          ]
        : ["There is no other broker that may take it."],
    command: ({ to, pin, note }) =>
      admin(
        `bundles move ${bundle.bundle} --to ${to}${pin ? ` --pin ${span(pin)}` : ""}${quoted(note ?? "")}`,
      ),
    ...(options.length ? { run: (values: Values) => carryOut(bundle, values) } : {}),
  });
}

async function carryOut(bundle: Bundle, { to, pin, note }: Values): Promise<string> {
  const moved = await call<Moved>("POST", `${V1}/moves`, {
    bundle: bundle.bundle,
    destination: to,
    ...(pin ? { pinSeconds: Number(pin) } : {}),
    note: note ?? "",
  });
  const name = shortBundle(bundle.bundle);
  if (moved.state !== "done") return `${name}: ${moved.outcome?.text ?? "nothing was done"}.`;
  const pause = moved.outcome?.pauseMs;
  return `${name} moved to ${to}${typeof pause === "number" ? ` in ${duration(pause)}` : ""}.`;
}

export function pinBundle(bundle: Bundle): void {
  const { owner } = bundle;
  if (!owner) return tell("A bundle without an owner cannot be pinned where it is.", true);
  question.set({
    title: `Pin ${shortBundle(bundle.bundle)}`,
    label: "Pin it",
    fields: [{ name: "pin", label: "Until", value: "7200", options: SPANS }, NOTE],
    plan: () => [
      `It stays on ${owner}: the balancer does not move it. Nothing moves now.`,
      "It moves all the same if its broker dies or is drained.",
    ],
    command: ({ pin, note }) =>
      admin(`bundles move ${bundle.bundle} --to ${owner} --pin ${span(pin ?? "")}${quoted(note ?? "")}`),
    run: async (values) => {
      await carryOut(bundle, { ...values, to: owner });
      return `${shortBundle(bundle.bundle)} is pinned to ${owner}.`;
    },
  });
}

export function unpinBundle(bundle: Bundle): void {
  question.set({
    title: `Unpin ${shortBundle(bundle.bundle)}`,
    label: "Unpin it",
    plan: () => ["The balancer may move it again."],
    command: () => admin(`bundles unpin ${bundle.bundle}`),
    run: async () => {
      await call("DELETE", `${V1}/pins/${bundle.bundle}`);
      return `${shortBundle(bundle.bundle)} is no longer pinned.`;
    },
  });
}

const ofBundle = (bundle: string, what: string): string => {
  const { namespace, range } = split(bundle);
  return `/admin/v2/namespaces/${namespace}/${range}/${what}`;
};

export function unloadBundle(bundle: Bundle): void {
  question.set({
    title: `Unload ${shortBundle(bundle.bundle)}`,
    label: "Unload it",
    plan: () => [
      `${bundle.owner ?? "Its owner"} gives it up. The next lookup of a client places it, perhaps on the same broker.`,
      affected(bundle),
      priceExpected(),
    ],
    command: () => admin(`bundles unload ${bundle.bundle}`),
    run: async () => {
      await call("PUT", ofBundle(bundle.bundle, "unload"));
      return `${shortBundle(bundle.bundle)} was unloaded.`;
    },
  });
}

export function splitBundle(bundle: Bundle): void {
  question.set({
    title: `Split ${shortBundle(bundle.bundle)}`,
    label: "Split it",
    plan: () => [
      "Two bundles take its place on the same broker. The balancer can move them one by one.",
      "Topics stay open and clients stay connected.",
    ],
    command: () => admin(`bundles split ${bundle.bundle}`),
    run: async () => {
      await call("PUT", ofBundle(bundle.bundle, "split?unload=false"));
      return `${shortBundle(bundle.bundle)} was split.`;
    },
  });
}

// Brokers

export function cordonBroker(broker: Broker, drain: boolean): void {
  const id = broker.broker;
  question.set({
    title: drain ? `Drain ${id}` : `Cordon ${id}`,
    label: drain ? "Drain it" : "Cordon it",
    fields: [NOTE],
    plan: () =>
      drain
        ? [
            "It gets no new bundle.",
            `Its ${plural(broker.bundles ?? 0, "bundle moves", "bundles move")} away, at the pace of the queue of moves.`,
            ...pausedNow(),
            priceExpected(),
          ]
        : ["It gets no new bundle. It keeps those that it has."],
    command: ({ note }) =>
      admin(`${drain ? "drain" : "brokers cordon"} ${id}${quoted(note ?? "")}`),
    run: async ({ note }) => {
      await call("PUT", `${V1}/cordons/${id}${drain ? "?drain=true" : ""}`, { note: note ?? "" });
      return drain ? `${id} is being drained.` : `${id} is cordoned.`;
    },
  });
}

export function uncordonBroker(broker: Broker): void {
  const id = broker.broker;
  question.set({
    title: `Uncordon ${id}`,
    label: "Uncordon it",
    plan: () => [
      "It may have bundles again. Moves of its drain that have not begun are cancelled.",
      "What left it comes back only as the balancer decides.",
    ],
    command: () => admin(`brokers uncordon ${id}`),
    run: async () => {
      await call("DELETE", `${V1}/cordons/${id}`);
      return `${id} may have bundles again.`;
    },
  });
}

// Moves

export function pauseMoves(): void {
  question.set({
    title: "Pause moves",
    label: "Pause",
    fields: [{ name: "seconds", label: "Until", value: "1800", options: SPANS }, NOTE],
    plan: () => [
      `No queued move begins meanwhile; ${plural(moves.value?.waiting ?? 0, "move")} wait now.`,
      "No bundle is split or merged by itself.",
      "Moves that operators ask for one by one are still made.",
    ],
    command: ({ seconds, note }) => admin(`moves pause ${span(seconds ?? "")}${quoted(note ?? "")}`),
    run: async ({ seconds, note }) => {
      await call("PUT", `${V1}/moves/pause`, { seconds: Number(seconds), note: note ?? "" });
      return "Moves are paused.";
    },
  });
}

export function resumeMoves(): void {
  question.set({
    title: "Resume moves",
    label: "Resume",
    plan: () => [`${plural(moves.value?.waiting ?? 0, "move")} that wait may begin.`],
    command: () => admin("moves resume"),
    run: async () => {
      await call("DELETE", `${V1}/moves/pause`);
      return "Moves go on.";
    },
  });
}

export function cancelMove(move: Move): void {
  question.set({
    title: `Cancel the move of ${shortBundle(move.bundle)}`,
    label: "Cancel the move",
    plan: () => [
      `It stays on ${move.source}.`,
      move.swap ? "The other moves of its swap are cancelled, too." : "The balancer may decide again.",
    ],
    command: () => admin(`moves cancel ${move.id}`),
    run: async () => {
      await call("DELETE", `${V1}/moves/${move.id}`);
      return `${shortBundle(move.bundle)} stays on ${move.source}.`;
    },
  });
}

// Goals

// Its hours, its limits and its note: what one approves.
export function boundsOf({ limits, bounds, state, approvedMs }: GoalShown): string[] {
  const { fromMs = 0, windows = [] } = limits ?? {};
  const begins = fromMs > (state === "proposed" ? 0 : (approvedMs ?? 0));
  return [
    ...(begins ? [`from ${utc(fromMs)}`] : []),
    ...(windows.length ? [`moves only in ${windows.join("; ")}`] : []),
    ...(bounds ?? []),
  ];
}

export function approveGoal(goal: GoalShown): void {
  const last = goal.promise.curve.at(-1);
  question.set({
    title: `Approve goal ${goal.id}`,
    label: "Approve",
    plan: () => [
      `${plural(last?.moves ?? 0, "move")}, ${bytes(last?.traffic ?? 0)} and ${plural(Math.round(last?.clients ?? 0), "client")} that wait ${(last?.clientSeconds ?? 0).toFixed(0)} s in all.`,
      ...(goal.limits?.untilMs ? [`To be done by ${utc(goal.limits.untilMs)}.`] : []),
      ...boundsOf(goal).map((text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`),
      "A few moves are made at a time; the rest is planned anew from fresh figures.",
      goal.goal.kind === "emptied" ? `${goal.goal.broker} is cordoned.` : "The leader's own cycles wait meanwhile.",
    ],
    table: <Curve promise={goal.promise} />,
    command: () => admin(`goals approve ${goal.id}`),
    run: async () => {
      await call("POST", `${V1}/goals/${goal.id}/approve`, {});
      return `Goal ${goal.id} is approved.`;
    },
  });
}

const CURVE = { width: 400, height: 120 };

// What each move of a plan evens out: how far the broker that is farthest from the mean is from it.
function Curve({ promise }: { promise: GoalShown["promise"] }): JSX.Element | null {
  const points = promise.curve;
  const last = points.at(-1);
  if (!last?.moves) return null;
  const most = Math.max(...points.map(({ farthest }) => farthest), 1e-9);
  const path = points
    .map(({ moves, farthest }, at) => {
      const x = (moves / last.moves) * CURVE.width;
      const y = CURVE.height - 2 - (farthest / most) * (CURVE.height - 6);
      return `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    })
    .join("");
  const half = points.find(({ moves, farthest }) => moves < last.moves && farthest <= (most + last.farthest) / 2);
  const off = ({ farthest }: { farthest: number }): string => `${(100 * farthest).toFixed(1)} points`;
  const about = `The farthest broker from the mean: ${off({ farthest: most })} before, ${half ? `${off(half)} after ${plural(half.moves, "move")}, ` : ""}${off(last)} after ${plural(last.moves, "move")}. The model may be ${(100 * promise.error).toFixed(1)} points off.`;
  return (
    <figure class="curve">
      <svg viewBox={`0 0 ${CURVE.width} ${CURVE.height}`} preserveAspectRatio="none" role="img" aria-label={about}>
        <path d={path} />
      </svg>
      <figcaption>{about}</figcaption>
    </figure>
  );
}

export function stopGoal(goal: GoalShown): void {
  question.set({
    title: `Stop goal ${goal.id}`,
    label: "Stop",
    plan: () => [
      "Moves that wait are cancelled; those under way end by themselves.",
      ...(goal.goal.kind === "emptied" && goal.state === "approved"
        ? [`${goal.goal.broker} stays cordoned until you end that.`]
        : []),
    ],
    command: () => admin(`goals stop ${goal.id}`),
    run: async () => {
      const stopped = (await call("POST", `${V1}/goals/${goal.id}/stop`, {})) as GoalShown;
      const cordoned = stopped.staysCordoned;
      return `Goal ${goal.id} is stopped.${cordoned ? ` ${cordoned} stays cordoned.` : ""}`;
    },
  });
}

// Sealed plans

function pausedNow(): string[] {
  const paused = moves.value?.paused;
  if (!paused) return [];
  const about = ordered(paused) && ` (${ordered(paused)})`;
  const until = `Moves are paused until ${utc(paused.until)}${about}`;
  return [`${until}: till then, these wait in the queue.`];
}

export async function dryRun(): Promise<void> {
  tell("The leader computes a plan.");
  try {
    show(await call<SealedPlan>("POST", `${V1}/dry-runs`, {}));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    tell(`There is no plan: ${error.message}`, true);
  }
}

function show(sealed: SealedPlan): void {
  const { unloads, skipped, strategy } = sealed.plan;
  if (!unloads.length) {
    question.set({
      title: "A balancing cycle would move nothing now",
      label: "",
      plan: () =>
        skipped.length
          ? skipped.slice(0, 30).map(skipText)
          : [`${strategy} has nothing to say against any broker.`],
    });
    return;
  }
  question.set({
    title: `Move ${plural(unloads.length, "bundle")} as ${strategy} would`,
    label: "Carry out this plan",
    plan: () => [
      `Exactly these moves are queued, if nothing differs by then. The plan is good until ${utc(
        sealed.expiresAt,
      )}.`,
      ...pausedNow(),
      priceExpected(),
      ...(sealed.replay ? [`Believe figures with care: ${sealed.replay.text}.`] : []),
    ],
    table: <PlanTable sealed={sealed} />,
    command: () => admin(`plans execute ${sealed.id}`),
    run: async () => {
      await call("POST", `${V1}/plans/${sealed.id}/execute`, {});
      return `${plural(unloads.length, "move is", "moves are")} queued.`;
    },
  });
}

const PLAN_ROWS = 100;

function PlanTable({ sealed }: { sealed: SealedPlan }): JSX.Element {
  const { unloads } = sealed.plan;
  const name = useNames();
  return (
    <div class="table" tabIndex={0} role="region" aria-label="The plan">
      <table>
        <thead>
          <tr>
            <th>Bundle</th>
            <th>From</th>
            <th>To</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {unloads.slice(0, PLAN_ROWS).map((unload) => (
            <tr key={unload.bundle}>
              <td title={unload.bundle}>{shortBundle(unload.bundle)}</td>
              <td title={unload.source}>{name(unload.source)}</td>
              <td title={unload.destination ?? ""}>
                {unload.destination ? name(unload.destination) : "to be placed"}
              </td>
              <td title={numbers(unload.why)}>{because(unload.reason, unload.why)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {unloads.length > PLAN_ROWS && <p>and {count(unloads.length - PLAN_ROWS)} more</p>}
    </div>
  );
}
