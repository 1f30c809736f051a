// Plans towards goals: what was promised, what has come of it, and what they wait for.
import type { JSX } from "preact";
import { approveGoal, boundsOf, stopGoal } from "./actions";
import { plural, utc } from "./format";
import type { GoalShown } from "../generated/openapi";
import { goals } from "./state";
import { use } from "./store";
import { Time, Told } from "./time";

export function goalText({ goal }: GoalShown): string {
  switch (goal.kind) {
    case "even":
      return `all within ${goal.withinPoints} ${goal.withinPoints === 1 ? "point" : "points"} of the mean`;
    case "filled":
      return `${goal.broker} filled`;
    case "emptied":
      return `${goal.broker} emptied`;
    case "spare":
      return "any one broker may be lost";
    case "apart":
      return `${goal.names.join(", ")} apart`;
  }
}

const points = (usage: number | null | undefined): string =>
  typeof usage === "number" ? `${(100 * usage).toFixed(1)} points` : "–";

const settledPoints = ({ farthest, atMs }: NonNullable<GoalShown["afterwards"]>): string =>
  `${points(farthest)} at ${utc(atMs)}`;

function noLonger(goal: GoalShown["goal"], { farthest, atMs }: NonNullable<GoalShown["afterwards"]>): string {
  const isOfLoad = (goal.kind === "even" || goal.kind === "filled") && typeof farthest === "number";
  return `no longer so at ${utc(atMs)}${isOfLoad ? `, when a broker was ${points(farthest)} from the mean` : ""}`;
}

// Why it has ended or waits; the last look at it has some figures of before its last moves, so that
// another one, some minutes later, may say otherwise. In the words of `loadmanager admin goals`.
function whyText({ goal, ended, waits, afterwards: after, endedMs }: GoalShown): string {
  const { code, text = "" } = ended ?? waits ?? {};
  const why = code ? `${code}${text ? `: ${text}` : ""}` : "";
  if (after?.reached !== false) return why;
  if (typeof endedMs !== "number") {
    const on = `goes on: it had ended as reached; ${noLonger(goal, after)}`;
    return [on, why].filter(Boolean).join("; ");
  }
  return code === "Reached" && after.atMs >= endedMs ? `${why}; ${noLonger(goal, after)}` : why;
}

function progress(goal: GoalShown): string {
  const { state, promise, progress: done, afterwards: after } = goal;
  const last = promise.curve.at(-1);
  const before = promise.curve[0];
  const planned = `${plural(last?.moves ?? 0, "move")}, ${points(before?.farthest)} → ${points(last?.farthest)}`;
  const { later } = promise;
  if (state === "proposed") return `proposed: ${planned}${later ? `; ${later.code}: ${later.text}` : ""}`;
  const since = typeof goal.endedMs === "number" && after && after.atMs >= goal.endedMs;
  const settled = since && after.reached !== false ? `, ${settledPoints(after)}` : "";
  const atWork = state === "approved" && ["OwnMoves", "Clients", "Reports"].includes(goal.waits?.code ?? "");
  const when = atWork ? "now" : "when last looked at";
  const so = `${plural(done.arrived, "move")} made (${last?.moves ?? 0} promised), ${when} ${points(done.farthest)} (${points(last?.farthest)} promised)${settled}`;
  return [so, whyText(goal)].filter(Boolean).join("; ");
}

function Row({ goal }: { goal: GoalShown }): JSX.Element {
  return (
    <li class={`goal ${goal.state}`}>
      <b>
        Goal {goal.id}: {goalText(goal)}
      </b>
      <span class="result">
        <Told text={progress(goal)} />
      </span>
      {goal.duration && (
        <span class="small">
          <Told text={goal.duration.text} />
        </span>
      )}
      {goal.replay?.date && goal.state !== "ended" && <span class="small">{goal.replay.text}</span>}
      {goal.limits?.untilMs && goal.state !== "ended" && (
        <span class="small">by <Time at={goal.limits.untilMs} /></span>
      )}
      {goal.state !== "ended" &&
        boundsOf(goal).map((text) => (
          <span class="small" key={text}>
            <Told text={text} />
          </span>
        ))}
      {goal.endedMs && <span class="small">ended <Time at={goal.endedMs} /></span>}
      {goal.staysCordoned && <span class="small">{goal.staysCordoned} stays cordoned</span>}
      {goal.lapsesMs && (
        <span class="small">may be approved until <Time at={goal.lapsesMs} /></span>
      )}
      {goal.state === "proposed" && (
        <button class="quiet" onClick={() => approveGoal(goal)}>
          Approve…
        </button>
      )}
      {goal.state !== "ended" && (
        <button class="quiet" onClick={() => stopGoal(goal)}>
          Stop…
        </button>
      )}
    </li>
  );
}

// Open goals, and the one that ended last.
export function Goals(): JSX.Element | null {
  const all = use(goals);
  const open = all.filter((goal) => goal.state !== "ended");
  const ended = all.filter((goal) => goal.state === "ended").slice(0, 1);
  const shown = [...open, ...ended];
  if (!shown.length) return null;
  return (
    <ul class="list goals">
      {shown.map((goal) => (
        <Row key={goal.id} goal={goal} />
      ))}
    </ul>
  );
}
