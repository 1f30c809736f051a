// What archives have of lately, asked for again while it is shown.
import { useEffect, useState } from "preact/hooks";

const SOON_MS = 1_000; // until the archive has what has just ended
const AGAIN_MS = 60_000;

/** Asked for each minute, and when the key changes; nothing in the past, which does not change. */
export function useRecorded<T>(ask: () => Promise<T[]>, key: string, isNow: boolean): T[] {
  const [answer, setAnswer] = useState<T[]>([]);
  useEffect(() => {
    setAnswer((before) => (isNow ? before : []));
    if (!isNow) return;
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
  }, [key, isNow]);
  return answer;
}
