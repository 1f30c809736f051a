// The queue of moves, how long clients waited for each, and for how long nobody served the bundle.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { cancelMove, pauseMoves, resumeMoves } from "./actions";
import { useNames } from "./decisions";
import { duration, plural, utc } from "./format";
import type { InterruptionsShown, Move } from "../generated/openapi";
import { Goals } from "./goals";
import { cluster, goals, moves, panel, recordedMoves, todays } from "./state";
import { useRecorded } from "./recorded";
import { Store, use } from "./store";
import { counted, returns } from "./returns";
import { Section } from "./section";
import { clients, clientsMissing, clientsUnknown, shortBundle } from "./sentences";
import { Time, Told } from "./time";
import { when } from "./when";

// Moves of this term; where they are few, those that are recorded of earlier ones, too.
export const known = new Store<Move[]>([]);

const FEW = 10;

interface Figures {
  typical: number;
  longest: number;
}

const of = (move: Move, name: "pauseMs" | "clientsWaitedMs" | "clientsWaitedMeanMs"): number[] => {
  const value = move.outcome?.[name];
  return typeof value === "number" ? [value] : [];
};

function figuresOf(ofEach: number[], longest: number[]): Figures | null {
  const sorted = [...ofEach].sort((a, b) => a - b);
  if (!sorted.length) return null;
  const typical = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
  return { typical, longest: Math.max(...longest) };
}

function pauses(list: Move[]): Figures | null {
  const all = list.flatMap((move) => of(move, "pauseMs"));
  return figuresOf(all, all);
}

/** How long clients waited until they were served again. */
function waits(list: Move[]): Figures | null {
  const longest = list.flatMap((move) => of(move, "clientsWaitedMs"));
  const mean = list.flatMap((move) =>
    [...of(move, "clientsWaitedMeanMs"), ...of(move, "clientsWaitedMs")].slice(0, 1),
  );
  return figuresOf(mean, longest);
}

const figuresText = ({ typical, longest }: Figures): string =>
  `${duration(typical)} typically, ${duration(longest)} at most`;

export const notBack = (move: Move): boolean => move.state === "done" && clientsMissing(move.outcome);

/** What moves like these did to clients; empty if nobody has measured it. */
export function priceText(list: Move[]): string[] {
  const [waited, paused] = [waits(list), pauses(list)];
  return [
    waited ? `clients waited ${figuresText(waited)}` : "",
    paused ? `bundles unserved for ${figuresText(paused)}` : "",
  ].filter(Boolean);
}

function result(move: Move): string {
  if (move.state === "queued") return `waits for ${duration(Date.now() - move.createdAt)}`;
  if (move.state === "running") return "under way";
  if (move.state !== "done") return move.outcome?.text ?? move.state;
  const pause = move.outcome?.pauseMs;
  const parts = [
    clients(move.outcome),
    typeof pause === "number" ? `unserved for ${pause.toFixed(pause < 10 ? 1 : 0)} ms` : "moved",
  ];
  return parts.filter(Boolean).join(", ");
}

function lostText({ lost, lostBrokers }: InterruptionsShown): string {
  if (lost > lostBrokers && lostBrokers) return `${lost} losses of ${plural(lostBrokers, "broker")}`;
  return lost ? `${plural(lost, "broker")} lost` : "";
}

function between(leastMs: number, mostMs: number): string {
  const [least, most] = [duration(leastMs), duration(mostMs)];
  return least === most ? least : `${least} to ${most}`;
}

function waitsText(today: InterruptionsShown): string {
  const until = today.byLeaders ? "" : " until attached again";
  const least = today.unheardMs ? " at least" : "";
  const longest = between(today.longestMs, today.longestMostMs);
  return `longest ${longest}${until}, in all ${between(today.sumMs, today.sumMostMs)}${least}`;
}

// In the words of `loadmanager admin status`.
export function todayText(today: InterruptionsShown): string {
  const missing = today.clients - today.back - today.attached;
  const parts = [
    plural(today.moves, "move"),
    today.failed ? `${plural(today.failed, "move")} failed` : "",
    lostText(today),
    today.stood ? `${plural(today.stood, "standstill")} of brokers` : "",
    `${plural(today.clients, "interruption")} of clients${today.byLeaders ? ", as leaders counted" : ""}`,
    today.sumMs ? waitsText(today) : "",
    today.unheardMs
      ? `up to ${duration(today.unheardMs)} more before a broker counted as lost`
      : "",
    today.attached ? `${today.attached} of them attached again, not sure to stay` : "",
    missing ? `${missing} of them not seen to be back` : "",
    today.unsure ? `${today.unsure} unsure: nobody knows whether these were still there` : "",
    today.lacking?.length // a leader of before has none
      ? `NOT ALL IS RECORDED: the archives of ${today.lacking.join(", ")} lack records of this time`
      : "",
  ];
  return `Today since ${utc(today.since)}: ${parts.filter(Boolean).join(", ")}.`;
}

