// Plans towards goals: what was promised, what has come of it, and what they wait for.
import type { JSX } from "preact";
import { approveGoal, stopGoal } from "./actions";
import { plural, utc } from "./format";
import type { GoalShown } from "../generated/openapi";
import { goals } from "./state";
import { use } from "./store";
import { Time, Told } from "./time";

export function goalText({ goal }: GoalShown): string {
  switch (goal.kind) {
    case "even":
      return `all within ${goal.withinPoints} points of the mean`;
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

// The last look at a goal has some figures of before its last moves.
function settled({ afterwards: after, state }: GoalShown): string {
  if (!after) return "";
  const not = after.reached === false ? `, not reached${state === "ended" ? "" : ", so it goes on"}` : "";
  return `, ${points(after.farthest)} at ${utc(after.atMs)}${not}`;
}

function progress(goal: GoalShown): string {
  const { state, promise, progress: done, waits, ended } = goal;
  const last = promise.curve.at(-1);
  const before = promise.curve[0];
  const planned = `${plural(last?.moves ?? 0, "move")}, ${points(before?.farthest)} → ${points(last?.farthest)}`;
  const { later } = promise;
  if (state === "proposed") return `proposed: ${planned}${later ? `; ${later.code}: ${later.text}` : ""}`;
  const so = `${plural(done.arrived, "move")} made (${last?.moves ?? 0} promised), now ${points(done.farthest)} (${points(last?.farthest)} promised)${settled(goal)}`;
  const why = ended ?? waits;
  return why ? `${so}; ${why.code}${why.text ? `: ${why.text}` : ""}` : so;
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
      {goal.replay && goal.state !== "ended" && <span class="small">{goal.replay.text}</span>}
      {goal.limits?.untilMs && goal.state !== "ended" && (
        <span class="small">by <Time at={goal.limits.untilMs} /></span>
      )}
      {goal.state === "approved" && (goal.limits?.fromMs ?? 0) > (goal.approvedMs ?? 0) && (
        <span class="small">from <Time at={goal.limits?.fromMs ?? 0} /></span>
      )}
      {goal.endedMs && <span class="small">ended <Time at={goal.endedMs} /></span>}
      {goal.staysCordoned && <span class="small">{goal.staysCordoned} stays cordoned</span>}
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
