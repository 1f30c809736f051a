// The queue of moves, and how long each bundle paused.
import type { JSX } from "preact";
import { cancelMove, pauseMoves, resumeMoves } from "./actions";
import { useNames } from "./decisions";
import { clock, duration, plural } from "./format";
import type { Move } from "../generated/openapi";
import { Goals } from "./goals";
import { withWaiting } from "./past";
import type { Today } from "./past";
import { cluster, goals, moves, panel, todays } from "./state";
import { useRecorded } from "./recorded";
import { use } from "./store";
import { Section } from "./section";
import { clients, clientsMissing, clientsUnknown, shortBundle } from "./sentences";
import { when } from "./when";

export function pauses(list: Move[]): { median: number; longest: number } | null {
  const known = list
    .map((move) => move.outcome?.pauseMs)
    .filter((pause): pause is number => typeof pause === "number")
    .sort((a, b) => a - b);
  if (!known.length) return null;
  return { median: known[Math.floor((known.length - 1) / 2)] ?? 0, longest: known.at(-1) ?? 0 };
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

function lostText({ lost, losing }: Today): string {
  if (lost > losing.size && losing.size) return `${lost} losses of ${plural(losing.size, "broker")}`;
  return lost ? `${plural(lost, "broker")} lost` : "";
}

// In the words of `loadmanager admin status`, which counts clients by their own records, if it can.
export function todayText(today: Today): string {
  const missing = today.clients - today.back;
  const parts = [
    plural(today.moves, "move"),
    today.failed ? `${plural(today.failed, "move")} failed` : "",
    lostText(today),
    today.stood ? `${plural(today.stood, "standstill")} of brokers` : "",
    `${plural(today.clients, "interruption")} of clients, as leaders counted`,
    today.sumMs ? `longest ${duration(today.longestMs)}, in all ${duration(today.sumMs)}` : "",
    today.unheardMs
      ? `up to ${duration(today.unheardMs)} more before a broker counted as lost`
      : "",
    missing ? `${missing} of them not seen to be back` : "",
  ];
  return `Today since ${clock(today.since)}: ${parts.filter(Boolean).join(", ")}.`;
}

function Row({ move }: { move: Move }): JSX.Element {
  const name = useNames();
  const missing = move.state === "done" && clientsMissing(move.outcome);
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
      <span class="result">{result(move)}</span>
      <span class="small">
        {move.author === "cycle" ? move.reason : move.author}
        {move.endedAt ? `, ${clock(move.endedAt)}` : ""}
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
  const list = queue?.moves ?? [];
  const figures = pauses(list);
  const absent = use(cluster)?.absent ?? [];
  const losses = absent.map(({ broker, leftAt }) => `${broker} ${leftAt}`);
  const ended = list.find(({ endedAt }) => endedAt)?.id ?? "";
  const [today] = useRecorded(todays, [ended, ...losses].join(), !then);
  const interrupted =
    today && today.moves + today.failed + today.lost > 0 ? todayText(withWaiting(today, absent)) : "";
  const about = queue
    ? [
        queue.running ? plural(queue.running, "move") + " under way" : "",
        queue.waiting ? `${queue.waiting} wait` : "",
        figures
          ? `pause ${duration(figures.median)} typical, ${duration(figures.longest)} longest`
          : "",
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
        then ? null : queue?.paused ? (
          <button onClick={resumeMoves}>Resume</button>
        ) : (
          <button onClick={pauseMoves}>Pause…</button>
        )
      }
      empty={empty && [empty, interrupted].filter(Boolean).join(" ")}
    >
      <div class="scroll" tabIndex={0} role="region" aria-label="Moves">
        <Goals />
        {interrupted && <p class="small line">{interrupted}</p>}
        <ul class="list">
          {list.map((move) => (
            <Row key={move.id} move={move} />
          ))}
        </ul>
      </div>
    </Section>
  );
}
