// What had the focus gets it back when a panel or a dialog closes.

interface Opener {
  element: HTMLElement;
  within: string; // the part of the page that it stands in
}

const CAN = "button, a[href], input, select, summary, [tabindex='0']";
let onPage: Opener | null = null;
let inPanel: HTMLElement | null = null;

function remember(target: EventTarget | null): void {
  if (!(target instanceof Element) || target.closest("dialog")) return;
  const element = target.closest<HTMLElement>(CAN);
  if (target.closest("aside")) inPanel = element;
  else onPage = element && { element, within: target.closest("section, header")?.id ?? "" };
}

// Some browsers give no focus to a button that is clicked.
document.addEventListener("pointerdown", ({ target }) => remember(target), true);
document.addEventListener("focusin", ({ target }) => remember(target));

const isThere = (element: HTMLElement | null | undefined): element is HTMLElement =>
  !!element?.isConnected && element.checkVisibility();

/** To what opened it; where that is gone, to what is nearest and still there. */
export function giveBackFocus(): void {
  // Once what closes is gone: under a dialog nothing can have the focus.
  queueMicrotask(() => {
    if (document.activeElement && document.activeElement !== document.body) return;
    const panel = document.querySelector<HTMLElement>("aside");
    const part = document.getElementById(onPage?.within ?? "");
    const all = panel
      ? [inPanel, panel]
      : [onPage?.element, part?.querySelector<HTMLElement>(".rows, .scroll, button")];
    const any = document.querySelector<HTMLElement>(".top button");
    [...all, any].find(isThere)?.focus({ preventScroll: true });
  });
}
