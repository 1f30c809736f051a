// The page: what the cluster is now, at a glance, and where to look closer.
import { render } from "preact";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Dialog, dryRun, pauseMoves, resumeMoves } from "./actions";
import { token } from "./api";
import { Brokers, isStale, runs } from "./brokers";
import { Changes } from "./changes";
import { Clusters } from "./clusters";
import { followAddress } from "./address";
import { Decisions } from "./decisions";
import { Find, finding } from "./find";
import { Findings } from "./findings";
import { bytes, count, duration, messages, moment, percent, plural, told, utc, zone } from "./format";
import { giveBackFocus } from "./focus";
import { Heat } from "./heat";
import type { AbsentBroker, DownShown as Down, Move } from "../generated/openapi";
import type { Broker, Cluster } from "./state";
import { LastSeen } from "./lastseen";
import { Moves, notBack, known as recent } from "./moves";
import { COUNTED_MS, absenceText, clients, isCounted, listed, ordered, returnText, sentence, shortBundle, unserved } from "./sentences";
import { LISTED, absences, begin, cluster, decisions, downAt, downs, findings, isDaemon, isReading, lastBefore, link, moves, notCounted, pageOf, panel, pastLapses, pastLately, pastNotes, pastStopped, refresh, returned, toast, unproven } from "./state";
import { useRecorded } from "./recorded";
import { use } from "./store";
import { returns } from "./returns";
import { More, Side } from "./story";
import { Silent } from "./silent";
import { switchTheme, theme } from "./theme";
import { Time, Told } from "./time";
import { Throttled } from "./throttled";
import { PastNote, TimeBar } from "./timebar";
import { DAY_MS, shownAt, when } from "./when";

const LATELY_MAX = 3;
const LOST_MAX = 3; // brokers that the first line names
const FULL = 0.95;
const KEYS: [string, string, () => void][] = [
  ["f", "find a broker, bundle, namespace, topic or decision", () => finding.set(true)],
  ["b", "go to the brokers", () => focus("broker-rows")],
  ["h", "go to the heat of bundles", () => focus("heat-rows")],
  ["d", "go to the decisions", () => focusIn("decisions")],
  ["m", "go to the moves", () => focusIn("moves")],
  ["l", "go to what is throttled", () => focusIn("throttled")],
  ["c", "go to who changed what", () => focusIn("changes")],
  ["s", "go to the silent topics", () => document.querySelector<HTMLElement>("#silent summary")?.focus()],
  ["/", "filter the brokers", () => focus("broker-filter")],
  ["r", "see what a balancing cycle would move now", () => inThePresent(() => void dryRun())],
  ["p", "pause or resume moves", () => inThePresent(moves.value?.paused ? resumeMoves : pauseMoves)],
  ["a", "go to the time that is shown", () => focus("time")],
  ["n", "show what is now", () => when.set(null)],
  ["t", "light, dark, or as the system", switchTheme],
];

const inThePresent = (act: () => void): void => {
  if (!when.value) act();
};
const focus = (id: string): void => document.getElementById(id)?.focus();
const focusIn = (id: string): void =>
  document.querySelector<HTMLElement>(`#${id} .scroll, #${id} button`)?.focus();

function Tile(props: { name: string; children: ComponentChildren; wide?: boolean }): JSX.Element {
  return (
    <div class={props.wide ? "tile wide" : "tile"}>
      <span>{props.name}</span>
      <b>{props.children}</b>
    </div>
  );
}

function spread(brokers: Broker[]): string {
  const loads = brokers
    .filter((broker) => runs(broker) && broker.usage !== null)
    .map((broker) => broker.usage ?? 0);
  if (!loads.length) return "–";
  const modelled = brokers.some((broker) => runs(broker) && broker.sensor) ? "≈ " : "";
  return `${modelled}${percent(Math.min(...loads))} – ${percent(Math.max(...loads))}`;
}

