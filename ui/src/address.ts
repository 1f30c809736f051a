// The address of what is shown, so that it can be gone back to, reloaded and shared.
import { panel } from "./state";
import type { Panel } from "./state";

const ADDRESS = /^#(bundle|broker)=(.+)$/;

export function addressOf(shown: Panel): string {
  return shown ? `#${shown.kind}=${encodeURI(shown.name).replace(/#/g, "%23")}` : "";
}

function shownAt(address: string): Panel {
  const [, kind, name] = ADDRESS.exec(address) ?? [];
  if ((kind !== "bundle" && kind !== "broker") || name === undefined) return null;
  try {
    return { kind, name: decodeURIComponent(name) };
  } catch {
    return null; // no address that this page made
  }
}

export function followAddress(): void {
  const read = (): void => panel.set(shownAt(location.hash));
  panel.follow(() => {
    const address = addressOf(panel.value);
    if (address !== addressOf(shownAt(location.hash)))
      history.pushState(null, "", address || location.pathname + location.search);
  });
  window.addEventListener("popstate", read);
  read();
}