function Row({ move, takenUp }: { move: Move; takenUp: boolean }): JSX.Element {
  const name = useNames();
  const missing = notBack(move);
  const unknown = move.state === "done" && clientsUnknown(move.outcome);
  const state = missing
    ? "done, but not all clients came back"
    : unknown
      ? "done; whether its clients came back is not known"
      : move.state;
  return (
    <li class={`move-row ${move.state} ${missing || unknown ? "missing" : ""}`}>
      <span class="dot" title={state} aria-label={state} role="img" />
      <button class="link" onClick={() => panel.set({ kind: "bundle", name: move.bundle })}>
        {shortBundle(move.bundle)}
      </button>
      <span class="way">
        {name(move.source)} → {move.destination ? name(move.destination) : "to be placed"}
      </span>
      <span class="result">
        <Told text={result(move)} />
      </span>
      <span class="small">
        {move.author === "cycle" ? <Told text={move.reason} /> : move.author}
        {move.endedAt ? <>, <Time at={move.endedAt} /></> : ""}
        {takenUp && ", by an earlier leader; its clients are counted by this one"}
      </span>
      {move.state === "queued" && (
        <button class="quiet" onClick={() => cancelMove(move)}>
          Cancel
        </button>
      )}
    </li>
  );
}

export function Moves(): JSX.Element {
  const queue = use(moves);
  const ordered = use(goals);
  const then = use(when);
  const [choice, setChoice] = useState("all");
  const ofTerm = queue?.moves ?? [];
  const wanted = !then && ofTerm.length < FEW;
  const earlier = useRecorded(() => recordedMoves(), String(ofTerm[0]?.id), wanted);
  const ids = new Set(ofTerm.map(({ id }) => id));
  const back = use(returns);
  const list = [...ofTerm, ...earlier.filter(({ id }) => !ids.has(id))].map((move) => ({
    ...move,
    outcome: counted(move.id, move.outcome),
  }));
  useEffect(() => known.set(list), [queue, earlier, back]);
  const missing = list.filter(notBack).length;
  const shown = choice === "missing" ? list.filter(notBack) : list;
  const absent = use(cluster)?.absent ?? [];
  const losses = absent.map(({ broker, leftAt, clientsBack }) => `${broker} ${leftAt} ${clientsBack}`);
  const ended = ofTerm.flatMap(({ id, endedAt, outcome }) => (endedAt ? [`${id} ${outcome?.clientsBack}`] : []));
  const [today] = useRecorded(todays, [...ended, ...losses].join(), true);
  useEffect(() => returns.set(new Map((today?.returned ?? []).map((it) => [it.move, it]))), [today]);
  const interrupted =
    !then && today && today.moves + today.failed + today.lost > 0 ? todayText(today) : "";
  const about = queue
    ? [
        queue.running ? plural(queue.running, "move") + " under way" : "",
        queue.waiting ? `${queue.waiting} wait` : "",
        ...priceText(list),
      ]
        .filter(Boolean)
        .join(" · ")
    : "";
  const empty = !queue
    ? "Waiting for the first answer."
    : list.length === 0 && ordered.length === 0
      ? then
        ? "No move ended in this time."
        : "No bundle has moved in this leader's term."
      : null;
  return (
    <Section
      id="moves"
      title="Moves"
      about={about}
      tools={
        <>
          {(missing > 0 || choice !== "all") && (
            <select
              aria-label="Which moves"
              value={choice}
              onChange={(event) => setChoice(event.currentTarget.value)}
            >
              <option value="all">all</option>
              <option value="missing">clients not back ({missing})</option>
            </select>
          )}
          {then ? null : queue?.paused ? (
            <button onClick={resumeMoves}>Resume</button>
          ) : (
            <button onClick={pauseMoves}>Pause…</button>
          )}
        </>
      }
      empty={empty && [empty, interrupted].filter(Boolean).join(" ")}
    >
      <div class="scroll" tabIndex={0} role="group" aria-label="List of moves">
        <Goals />
        {interrupted && <p class="small line">
            <Told text={interrupted} />
          </p>}
        <ul class="list">
          {shown.map((move) => (
            <Row key={move.id} move={move} takenUp={queue?.takenUp?.includes(move.id) ?? false} />
          ))}
        </ul>
      </div>
    </Section>
  );
}