/** Below what the traffic may grow to, and what of it one broker fewer could carry. */
function headroom(room: NonNullable<Cluster["headroom"]>, { brokers, replay }: Cluster): JSX.Element {
  const { carriedPercent: carried, measurableFromPercent: from } = room;
  const tells = typeof carried !== "number" || carried >= from;
  const shown = (value: number): string => (value > 100 ? "> 100" : value.toFixed(1));
  const all = shown(tells ? room.times : room.atLeast);
  const fewer = shown(tells ? room.timesWithoutOne : room.atLeastWithoutOne);
  if (!tells)
    return (
      <abbr title={`The traffic uses ${carried.toFixed(1)}% of ${room.resource} on the mean: too little to tell how much more of it would be carried than if all that is used were the traffic's.`}>
        ≥ {all} <small>({fewer} without one)</small>
      </abbr>
    );
  const below = `stays below ${room.belowPercent}% if all brokers carry the same`;
  const errors = brokers.flatMap(({ modelError }) => modelError ?? []);
  const points = (100 * errors.reduce((sum, error) => sum + error, 0)) / errors.length;
  const off = errors.length ? ` The model of usage is ${points.toFixed(1)} points off on the mean.` : "";
  const last = typeof room.last === "number" ? ` By the cycles until ${utc(room.last)}.` : "";
  const replayed = replay ? ` And ${replay.text}.` : "";
  return (
    <abbr title={`With ${all} times the traffic ${room.resource} ${below}; with ${fewer} times it if one broker is lost.${off}${last}${replayed}`}>
      × {all} <small>({fewer} without one)</small>
    </abbr>
  );
}

// Several brokers that were lost; a line for each follows.
function lostText(lost: AbsentBroker[]): string {
  const named = lost
    .slice(0, LOST_MAX)
    .map(({ broker, leftAt }) => `${broker} ${duration(shownAt() - leftAt)} ago`);
  const more = lost.length > LOST_MAX ? ` and ${lost.length - LOST_MAX} more` : "";
  const sum = (of: (absence: AbsentBroker) => number): number =>
    lost.reduce((total, absence) => total + of(absence), 0);
  const left = sum(({ bundles = 0, placed = 0 }) => bundles - placed);
  const owners = left ? `${count(left)} without an owner` : "all placed";
  const had = `${plural(sum(({ bundles = 0 }) => bundles), "bundle")}, ${owners}`;
  return `${lost.length} brokers are lost: ${named.join(", ")}${more}; they had ${had}.`;
}

// What is wrong although the balancer has nothing to do: clients that are not back, a broker that uses
// all it has, and what was found.
function troubleText(now: Cluster): string | null {
  const away = returned(now, shownAt()).find(
    (absence) => (absence.clientsBack ?? 0) < (absence.clients ?? 0) && !isCounted(absence),
  );
  if (away)
    return `Only ${away.clientsBack ?? 0} of ${plural(away.clients ?? 0, "client")} of ${away.broker}, which was lost, are back, as the leader counted.`;
  const [move, ...alike] = movesAway();
  if (move) return moveText(move, alike.length);
  const [first, ...others] = findings.value.filter(({ before }) => before === undefined);
  const more = others.length ? `, and ${plural(others.length, "other finding", "other findings")}` : "";
  if (first) return `${first.title}${more}.`;
  const [hottest] = now.brokers.filter(runs).sort((a, b) => (b.usage ?? 0) - (a.usage ?? 0));
  if ((hottest?.usage ?? 0) >= FULL) return `${hottest?.broker} uses ${percent(hottest?.usage ?? 0)} of what it has.`;
  return null;
}

// Moves that ended lately, some of whose clients had not come back while they were waited for.
const movesAway = (): Move[] =>
  recent.value.filter((move) => notBack(move) && shownAt() - (move.endedAt ?? 0) < COUNTED_MS);

function moveText({ bundle, destination, endedAt, outcome }: Move, others: number): string {
  const to = destination ? ` to ${destination}` : "";
  const ago = duration(shownAt() - (endedAt ?? 0));
  const more = others ? `; nor are all clients of ${plural(others, "other move")} back` : "";
  return `${shortBundle(bundle)} moved${to} ${ago} ago: ${clients(outcome)}${more}.`;
}

