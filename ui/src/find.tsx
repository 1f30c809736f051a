// One box that finds a broker, a bundle, a namespace, a topic, a decision or a client by its name.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Failure, V1, get } from "./api";
import { messages, plural } from "./format";
import { shortBundle } from "./sentences";
import { bundleOf } from "./decisions";
import { lastOfClient, cluster, decisionOf, decisions, heat, isDaemon, panel } from "./state";
import type { Panel } from "./state";
import { Store, use } from "./store";
import { when } from "./when";
import type { BundlesShown, ClientsFound, DecisionShown } from "../generated/openapi";

export const finding = new Store(false);

const SHOWN = 12;
const WAIT_MS = 200;
const BUNDLE = /^[^/]+\/[^/]+\/0x[0-9a-f]{8}_0x[0-9a-f]{8}$/;
const DECISION = /^\d+-\d+$/;
const NAMESPACE = /^[^/]+\/[^/]+$/;
const TOPIC = /^(?:(persistent|non-persistent):\/\/)?([^/:]+)\/([^/]+)\/(.+)$/;

interface Hit {
  kind: string;
  name: string;
  about: string;
  opens: Panel;
  key?: string; // of several with one name
}

// What the page knows already.
function here(text: string): Hit[] {
  const wanted = text.toLowerCase();
  const hits: Hit[] = [];
  for (const { broker, bundles } of cluster.value?.brokers ?? [])
    if (broker.toLowerCase().includes(wanted))
      hits.push({
        kind: "broker",
        name: broker,
        about: plural(bundles ?? 0, "bundle"),
        opens: { kind: "broker", name: broker },
      });
  if (BUNDLE.test(wanted)) hits.push(bundleHit(wanted, ""));
  hits.push(...decisionHits((decisions.value ?? []).filter(({ id }) => id === wanted)));
  for (const { bundle } of heat.value?.bundles ?? [])
    if (bundle !== wanted && bundle.toLowerCase().includes(wanted))
      hits.push(bundleHit(bundle, "busy"));
  return hits;
}

const bundleHit = (name: string, about: string): Hit => ({
  kind: "bundle",
  name,
  about,
  opens: { kind: "bundle", name },
});

function decisionHits(list: DecisionShown[]): Hit[] {
  return list.flatMap((decision): Hit[] => {
    const { id, kind, broker } = decision;
    const bundle = bundleOf(decision) ?? decision.unloads?.[0]?.bundle;
    if (!bundle && !broker) return [];
    const about = `${kind} of ${bundle ? shortBundle(bundle) : broker}`;
    const opens: Panel = bundle ? { kind: "bundle", name: bundle } : { kind: "broker", name: broker ?? "" };
    return [{ kind: "decision", name: id, about, opens }];
  });
}

// What a broker must be asked.
async function elsewhere(text: string): Promise<Hit[]> {
  if (DECISION.test(text)) return [...decisionHits(await decisionOf(text)), ...(await clients(text))];
  if (NAMESPACE.test(text)) {
    const query = `namespace=${encodeURIComponent(text)}&limit=${SHOWN}`;
    const [{ bundles }, { boundaries }] = await Promise.all([
      get<BundlesShown>(`${V1}/bundles?${query}`),
      get<{ boundaries: string[] }>(`/admin/v2/namespaces/${text.split("/").map(encodeURIComponent).join("/")}/bundles`),
    ]);
    const owned = bundles.map(({ bundle, owner }) => bundleHit(bundle, `at ${owner}`));
    const listed = new Set(bundles.map(({ bundle }) => bundle));
    const all = boundaries.slice(1).map((end, index) => `${text}/${boundaries[index]}_${end}`);
    return [...owned, ...all.filter((name) => !listed.has(name)).map((name) => bundleHit(name, ""))];
  }
  const topic = BUNDLE.test(text) ? null : TOPIC.exec(text);
  if (!topic) return clients(text);
  const [, domain = "persistent", tenant = "", namespace = "", local = ""] = topic;
  const names = [domain, tenant, namespace, local].map(encodeURIComponent);
  const range = await get<string>(`/lookup/v2/topic/${names.join("/")}/bundle`);
  const bundle = `${tenant}/${namespace}/${range}`;
  const name = `${domain}://${tenant}/${namespace}/${local}`;
  return [{ kind: "topic", name, about: `in ${shortBundle(bundle)}`, opens: bundleHit(bundle, "").opens }];
}

// The other topics of a connection whose limits hold it.
function of(heldFor: string[] | undefined, topic: string): string {
  const others = (heldFor ?? []).filter((other) => other !== topic);
  return others.length ? ` of ${others.join(" and ")} on its connection` : "";
}

