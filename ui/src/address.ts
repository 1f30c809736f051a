// The address of what is shown, so that it can be gone back to, reloaded and shared.
import { panel } from "./state";
import type { Panel } from "./state";
import { queryOf, refusalOf, refusedTime, when, whenIn } from "./when";

const ADDRESS = /^#(bundle|broker|client)=(.+)$/;

export function addressOf(shown: Panel): string {
  return shown ? `#${shown.kind}=${encodeURI(shown.name).replace(/#/g, "%23")}` : "";
}

function panelAt(address: string): Panel {
  const [, kind, name] = ADDRESS.exec(address) ?? [];
  if ((kind !== "bundle" && kind !== "broker" && kind !== "client") || name === undefined) return null;
  try {
    return { kind, name: decodeURIComponent(name) };
  } catch {
    return null; // no address that this page made
  }
}

export function followAddress(): void {
  let reading = false; // what is set meanwhile is half of what the address says
  const read = (): void => {
    reading = true;
    const refusal = refusalOf(location.search);
    if (refusal) history.replaceState(null, "", location.pathname + location.hash);
    panel.set(panelAt(location.hash));
    if (queryOf(when.value) !== queryOf(whenIn(location.search))) when.set(whenIn(location.search));
    refusedTime.set(refusal);
    reading = false;
  };
  const write = (): void => {
    if (reading) return;
    const query = queryOf(when.value);
    const before = queryOf(whenIn(location.search)) + addressOf(panelAt(location.hash));
    if (query + addressOf(panel.value) !== before)
      history.pushState(null, "", location.pathname + query + addressOf(panel.value));
  };
  panel.follow(write);
  when.follow(write);
  when.follow(() => refusedTime.set(""));
  window.addEventListener("popstate", read);
  read();
}