// As `Downtime` of the command line has it.
const whyDown = ({ inOrder }: Down): string =>
  inOrder ? "all brokers had stopped in order" : "no broker recorded anything";

// Who ended without a word may have been there for some seconds after the last record.
const tookDown = ({ begin: from, end, inOrder }: Down): string =>
  inOrder ? duration(end - from) : `${duration(end - from)} at most`;

function status(now: Cluster): { text: string; level: string } {
  const then = when.value;
  if (isReading()) return { text: `Reading what ${then ? "was then" : "is now"}.`, level: "busy" };
  const down = then && downAt(then.at);
  if (down) {
    const took = `for ${tookDown(down)}, until ${utc(down.end)}`;
    const text = `The whole cluster was down, ${took}: ${whyDown(down)}.`;
    return { text, level: down.inOrder ? "warn" : "bad" };
  }
  const [lapse] = pastLapses.value;
  if (lapse) return { text: lapse, level: "bad" };
  if (then && !now.brokers.some(runs) && pastStopped.value.length)
    return { text: `No broker was there: ${pastStopped.value.join("; ")}.`, level: "warn" };
  if (then && !now.brokers.some(runs)) {
    const last = lastBefore(then.at);
    const since = last === null ? "" : `: the last record before is of ${utc(last)}`;
    return { text: `Nothing is recorded of then${since}.`, level: "warn" };
  }
  const { moves: queue, paused } = now;
  const gone = absences(now);
  const lost = gone.filter(({ how }) => how === "lost");
  if (lost.length > 1) return { text: lostText(lost), level: "bad" };
  const [absent] = lost.concat(gone);
  const missing = (now.expected ?? 0) - now.brokers.filter(runs).length;
  const stale = now.brokers.filter(isStale).length;
  if (absent?.how === "lost" || (absent && missing > 0)) {
    const others = gone.length > 1 ? ` (and ${plural(gone.length - 1, "other", "others")} left)` : "";
    return { text: `${absenceText(absent)}${others}.`, level: "bad" };
  }
  const cordoned = now.brokers.filter(({ state, absence }) => state === "gone" && !absence).length;
  if (cordoned)
    return { text: `${plural(cordoned, "broker is", "brokers are")} gone.`, level: "bad" };
  if (missing > 0) {
    const text = `${plural(missing, "broker is", "brokers are")} missing of ${now.expected}.`;
    return { text, level: "bad" };
  }
  if (paused) {
    const about = ordered(paused);
    const since = paused.since ? `, since ${utc(paused.since)}` : "";
    const text = `Moves ${then ? "were" : "are"} paused until ${utc(paused.until)}${about && ` (${about})`}${since}.`;
    return { text, level: "warn" };
  }
  if (stale) {
    const text = `${plural(stale, "broker is", "brokers are")} late with the report.`;
    return { text, level: "warn" };
  }
  if (now.hold) return { text: `Nothing is moved now: ${now.hold}.`, level: "warn" };
  if (!now.balancing && (now.mode ?? "act") === "act") return { text: "The balancer is switched off.", level: "warn" };
  if (queue.running || queue.waiting) {
    const waiting = queue.waiting ? `, ${queue.waiting} wait` : "";
    return { text: `${plural(queue.running, "bundle is", "bundles are")} moving${waiting}.`, level: "busy" };
  }
  if (!decisions.value) return { text: "The decisions have not come yet.", level: "ok" };
  const [waits] = returned(now, shownAt()).filter(unserved);
  if (waits) {
    const left = unserved(waits);
    const text = `${plural(left, "bundle")} of ${waits.broker}, which was lost, had no owner yet.`;
    return { text: then ? text : text.replace(" had ", left === 1 ? " has " : " have "), level: "warn" };
  }
  const wrong = troubleText(now);
  if (wrong) return { text: wrong, level: "warn" };
  if (then && pastNotes.value?.length)
    return { text: "Not all that was is here: see the notes above.", level: "warn" };
  const last = decisions.value.find((decision) => decision.kind === "shed");
  if (!last && when.value) return { text: "No cycle is recorded of the time before.", level: "warn" };
  if (!last && now.cycles) {
    const text = `${now.shedder} has run ${plural(now.cycles, "cycle")} in this term; ${LISTED} decisions came after the last one.`;
    return { text, level: "ok" };
  }
  if (!last) return { text: `${now.shedder} has not run yet in this term.`, level: "ok" };
  const { mark, head } = sentence(last, String);
  return mark === "quiet"
    ? { text: `Quiet: ${now.shedder} sees nothing to move.`, level: "ok" }
    : { text: `${head} (${duration(shownAt() - last.ts)} ago).`, level: "ok" };
}