// Open topics, producers, consumers and subscriptions, by a part of a name or of a client's address.
async function clients(text: string): Promise<Hit[]> {
  if (isDaemon(cluster.value) || text.length < 2) return [];
  const query = `find=${encodeURIComponent(text)}&limit=${SHOWN}`;
  const { clients: list = [], topics = [] } = await get<ClientsFound>(`${V1}/clients?${query}`);
  const hits = list.map(({ kind, name, topic, bundle, client, subscription, rate, heldBy, heldFor }): Hit => ({
    kind,
    name,
    about: [
      `on ${topic.replace(/^persistent:\/\//, "")}`,
      subscription ? `of ${subscription}` : "",
      client ? `from ${client}` : "",
      typeof rate === "number" ? `${messages(rate)} msg/s` : "",
      heldBy?.length ? `held by ${heldBy.join(", ")}${of(heldFor, topic)}` : "",
    ]
      .filter(Boolean)
      .join(" "),
    opens: client && name ? { kind: "client", name } : bundleHit(bundle, "").opens,
    key: `${topic} ${client}`,
  }));
  const open = topics.slice(0, SHOWN / 2).map(({ topic, bundle, broker, rateIn, rateOut }): Hit => ({
    kind: "topic",
    name: topic,
    about: `in ${shortBundle(bundle)} at ${broker} ${messages(rateIn + rateOut)} msg/s`,
    opens: bundleHit(bundle, "").opens,
  }));
  return [...open, ...hits, ...(await recorded(text))];
}

// Somebody who may be away: what is recorded of exactly this name or address.
async function recorded(text: string): Promise<Hit[]> {
  const [last] = await lastOfClient(text, when.value?.at ?? null);
  if (!last) return [];
  return [{ kind: "client", name: text, about: last.text, opens: { kind: "client", name: text }, key: "story" }];
}

function useHits(text: string): { hits: Hit[]; problem: string; asking: boolean } {
  const [asked, setAsked] = useState({ text: "", hits: [] as Hit[], problem: "" });
  const wanted = text.trim();
  useEffect(() => {
    const timer = window.setTimeout(async () => {
      let hits: Hit[] = [];
      let problem = "";
      try {
        hits = await elsewhere(wanted);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        problem = error.message;
      }
      setAsked((before) => (wanted === last.current ? { text: wanted, hits, problem } : before));
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  const last = useRef(wanted);
  last.current = wanted;
  if (!wanted) return { hits: [], problem: "", asking: false };
  const answered = asked.text === wanted;
  const all = [...(answered ? asked.hits : []), ...here(wanted)];
  const names = new Set<string>();
  const hits = all.filter(({ kind, name, key: more }) => {
    const key = `${kind} ${name} ${more ?? ""}`;
    return !names.has(key) && names.add(key);
  });
  return { hits: hits.slice(0, SHOWN), problem: answered ? asked.problem : "", asking: !answered };
}

export function Find(): JSX.Element | null {
  return use(finding) ? <Box /> : null;
}

function Box(): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const { hits, problem, asking } = useHits(text);
  const at = Math.min(chosen, Math.max(0, hits.length - 1));
  const [eager, setEager] = useState(false); // Enter came before the answer
  useLayoutEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    if (eager && hits.length) open(hits[at]);
  });
  const close = (): void => finding.set(false);
  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    close();
    panel.set(hit.opens);
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !hits.length) return;
    event.preventDefault();
    setChosen((at + step + hits.length) % hits.length);
  };
  return (
    <dialog ref={box} onClose={close} aria-label="Find" class="find">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (hits.length) open(hits[at]);
          else setEager(asking);
        }}
      >
        <input
          type="text"
          aria-label="Broker, bundle, namespace, topic, decision or client"
          aria-controls="found"
          aria-activedescendant={hits.length ? `found-${at}` : undefined}
          placeholder="Broker, bundle, tenant/namespace, topic, decision or client"
          autocomplete="off"
          spellcheck={false}
          autofocus
          maxLength={2048}
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setChosen(0);
            setEager(false);
          }}
          onKeyDown={onKey}
        />
        <ul id="found" role="listbox" aria-label="What was found">
          {hits.map((hit, index) => (
            <li
              key={`${hit.kind} ${hit.name} ${hit.key ?? ""}`}
              id={`found-${index}`}
              role="option"
              aria-selected={index === at}
              onClick={() => open(hit)}
            >
              <span class="kind">{hit.kind}</span> {hit.name} <small>{hit.about}</small>
            </li>
          ))}
        </ul>
        <p class="small" role="status">
          {problem || (text.trim() && !asking && !hits.length ? "Nothing has this name." : "")}
        </p>
      </form>
    </dialog>
  );
}
