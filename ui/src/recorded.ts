// What archives have of lately, asked for again while it is shown.
import { useEffect, useState } from "preact/hooks";
import { archived } from "./state";
import { use } from "./store";

const SOON_MS = 1_000; // until the archive has what has just ended
const AGAIN_MS = 60_000;

/** Asked for each minute, and when the key changes; nothing without archives, and in the past, which
 * does not change. */
export function useRecorded<T>(ask: () => Promise<T[]>, key: string, isNow: boolean): T[] {
  const [answer, setAnswer] = useState<T[]>([]);
  const asks = use(archived) && isNow;
  useEffect(() => {
    setAnswer((before) => (asks ? before : []));
    if (!asks) return;
    let over = false;
    const look = async (): Promise<void> => {
      const rows = await ask();
      if (!over) setAnswer(rows);
    };
    const soon = window.setTimeout(look, SOON_MS);
    const again = window.setInterval(look, AGAIN_MS);
    return () => {
      over = true;
      clearTimeout(soon);
      clearInterval(again);
    };
  }, [key, asks]);
  return answer;
}
