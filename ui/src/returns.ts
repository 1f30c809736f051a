// The clients of moves that were back later than the leader waited for them, by their own records, as
// `loadmanager admin interrupted` has it.
import type { Move, MoveReturn } from "../generated/openapi";
import { Store } from "./store";

export const returns = new Store<Map<string, MoveReturn>>(new Map());

export type Counted = NonNullable<Move["outcome"]> & {
  lastBackMs?: number; // when the last client was back, by its own records
};

/** The outcome of a move with the clients that are back by now. */
export function counted(id: string | null | undefined, outcome: Move["outcome"]): Counted | null {
  const back = id ? returns.value.get(id) : undefined;
  if (!outcome || !back || back.back <= (outcome.clientsBack ?? 0)) return outcome ?? null;
  const clientsBack = Math.min(back.back, outcome.clientsClosed ?? back.back);
  return { ...outcome, clientsBack, lastBackMs: back.longestMs };
}
