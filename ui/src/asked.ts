import { useEffect, useState } from "preact/hooks";
import { Failure } from "./api";

export const AGAIN_MS = 10_000;

// Asks the archives, and again and again while the present is shown.
export function useAsked<T>(
  ask: () => Promise<T>,
  key: string,
  again: boolean,
  afterMs = AGAIN_MS,
): { answer: T | null; problem: string } {
  const [state, setState] = useState<{ answer: T | null; problem: string }>({ answer: null, problem: "" });
  useEffect(() => {
    let timer = 0;
    let over = false;
    const look = async (): Promise<void> => {
      try {
        const answer = await ask();
        if (!over) setState({ answer, problem: "" });
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (!over) setState((before) => ({ ...before, problem: error.message }));
      }
      if (!over && again) timer = window.setTimeout(look, afterMs);
    };
    setState({ answer: null, problem: "" });
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [key, again]);
  return state;
}
