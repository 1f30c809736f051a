// A list of which only the visible rows exist. One tab stop; arrow keys move the active row.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const SPARE = 6;

interface Props<T> {
  label: string;
  id: string;
  rows: readonly T[];
  height: number;
  rowKey: (row: T) => string;
  render: (row: T) => ComponentChildren;
  open: (row: T) => void;
  behind?: ComponentChildren;
}

export function Rows<T>(props: Props<T>): JSX.Element {
  const { rows, height } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, seen: 600 });
  const [active, setActive] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = (): void => setView({ top: element.scrollTop, seen: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  useEffect(() => {
    if (active >= rows.length) setActive(Math.max(0, rows.length - 1));
  }, [rows.length, active]);

  const go = (to: number): void => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setActive(next);
    const element = box.current;
    if (!element) return;
    if (next * height < element.scrollTop) element.scrollTop = next * height;
    const below = (next + 1) * height - element.clientHeight;
    if (below > element.scrollTop) element.scrollTop = below;
  };
  const page = Math.max(1, Math.floor(view.seen / height) - 1);
  const steps: Record<string, number> = {
    ArrowDown: active + 1,
    ArrowUp: active - 1,
    PageDown: active + page,
    PageUp: active - page,
    Home: 0,
    End: rows.length - 1,
  };
  const onKey = (event: KeyboardEvent): void => {
    const row = rows[active];
    if (event.key in steps) go(steps[event.key] ?? 0);
    else if ((event.key === "Enter" || event.key === " ") && row !== undefined) props.open(row);
    else return;
    event.preventDefault();
  };
  const first = Math.max(0, Math.floor(view.top / height) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.seen) / height) + SPARE);
  return (
    <div
      class="rows"
      ref={box}
      role="listbox"
      id={props.id}
      aria-label={props.label}
      tabIndex={0}
      onKeyDown={onKey}
      aria-activedescendant={rows.length ? `${props.id}-${active}` : undefined}
    >
      <div class="rows-all" style={{ height: `${rows.length * height}px` }}>
        {props.behind}
        {rows.slice(first, last).map((row, at) => {
          const index = first + at;
          return (
            <div
              key={props.rowKey(row)}
              id={`${props.id}-${index}`}
              class={index === active ? "row active" : "row"}
              role="option"
              aria-selected={index === active}
              aria-setsize={rows.length}
              aria-posinset={index + 1}
              style={{ transform: `translateY(${index * height}px)`, height: `${height}px` }}
              onClick={() => {
                setActive(index);
                props.open(row);
              }}
            >
              {props.render(row)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
