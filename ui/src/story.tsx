// One bundle or one broker: what it is now, how it came to be so, and what may be done.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  cordonBroker,
  moveBundle,
  pinBundle,
  splitBundle,
  uncordonBroker,
  unloadBundle,
  unpinBundle,
} from "./actions";
import { Failure, V1, get } from "./api";
import { Chips, heatClass, isStale, modelledText, resourcesOf, runs } from "./brokers";
import { Entries, useEarlier } from "./decisions";
import { giveBackFocus } from "./focus";
import { bytes, count, duration, messages, percent, plural, shortRange, split } from "./format";
import type { Broker } from "./state";
import type {
  BundleShown as Bundle,
  BundleStory as Story,
  DecisionShown as Decision,
  LossShown as Loss,
} from "../generated/openapi";
import { isPartOf, ordered, shortBundle } from "./sentences";
import { BrokerAt, BundleAt, OfClient } from "./then";
import { cluster, copy, decisions, isDaemon, pageOf, panel } from "./state";
import type { Panel } from "./state";
import { returns } from "./returns";
import { use } from "./store";
import { Time, Told } from "./time";
import { TrendOfBroker, TrendOfBundle } from "./trend";
import { when } from "./when";

const AGAIN_MS = 3_000;
const LOSS_AGAIN_MS = 60_000; // the leader tries out where each bundle would go
const TAKERS = 3;
export const BUNDLES = 50;
const BUNDLES_MAX = 1_000;

// Fetches again and again while the panel is open.
function useAgain<T>(path: string, again = AGAIN_MS): { document: T | null; problem: string } {
  const [state, setState] = useState<{ path: string; document: T | null; problem: string }>({
    path,
    document: null,
    problem: "",
  });
  useEffect(() => {
    let timer = 0;
    let over = false;
    const ask = async (): Promise<void> => {
      try {
        const document = await get<T>(path);
        if (!over) setState({ path, document, problem: "" });
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (!over) setState((before) => ({ ...before, path, problem: error.message }));
      }
      if (!over) timer = window.setTimeout(ask, again);
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [path, again]);
  return state.path === path ? state : { document: null, problem: "" };
}

function Earlier({ name }: { name: string }): JSX.Element {
  const { decisions: list, recordedSince } = useEarlier(name, true);
  return (
    <>
      {list.length > 0 && <h3>In earlier terms</h3>}
      {list.length > 0 && <Entries list={list} />}
      <RecordedSince since={recordedSince} />
    </>
  );
}

/** That there are more, and a button that shows them; the number alone where none can be shown. */
export function More(props: { of: number; show: (() => void) | null }): JSX.Element | null {
  if (props.of <= 0) return null;
  const text = `and ${count(props.of)} more`;
  return (
    <p class="more">
      {props.show ? <button onClick={props.show}>{text}: show them</button> : text}
    </p>
  );
}

export function RecordedSince({ since }: { since: string }): JSX.Element | null {
  return since ? <p class="small">
      <Told text={since} />
    </p> : null;
}

export function Side(): JSX.Element | null {
  const shown = use(panel);
  const then = use(when);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!shown) return;
    box.current?.focus();
    return giveBackFocus;
  }, [shown]);
  if (!shown) return null;
  return (
    <aside ref={box} tabIndex={-1} aria-label={`${shown.kind} ${shown.name}`}>
      <button class="close" aria-label="Close" onClick={() => panel.set(null)}>
        ×
      </button>
      {navigator.clipboard && (
        <button class="copy" onClick={() => void copy(shown.name)}>
          Copy name
        </button>
      )}
      <Shown key={shown.name} of={shown} at={then?.at ?? null} />
    </aside>
  );
}