function Summary(): JSX.Element | null {
  const now = use(cluster);
  use(decisions);
  use(downs);
  use(pastNotes);
  use(pastLapses);
  use(findings);
  use(recent);
  use(returns);
  const without = use(notCounted);
  if (!now) return null;
  const live = now.brokers.filter(runs);
  const sum = (of: (broker: Broker) => number | null): number =>
    live.reduce((total, broker) => total + (of(broker) ?? 0), 0);
  const { text, level } = status(now);
  const missing = Object.keys(without.missing);
  const isPart = missing.length > 0 || without.unknown.length > 0;
  // At a time gone by there may be no record of what some carried, or not of who else was there.
  const least = (figure: string, isLeast: boolean, why: string): ComponentChildren =>
    isLeast ? <abbr title={`Without ${why}, which is not known.`}>≥ {figure}</abbr> : figure;
  const counted = (figure: string): ComponentChildren =>
    least(figure, missing.length > 0, `those of which only the archives of ${listed(missing)} tell`);
  const carried = (figure: string): ComponentChildren => {
    if (isPart && live.every(({ usage }) => usage === null)) return "–";
    return least(figure, isPart, `what ${listed([...without.unknown, ...missing])} carried`);
  };
  return (
    <div class="summary" role="status">
      <p class={`status ${level}`}>
        <i aria-hidden="true" /> <Told text={text} />
      </p>
      {now.mode && <Tile name="Mode">{now.mode}</Tile>}
      <Tile name="Brokers">{counted(count(now.total - now.brokers.filter((it) => it.state === "stopped" || (it.state === "gone" && !it.absence)).length))}</Tile>
      <Tile name="Bundles">{counted(`${count(now.bundles)}${now.awaited ? ` + ${count(now.awaited)} placed` : ""}`)}</Tile>
      <Tile name="Load">
        {spread(now.brokers)}
        {isPart && <small> ({missing.length + without.unknown.length} not counted)</small>}
      </Tile>
      {now.headroom && <Tile name="Headroom">{headroom(now.headroom, now)}</Tile>}
      <Tile name="Messages/s">{carried(messages(sum((broker) => broker.rate)))}</Tile>
      <Tile name="Bytes">{carried(bytes(sum((broker) => broker.throughput)))}</Tile>
    </div>
  );
}

const LossText = ({ of }: { of: string }): JSX.Element => (
  <>
    <Told text={of} />.
  </>
);

const DownText = ({ of }: { of: Down }): JSX.Element => (
  <>
    The whole cluster was down from <Time at={of.begin} text={moment(of.begin, true)} />
    {of.inOrder ? "" : " at the earliest"} to <Time at={of.end} />, for {tookDown(of)}: {whyDown(of)}.
  </>
);

// Brokers that are lost, the newest first, then what is over: crashes of all brokers; losses of
// those that are back, orderly stops of all, and times in which brokers stood still or could not
// prove their sessions.
interface Row {
  at: number;
  key: string;
  bad: boolean;
  text: JSX.Element;
}

