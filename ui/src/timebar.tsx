// The bar of time over the page: a slider for the moment that is shown, a strip on which to draw the
// time that the heat and the lists are of, and marks where something happened.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { duration, fullMoment, inZone, moment } from "./format";
import type { Lack, Marks } from "./past";
import { marksOf, pastNotes } from "./state";
import { use } from "./store";
import { Time, Told } from "./time";
import { DAY_MS, HOUR_MS, refusedTime, when } from "./when";

const SPANS: [number, string][] = [
  [HOUR_MS, "1 hour"],
  [6 * HOUR_MS, "6 hours"],
  [DAY_MS, "1 day"],
  [7 * DAY_MS, "7 days"],
  [30 * DAY_MS, "30 days"],
];
const STEPS = 1_000;
const MARKS_AGAIN_MS = 60_000;
const DRAWN_MIN = 0.004;
const WINDOW = 1 / 6;
const LACKS_TOLD = 5;
const NO_MARKS: Marks = { marks: [], lacks: [] };

interface Bar {
  begin: number;
  end: number;
}

// The bar ends now, or a bit after the time that is shown if that is earlier than its begin.
function barOf(span: number, at: number | null, now: number): Bar {
  const end = at !== null && at < now - span ? at + span / 4 : now;
  return { begin: end - span, end };
}

// Asked for when somebody comes near the bar: most visitors look at the present.
function useMarks({ begin, end }: Bar, near: boolean): Marks {
  const [marks, setMarks] = useState<Marks>(NO_MARKS);
  const asked = `${Math.floor(begin / MARKS_AGAIN_MS)} ${Math.floor(end / MARKS_AGAIN_MS)}`;
  useEffect(() => {
    let over = false;
    if (!near) return;
    void marksOf(Math.round(begin), Math.round(end)).then(([found]) => {
      if (!over) setMarks(found ?? NO_MARKS);
    });
    return () => {
      over = true;
    };
  }, [asked, near]);
  return marks;
}

const lacksAt = (lacks: Lack[], from: number, to: number): string[] =>
  lacks.filter(({ begin, end }) => begin <= from && to <= end).map(({ text }) => inZone(text));

// The times of which records are missing, cut where one begins or ends: each says all that is missing.
function segmentsOf({ begin: first, end: last }: Bar, lacks: Lack[]): Lack[] {
  const within = (ts: number): number => Math.min(last, Math.max(first, ts));
  const ends = [...new Set(lacks.flatMap(({ begin, end }) => [within(begin), within(end)]))].sort((a, b) => a - b);
  return ends.slice(1).flatMap((end, index) => {
    const begin = ends[index] ?? end;
    const texts = lacksAt(lacks, begin, end);
    const more = texts.length > LACKS_TOLD ? [`and ${texts.length - LACKS_TOLD} more`] : [];
    return texts.length ? [{ begin, end, text: [...texts.slice(0, LACKS_TOLD), ...more].join("\n") }] : [];
  });
}

function Strip(props: {
  bar: Bar;
  marks: Marks;
  drawn: [number, number] | null;
  choose: (from: number, to: number) => void;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [from, setFrom] = useState<number | null>(null);
  const [to, setTo] = useState(0);
  const part = (event: PointerEvent): number => {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - left) / Math.max(1, width)));
  };
  const place = (ts: number): number =>
    ((ts - props.bar.begin) / (props.bar.end - props.bar.begin)) * 100;
  const region =
    from === null ? props.drawn : ([Math.min(from, to) * 100, Math.max(from, to) * 100] as const);
  return (
    <div
      ref={box}
      class="strip"
      aria-hidden="true"
      title="Draw over a time to see it"
      onPointerDown={(event) => {
        box.current?.setPointerCapture(event.pointerId);
        setFrom(part(event));
        setTo(part(event));
      }}
      onPointerMove={(event) => from !== null && setTo(part(event))}
      onPointerUp={(event) => {
        if (from === null) return;
        const end = part(event);
        setFrom(null);
        props.choose(Math.min(from, end), Math.max(from, end));
      }}
    >
      {segmentsOf(props.bar, props.marks.lacks).map(({ begin, end, text }) => (
        <i
          key={`${begin} ${text}`}
          class="lack"
          title={text}
          style={{ left: `${place(begin)}%`, width: `${place(end) - place(begin)}%` }}
        />
      ))}
      {region && (
        <i class="drawn" style={{ left: `${region[0]}%`, width: `${region[1] - region[0]}%` }} />
      )}
      {props.marks.marks.map(({ ts, kind, text }) => (
        <i
          key={`${ts} ${text}`}
          class={`mark ${kind}`}
          title={`${moment(ts)}: ${text}`}
          style={{ left: `${place(ts)}%` }}
        />
      ))}
    </div>
  );
}