function Shown({ of: { kind, name }, at }: { of: NonNullable<Panel>; at: number | null }): JSX.Element {
  if (kind === "client") return <OfClient name={name} at={at} />;
  if (at !== null)
    return kind === "bundle" ? <BundleAt name={name} at={at} /> : <BrokerAt name={name} at={at} />;
  return kind === "bundle" ? <OfBundle name={name} /> : <OfBroker name={name} />;
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl>
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export const brokerLink = (broker: string): JSX.Element => (
  <button class="link" onClick={() => panel.set({ kind: "broker", name: broker })}>
    {broker}
  </button>
);

export const bundleLink = (bundle: string): JSX.Element => (
  <button class="link" onClick={() => panel.set({ kind: "bundle", name: bundle })}>
    {shortBundle(bundle)}
  </button>
);

function owned(story: Story): ComponentChildren {
  if (!story.owner) return "nobody: the next lookup places it";
  const since = story.ownedSince
    ? ` ${story.ownedSinceExact ? "for" : "for at least"} ${duration(story.at - story.ownedSince)}`
    : "";
  return (
    <>
      {brokerLink(story.owner)}
      {since}
      {story.movingTo ? `, on its way to ${story.movingTo}` : ""}
    </>
  );
}

// In the extensible manager, a broker publishes only its busiest bundles.
function notReported(owner: string | null): string {
  if (!owner) return "none: nobody serves it";
  return cluster.value?.manager === "extensible"
    ? "not among the busiest of its broker"
    : "not reported yet";
}

function traffic(story: Story): [string, ComponentChildren][] {
  const { msgRateIn, msgRateOut, throughput, topics, producers, consumers } = story;
  if (msgRateIn === null || msgRateOut === null)
    return [["Traffic", notReported(story.owner)]];
  return [
    ["Messages", `${messages(msgRateIn)} in, ${messages(msgRateOut)} out /s`],
    ["Bytes", bytes(throughput ?? 0)],
    ["Topics", count(topics ?? 0)],
    ["Clients", `${plural(producers ?? 0, "producer")}, ${plural(consumers ?? 0, "consumer")}`],
  ];
}

function OfBundle({ name }: { name: string }): JSX.Element {
  const { document: story, problem } = useAgain<Story>(`${V1}/bundles/${name}?limit=50`);
  const known = use(decisions) ?? [];
  use(returns);
  const history = story ? withAncestors(story, known) : [];
  const { namespace, range } = split(name);
  return (
    <>
      <p class="kind">Bundle of {namespace}</p>
      <h2 title={name}>{shortRange(range)}</h2>
      <p class="small mono">{range}</p>
      {problem && <p class="problem">{problem}.</p>}
      {!story && !problem && <p class="empty">Reading its story.</p>}
      {story && story.replacedBy.length > 0 && (
        <>
          <p>
            It is no bundle any more: it was{" "}
            {story.replacedBy.some((other) => isPartOf(name, other)) ? "merged" : "split"} into
          </p>
          <ul class="list">
            {story.replacedBy.map((other) => (
              <li key={other}>{bundleLink(other)}</li>
            ))}
          </ul>
          <TrendOfBundle bundle={name} />
        </>
      )}
      {story && story.replacedBy.length === 0 && (
        <>
          <Facts
            facts={[
              ["Owner", owned(story)],
              ...traffic(story),
              ...pinned(story),
            ]}
          />
          <TrendOfBundle bundle={name} />
          <div class="actions">
            <button class="primary" onClick={() => moveBundle(story)}>
              Move…
            </button>
            {story.pin ? (
              <button onClick={() => unpinBundle(story)}>Unpin…</button>
            ) : (
              <button onClick={() => pinBundle(story)}>Pin…</button>
            )}
            {!isDaemon(cluster.value) && (
              <>
                <button onClick={() => splitBundle(story)}>Split…</button>
                <button onClick={() => unloadBundle(story)}>Unload…</button>
              </>
            )}
          </div>
        </>
      )}
      {story && (
        <>
          <h3>{story.replacedBy.length ? "What became of it" : "Why it is here"}</h3>
          {history.length ? (
            <Entries list={history} />
          ) : (
            <p class="empty">
              The leader has decided nothing about it in its term
              {story.replacedBy.length
                ? "."
                : ": it is where it was when the term began, or a lookup found its only place."}
            </p>
          )}
          <Earlier name={name} />
        </>
      )}
    </>
  );
}

// A child of a split was at its parent's owner before: what became of the parent is its story, too.
function withAncestors(story: Story, known: Decision[]): Decision[] {
  const own = new Set(story.history.map(({ id }) => id));
  const before = known.filter(
    ({ id, bundle, kind }) =>
      bundle && kind !== "place" && !own.has(id) && isPartOf(story.bundle, bundle),
  );
  return [...story.history, ...before].sort((a, b) => b.ts - a.ts);
}

function pinned({ pin }: Story): [string, ComponentChildren][] {
  if (!pin) return [];
  const about = ordered(pin) && `: ${ordered(pin)}`;
  return [
    [
      "Pinned",
      <>
        to {pin.broker} until <Time at={pin.until} />
        {about}
      </>,
    ],
  ];
}

// Where its bundles would go if a broker were lost now, as `loadmanager admin what-if --without` says.
function lossText(loss: Loss): string {
  if (!loss.total) return "nothing moves: it has no bundle";
  const takers = [...loss.destinations].sort((a, b) => b.bundles - a.bundles || a.broker.localeCompare(b.broker));
  const some = takers.slice(0, TAKERS).map((it) => `${plural(it.bundles, "bundle")} to ${it.broker}`);
  const rest = takers.slice(TAKERS).reduce((sum, it) => sum + it.bundles, 0);
  const parts = [
    ...some,
    rest ? `${plural(rest, "bundle")} to ${plural(takers.length - TAKERS, "other")}` : "",
    loss.homeless ? `no broker qualifies for ${count(loss.homeless)}` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

function OfBroker({ name }: { name: string }): JSX.Element {
  const brokers = use(cluster)?.brokers ?? [];
  const broker = brokers.find((each) => each.broker === name);
  const page = broker && pageOf(broker, brokers);
  const [most, setMost] = useState(BUNDLES);
  const bundles = useAgain<{ total: number; bundles: Bundle[] }>(
    `${V1}/bundles?sort=throughput&owner=${encodeURIComponent(name)}&limit=${most}`,
  );
  const decided = useAgain<{ decisions: Decision[] }>(
    `${V1}/decisions?broker=${encodeURIComponent(name)}&limit=30`,
  );
  const loss = useAgain<Loss>(`${V1}/losses?broker=${encodeURIComponent(name)}&limit=1`, LOSS_AGAIN_MS);
  if (!broker) return <p class="empty">{name} is not among the brokers that are shown.</p>;
  return (
    <>
      <p class="kind">Broker</p>
      <h2>{name}</h2>
      <p>
        <Chips broker={broker} />
      </p>
      <Resources broker={broker} />
      <TrendOfBroker broker={name} />
      <Facts
        facts={[
          ["By the model", modelledText(broker) || "unknown"],
          ["Bundles", count(broker.bundles ?? 0)],
          ["Topics", count(broker.topics ?? 0)],
          ["Messages", `${messages(broker.rate ?? 0)} /s`],
          ["Bytes", bytes(broker.throughput ?? 0)],
          ["Report", broker.reportAgeMs === null ? "none" : `${duration(broker.reportAgeMs)} old`],
          ["Version", broker.version ?? "unknown"],
          ["Runs", broker.startedAt ? `for ${duration(Date.now() - broker.startedAt)}` : "unknown"],
          ...(loss.document && bundles.document?.total
            ? [["If it were lost", lossText(loss.document)] as [string, string]]
            : []),
        ]}
      />
      {broker.cordon?.note && <p class="small">Note: {broker.cordon.note}</p>}
      {broker.cordon?.problem && <p class="problem">{broker.cordon.problem}</p>}
      <div class="actions">
        {broker.cordon ? (
          <button class="primary" onClick={() => uncordonBroker(broker)}>
            Uncordon…
          </button>
        ) : (
          <button onClick={() => cordonBroker(broker, false)}>Cordon…</button>
        )}
        {runs(broker) && broker.cordon?.state !== "draining" && (
          <button onClick={() => cordonBroker(broker, true)}>Drain…</button>
        )}
        {page && (
          <a class="button" href={page} rel="noopener">
            Its own page
          </a>
        )}
      </div>
      <h3>
        Its bundles, the hottest first
        {isStale(broker) && typeof broker.reportedAt === "number" && (
          <small>, with the traffic of <Time at={broker.reportedAt} /></small>
        )}
      </h3>
      {bundles.problem && <p class="problem">{bundles.problem}.</p>}
      <ul class="list">
        {bundles.document?.bundles.map((bundle) => (
          <li key={bundle.bundle} class="owned">
            {bundleLink(bundle.bundle)}
            {bundle.rate === null || bundle.throughput === null ? (
              <span class="number">{notReported(bundle.owner)}</span>
            ) : (
              <>
                <span class="number">{messages(bundle.rate)} msg/s</span>
                <span class="number">{bytes(bundle.throughput)}</span>
              </>
            )}
          </li>
        ))}
      </ul>
      {bundles.document?.total === 0 && <p class="empty">It has none.</p>}
      <More
        of={(bundles.document?.total ?? 0) - (bundles.document?.bundles.length ?? 0)}
        show={most < BUNDLES_MAX ? () => setMost(BUNDLES_MAX) : null}
      />
      <h3>Decisions about it</h3>
      {decided.document?.decisions.length ? (
        <Entries list={decided.document.decisions} />
      ) : (
        <p class="empty">None in this leader's term.</p>
      )}
      <Earlier name={name} />
    </>
  );
}

export function Resources({ broker }: { broker: Broker }): JSX.Element {
  return (
    <ul class="resources">
      {resourcesOf(broker).map(({ name, part }) => (
        <li key={name}>
          <span>{name}</span>
          <span class={`bar ${heatClass(part)}`} aria-hidden="true">
            <i class="fill" style={{ transform: `scaleX(${Math.min(1, part)})` }} />
          </span>
          <span class="number">{percent(part)}</span>
        </li>
      ))}
    </ul>
  );
}
