// The leader's events, as they come. They say that something has changed; what is, is asked.
import { V1, credentials } from "./api";
import { Store } from "./store";

const AGAIN_MS = 10_000;
export const live = new Store(false);

// Calls `changed` after every event, until the page is hidden; then `begin` must be called again.
let reading: AbortController | null = null;

export function stop(): void {
  reading?.abort();
  reading = null;
  live.set(false);
}

export async function begin(changed: () => void): Promise<void> {
  stop();
  const mine = (reading = new AbortController());
  while (!mine.signal.aborted) {
    try {
      await read(mine.signal, changed);
    } catch {
      // The broker went away, or refuses: the page asks at intervals, as without a stream.
    }
    if (mine.signal.aborted) return;
    live.set(false);
    await new Promise((resume) => setTimeout(resume, AGAIN_MS));
  }
}

async function read(signal: AbortSignal, changed: () => void): Promise<void> {
  const headers = { ...credentials(), Accept: "text/event-stream" };
  const answer = await fetch(`${V1}/events`, { headers, cache: "no-store", signal });
  if (!answer.ok || !answer.body) return;
  live.set(true);
  changed();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    if (lines.some((line) => line.startsWith("event: "))) changed();
  }
}