export function TimeBar(): JSX.Element {
  const shown = use(when);
  const [span, setSpan] = useState(HOUR_MS);
  const [now, setNow] = useState(Date.now());
  const [dragged, setDragged] = useState<number | null>(null);
  const [near, setNear] = useState(false);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 10_000);
    return () => clearInterval(timer);
  }, []);
  const bar = barOf(span, shown?.at ?? null, now);
  const marks = useMarks(bar, near || shown !== null);
  const length = bar.end - bar.begin;
  const at = dragged ?? shown?.at ?? bar.end;
  const part = (ts: number): number => ((ts - bar.begin) / length) * 100;
  const drawn: [number, number] | null = shown
    ? [Math.max(0, part(shown.at - shown.last)), part(shown.at)]
    : null;
  const show = (ts: number, last: number): void =>
    when.set(ts > now - length / STEPS / 2 ? null : { at: Math.round(ts), last: Math.round(last) });
  const lacking = lacksAt(marks.lacks, at, at).slice(0, LACKS_TOLD);
  const told = shown || dragged !== null ? `${moment(at, length <= DAY_MS)}, ${duration(now - at)} ago` : "now";
  return (
    <div
      class={shown ? "timebar past" : "timebar"}
      role="group"
      aria-label="Time that is shown"
      onPointerEnter={() => setNear(true)}
      onFocusIn={() => setNear(true)}
    >
      <label>
        <span>The last</span>
        <select
          aria-label="How much time the bar is of"
          value={span}
          onChange={(event) => setSpan(Number(event.currentTarget.value))}
        >
          {SPANS.map(([ms, text]) => (
            <option key={ms} value={ms}>
              {text}
            </option>
          ))}
        </select>
      </label>
      <div class="line">
        <Strip
          bar={bar}
          marks={marks}
          drawn={drawn}
          choose={(from, to) => {
            const until = bar.begin + to * length;
            const width = to - from < DRAWN_MIN ? (shown?.last ?? length * WINDOW) : (to - from) * length;
            show(until, width);
          }}
        />
        <input
          id="time"
          type="range"
          min={0}
          max={STEPS}
          step={1}
          value={Math.round((part(at) / 100) * STEPS)}
          aria-label="Time that is shown"
          aria-valuetext={[told, ...lacking].join("; ")}
          onInput={(event) =>
            setDragged(bar.begin + (Number(event.currentTarget.value) / STEPS) * length)
          }
          onChange={(event) => {
            setDragged(null);
            const ts = bar.begin + (Number(event.currentTarget.value) / STEPS) * length;
            show(ts, shown?.last ?? length * WINDOW);
          }}
        />
      </div>
      <output for="time" title={fullMoment(at)}>
        {told}
      </output>
      <button disabled={!shown} onClick={() => when.set(null)}>
        Now
      </button>
    </div>
  );
}

/** What is shown instead of the present, and what is missing of it. */
export function PastNote(): JSX.Element | null {
  const shown = use(when);
  const notes = use(pastNotes);
  const refused = use(refusedTime);
  if (!shown)
    return refused ? (
      <p class="past-note problem" role="status">
        The address asks for a time that cannot be shown: {refused}. This is now.
      </p>
    ) : null;
  return (
    <p class="past-note" role="status">
      <b>As of <Time at={shown.at} text={moment(shown.at, true)} /></b>: what the brokers recorded; the heat and the lists are of the{" "}
      {duration(shown.last)} before. Nothing can be changed here.
      {notes?.map((note) => (
        <span key={note} class="problem">
          {" "}
          <Told text={note} />.
        </span>
      ))}
      {notes === null && " Asking the archives…"}
    </p>
  );
}