function Lately(): JSX.Element | null {
  const now = use(cluster);
  const lost = now ? returned(now, shownAt()) : [];
  const away = now ? absences(now).filter(({ how }) => how === "lost") : [];
  const those = away.length > 1 ? away.sort((a, b) => b.leftAt - a.leftAt) : []; // the first line tells of one
  const over = use(downs).filter(({ end }) => end <= shownAt() && shownAt() - end < DAY_MS);
  const then = use(when);
  const lapses = useRecorded(unproven, "", !then);
  const before = use(pastLately);
  const [all, setAll] = useState(false);
  const row = (it: Down): Row => ({ at: it.end, key: `down ${it.begin}`, bad: !it.inOrder, text: <DownText of={it} /> });
  const past: Row[] = [
    ...over.filter(({ inOrder }) => inOrder).map(row),
    ...(then ? before : lapses).map(({ end, text }) => ({ at: end, key: text, bad: true, text: <Told text={text} /> })),
    ...lost.map((it) => ({
      at: it.backAt ?? it.leftAt,
      key: `${it.broker} ${it.leftAt}`,
      bad: Boolean(unserved(it)),
      text: <LossText of={returnText(it)} />,
    })),
  ];
  const rows = [
    ...those.map((it) => ({ at: it.leftAt, key: it.broker, bad: true, text: <LossText of={absenceText(it)} /> })),
    ...over.filter(({ inOrder }) => !inOrder).map(row).sort((a, b) => b.at - a.at),
    ...past.sort((a, b) => b.at - a.at),
  ];
  if (!rows.length) return null;
  const shown = all ? rows : rows.slice(0, LATELY_MAX);
  return (
    <ul class="lately" aria-label="What was lost lately">
      {shown.map(({ key, bad, text }) => (
        <li key={key} class={bad ? "problem" : ""}>
          {text}
        </li>
      ))}
      {rows.length > shown.length && (
        <li>
          <More of={rows.length - shown.length} show={() => setAll(true)} />
        </li>
      )}
    </ul>
  );
}

function Ask(): JSX.Element {
  const { state, message } = use(link);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const go = (event: Event): void => {
    event.preventDefault();
    token.set(field.current?.value.trim() ?? "");
    void refresh();
  };
  return (
    <main class="ask">
      <form onSubmit={go}>
        <h2>{state === "forbidden" ? "This token may not see the cluster" : "Who are you?"}</h2>
        <p>
          {token.get() || state === "forbidden"
            ? `The answer is: ${message}.`
            : "Only those who prove who they are get an answer here."}{" "}
          The page needs a token. At a broker it is that of a superuser; at the daemon of a fleet,
          others may read, too. It is kept in this tab only, until you close it.
        </p>
        <label>
          Token
          <input ref={field} type="password" autocomplete="off" spellcheck={false} required />
        </label>
        <footer>
          <button type="submit" class="primary">
            Use it
          </button>
        </footer>
        <p class="small">
          <code>loadmanager tokens create</code> makes one.
        </p>
      </form>
    </main>
  );
}

function Trouble(): JSX.Element | null {
  const { state, message, since, retryAt } = use(link);
  const known = use(cluster);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = window.setInterval(() => tick((n) => n + 1), 500);
    return () => clearInterval(timer);
  }, []);
  if (state !== "unreachable" && state !== "unavailable" && state !== "refused") return null;
  const brokers = known?.brokers ?? [];
  const others = brokers
    .filter(runs)
    .map((each) => ({ broker: each.broker, page: pageOf(each, brokers) }))
    .filter(({ page }) => page)
    .slice(0, 4);
  const again = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  return (
    <div class="trouble" role="alert">
      <b>
        {state === "unreachable"
          ? `The broker at ${location.host} does not answer`
          : `There is no answer: ${message.replace(/; try again$/, "")}`}
      </b>
. It was asked again and again for {duration(Date.now() - since)}. {again ? `Trying again in ${again} s.` : "Trying again."}
      {known && !isReading() && (
        <>
          {" "}
          What you see is of <Time at={known.at} />.
        </>
      )}
      {state === "unreachable" && others.length > 0 && (
        <span>
          {" "}
          Other brokers have this page, too:{" "}
          {others.map(({ broker, page }) => (
            <a key={broker} href={page ?? ""}>
              {broker}
            </a>
          ))}
        </span>
      )}
    </div>
  );
}

