// Light and dark: as the system wants, or as the visitor chose.
import { Store } from "./store";

const KEY = "loadmanager-theme";
export type Theme = "auto" | "light" | "dark";
const wanted = matchMedia("(prefers-color-scheme: dark)");

export const theme = new Store<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "auto");
export const dark = new Store(false);

function apply(): void {
  const chosen = theme.value;
  document.documentElement.style.colorScheme = chosen === "auto" ? "light dark" : chosen;
  dark.set(chosen === "auto" ? wanted.matches : chosen === "dark");
}

export function switchTheme(): void {
  const next: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
  theme.set(next[theme.value]);
  localStorage.setItem(KEY, theme.value);
}

wanted.addEventListener("change", apply);
theme.follow(apply);
apply();