function Help({ close }: { close: () => void }): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    box.current?.showModal();
    return giveBackFocus;
  }, []);
  return (
    <dialog ref={box} onClose={close} aria-labelledby="help-title" class="help">
      <form method="dialog">
        <h2 id="help-title">Keys</h2>
        <dl>
          {[
            ...KEYS.map(([key, text]) => [key, text]),
            ["↑ ↓", "choose a row"],
            ["Enter", "open it"],
            ["Esc", "close"],
            ["Ctrl K", "find, as f does"],
            ["?", "these keys"],
          ].map(([key, text]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
        <footer>
          <button class="primary">Close</button>
        </footer>
      </form>
    </dialog>
  );
}

function useKeys(help: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const at = event.target as HTMLElement;
      if (document.querySelector("dialog[open]")) return;
      if ((event.ctrlKey || event.metaKey) && event.key === "k" && cluster.value) {
        event.preventDefault();
        finding.set(true);
      }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") {
        if (panel.value) panel.set(null);
        else at.blur();
        return;
      }
      if (["INPUT", "SELECT", "TEXTAREA"].includes(at.tagName)) return;
      const act = event.key === "?" ? help : KEYS.find(([key]) => key === event.key)?.[2];
      if (!act) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [help]);
}

function Top({ help }: { help: () => void }): JSX.Element {
  const now = use(cluster);
  const chosen = use(theme);
  const then = use(when);
  use(pastNotes);
  const { state } = use(link);
  return (
    <header class="top">
      <h1>
        <img src="/ui/icon.svg" alt="" width="20" height="20" /> loadmanager
      </h1>
      {now && then && !isReading() && <p>{now.leader.broker ? `${now.leader.broker} led` : "who led is not known"}</p>}
      {now && !then && !isReading() && (
        <p>
          {now.leader.broker} leads since <Time at={now.leader.since} /> · {now.manager} manager ·{" "}
          {now.shedder}
        </p>
      )}
      <span class={state === "ok" && !then ? "live" : "live off"}>
        {now && !isReading() && (state !== "ok" || then) ? "as of " : ""}
        {now && !isReading() && <Time at={now.at} text={`${told(now.at)} ${zone(now.at)}`} />}
      </span>
      {now && <button onClick={() => finding.set(true)}>Find…</button>}
      {now && !then && <button onClick={() => void dryRun()}>What would move?</button>}
      <button onClick={switchTheme} aria-label={`Colours: ${chosen}. Switch.`}>
        {{ auto: "Auto", light: "Light", dark: "Dark" }[chosen]}
      </button>
      {token.get() && (
        <button
          onClick={() => {
            token.set("");
            location.reload();
          }}
        >
          Forget token
        </button>
      )}
      <button onClick={help} aria-label="Keys">
        ?
      </button>
    </header>
  );
}

function Page(): JSX.Element {
  const { state } = use(link);
  const message = use(toast);
  const [helping, setHelping] = useState(false);
  const [help] = useState(() => () => setHelping(true));
  useKeys(help);
  const known = use(cluster);
  const then = use(when);
  use(pastNotes);
  if (state === "unauthorised" || state === "forbidden") return <Ask />;
  const steers = isDaemon(known) && !then;
  return (
    <>
      <Top help={help} />
      <Trouble />
      <main
        class={`${state === "ok" ? "" : "old"} ${isReading() ? "reading" : ""}`}
        aria-busy={state === "loading" || isReading()}
      >
        <Clusters />
        {(known || state === "unavailable") && <TimeBar />}
        <PastNote />
        <Summary />
        <Lately />
        <Findings />
        {known && !isDaemon(known) && <Silent />}
        {known || state === "loading" ? (
          <div class="grid">
            <div class="column">
              <Brokers />
              <Decisions />
              {!steers && <Changes />}
            </div>
            <div class="column">
              {!steers && <Heat />}
              <Moves />
              {steers ? <Changes /> : <Throttled />}
            </div>
          </div>
        ) : (
          <LastSeen />
        )}
      </main>
      <Side />
      <Dialog />
      <Find />
      {helping && <Help close={() => setHelping(false)} />}
      {message && (
        <div class={message.bad ? "toast bad" : "toast"} role={message.bad ? "alert" : "status"}>
          {message.text}
        </div>
      )}
    </>
  );
}

const root = document.getElementById("app");
if (root) render(<Page />, root);
followAddress();
begin();
