// One box that finds a broker, a bundle, a namespace, a topic or a client by its name, and a
// decision, a move or a change by its id.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Failure, V1, get } from "./api";
import { giveBackFocus } from "./focus";
import { bytes, count, inZone, messages, plural, told } from "./format";
import { shortBundle } from "./sentences";
import { bundleOf } from "./decisions";
import { chosenChange } from "./changes";
import { known } from "./moves";
import { changes, cluster, decisionOf, decisions, earlierChanges, heat, isDaemon } from "./state";
import { lastOfClient, moves, panel, recordedMoves } from "./state";
import type { Panel } from "./state";
import { Store, use } from "./store";
import { when } from "./when";
import type { BundlesShown, ClientsFound, DecisionShown } from "../generated/openapi";

export const finding = new Store(false);

const SHOWN = 12;
const BROKERS_FIRST = 6; // others come after what has the name, too
const IN_ONE = 1_000; // bundles of a namespace whose owners are asked for
const WAIT_MS = 200;
const BUNDLE = /^[^/]+\/[^/]+\/0x[0-9a-f]{8}_0x[0-9a-f]{8}$/;
const DECISION = /^\d+-\d+$/;
const MOVE = /^\d+-m\d+$/;
const CHANGE = /^c-[0-9a-z]+-[0-9a-z]+$/;
const IN_NAMESPACE = /^([^/]+\/[^/]+)(?:\/(0x[0-9a-fx_]*))?$/; // and the begin of a bundle
const SHORTLY = /^(?:([^/\s]+\/[^/\s]+) )?([0-9a-f]*[–-]?[0-9a-f]*)$/i; // as the page has it: 80–c0
const TOPIC = /^(?:(persistent|non-persistent):\/\/)?([^/:]+)\/([^/]+)\/(.+)$/;

interface Hit {
  kind: string;
  name: string;
  about: string;
  opens: Panel;
  key?: string; // of several with one name
  change?: string; // it is shown where changes are
  within?: string; // what is looked for then: the bundles of a namespace
}

interface Found {
  hits: Hit[];
  more: number; // that the brokers did not send
}

const all = (hits: Hit[]): Found => ({ hits, more: 0 });

// The name that the page has for a bundle, with either dash.
const plainly = (text: string): string => text.toLowerCase().replace(/–/g, "-");

const isShortly = (bundle: string, text: string): boolean =>
  plainly(shortBundle(bundle)).includes(plainly(text));

function brokerHits(text: string): Hit[] {
  const names = (cluster.value?.brokers ?? []).filter(({ broker }) => broker.toLowerCase().includes(text.toLowerCase()));
  return names.map(({ broker, bundles }) => ({
    kind: "broker",
    name: broker,
    about: plural(bundles ?? 0, "bundle"),
    opens: { kind: "broker", name: broker },
  }));
}

// What the page knows already, beside brokers.
function here(text: string): Hit[] {
  const wanted = text.toLowerCase();
  const hits: Hit[] = [];
  if (BUNDLE.test(wanted)) hits.push(bundleHit(wanted, ""));
  hits.push(...decisionHits((decisions.value ?? []).filter(({ id }) => id === wanted)));
  for (const { bundle, throughput } of heat.value?.bundles ?? [])
    if (bundle !== wanted && (bundle.toLowerCase().includes(wanted) || isShortly(bundle, text))) {
      const last = throughput.at(-1) ?? null;
      hits.push(bundleHit(bundle, last ? bytes(last) : last === 0 ? "idle" : ""));
    }
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

async function moveHits(id: string): Promise<Hit[]> {
  const here = [...(moves.value?.moves ?? []), ...known.value].filter((move) => move.id === id);
  const [move] = here.length ? here : await recordedMoves(id);
  if (!move) return [];
  const way = `from ${move.source} to ${move.destination ?? "where it is placed"}, ${move.state}`;
  const about = `${shortBundle(move.bundle)} ${way}`;
  return [{ kind: "move", name: id, about, opens: { kind: "bundle", name: move.bundle } }];
}

async function changeHits(id: string): Promise<Hit[]> {
  const here = (changes.value?.changes ?? []).filter((change) => change.id === id);
  const [change] = here.length ? here : (await earlierChanges()).filter((it) => it.id === id);
  if (!change) return [];
  const by = change.role || change.address;
  const about = `${inZone(change.words ?? change.what)}, by ${by} at ${told(change.ts)}`;
  return [{ kind: "change", name: id, about, opens: null, change: id }];
}

const NAMES_FOR_MS = 30_000;
const TENANTS = 100;
let named: { list: string[]; at: number } | null = null;

async function namespaces(): Promise<string[]> {
  if (isDaemon(cluster.value)) return [];
  if (!named || Date.now() - named.at > NAMES_FOR_MS) {
    const tenants = await get<string[]>("/admin/v2/tenants");
    const lists = tenants
      .slice(0, TENANTS)
      .map((tenant) => get<string[]>(`/admin/v2/namespaces/${encodeURIComponent(tenant)}`));
    named = { list: (await Promise.all(lists)).flat(), at: Date.now() };
  }
  return named.list;
}

async function namespaceHits(text: string): Promise<Hit[]> {
  const wanted = text.toLowerCase();
  const others = (await namespaces()).filter((name) => name !== text);
  return others
    .filter((name) => name.toLowerCase().includes(wanted))
    .map((name) => ({ kind: "namespace", name, about: "its bundles", opens: null, within: name }));
}

// The bundles of a namespace whose ranges begin so; those with an owner come first.
async function bundleHits(namespace: string, range: string): Promise<Hit[]> {
  const query = `namespace=${encodeURIComponent(namespace)}&limit=${IN_ONE}`;
  const path = namespace.split("/").map(encodeURIComponent).join("/");
  const [{ bundles }, { boundaries }] = await Promise.all([
    get<BundlesShown>(`${V1}/bundles?${query}`),
    get<{ boundaries: string[] }>(`/admin/v2/namespaces/${path}/bundles`),
  ]);
  const owned = bundles.map(({ bundle, owner }) => bundleHit(bundle, `at ${owner}`));
  const listed = new Set(bundles.map(({ bundle }) => bundle));
  const names = boundaries.slice(1).map((end, index) => `${namespace}/${boundaries[index]}_${end}`);
  const rest = names.filter((name) => !listed.has(name)).map((name) => bundleHit(name, ""));
  return [...owned, ...rest].filter(({ name }) => name.startsWith(`${namespace}/${range}`));
}

// Bundles by the names that the page has for them: of a namespace all, of others those with an owner.
async function shortHits(text: string): Promise<Hit[]> {
  const [, namespace, range = ""] = SHORTLY.exec(text) ?? [];
  if (namespace) return (await bundleHits(namespace, "")).filter(({ name }) => isShortly(name, text));
  if (!/^[0-9a-f]{2,}[–-][0-9a-f]{2,}$/i.test(range)) return [];
  const { bundles } = await get<BundlesShown>(`${V1}/bundles?limit=${IN_ONE}`);
  return bundles
    .filter(({ bundle }) => plainly(shortBundle(bundle)).endsWith(` ${plainly(range)}`))
    .map(({ bundle, owner }) => bundleHit(bundle, `at ${owner}`));
}

// What a broker must be asked.
async function elsewhere(text: string): Promise<Found> {
  const short = isDaemon(cluster.value) ? [] : await shortHits(text);
  if (text.includes(" ") && SHORTLY.test(text)) return all(short);
  const { hits, more } = await byName(text);
  return { hits: DECISION.test(text) ? [...hits, ...short] : [...short, ...hits], more };
}

async function byName(text: string): Promise<Found> {
  if (MOVE.test(text)) return all(await moveHits(text));
  if (CHANGE.test(text)) return all(await changeHits(text));
  if (DECISION.test(text)) {
    const { hits, more } = await clients(text);
    return { hits: [...decisionHits(await decisionOf(text)), ...hits], more };
  }
  const others = text && !BUNDLE.test(text) ? await namespaceHits(text) : [];
  const within = BUNDLE.test(text) ? null : IN_NAMESPACE.exec(text);
  if (within && (!others.length || (await namespaces()).includes(text)))
    return all([...(await bundleHits(within[1] ?? "", within[2] ?? "")), ...others]);
  const topic = BUNDLE.test(text) ? null : TOPIC.exec(text);
  if (!topic) {
    const { hits, more } = await clients(text);
    return { hits: [...others, ...hits], more };
  }
  const [, domain = "persistent", tenant = "", namespace = "", local = ""] = topic;
  const names = [domain, tenant, namespace, local].map(encodeURIComponent);
  const range = await get<string>(`/lookup/v2/topic/${names.join("/")}/bundle`);
  const bundle = `${tenant}/${namespace}/${range}`;
  const name = `${domain}://${tenant}/${namespace}/${local}`;
  const opens = bundleHit(bundle, "").opens;
  return all([{ kind: "topic", name, about: `in ${shortBundle(bundle)}`, opens }]);
}

// The other topics of a connection whose limits hold it.
function of(heldFor: string[] | undefined, topic: string): string {
  const others = (heldFor ?? []).filter((other) => other !== topic);
  return others.length ? ` of ${others.join(" and ")} on its connection` : "";
}

// Open topics, producers, consumers and subscriptions, by a part of a name or of a client's address.
async function clients(text: string): Promise<Found> {
  if (isDaemon(cluster.value) || text.length < 2) return all([]);
  const query = `find=${encodeURIComponent(text)}&limit=${SHOWN}`;
  const found = await get<ClientsFound>(`${V1}/clients?${query}`);
  const { clients: list = [], topics = [], total = 0, topicsTotal = 0 } = found;
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
  const more = Math.max(0, total - list.length) + Math.max(0, topicsTotal - open.length);
  return { hits: [...open, ...hits, ...(await recorded(text))], more };
}

// Somebody who may be away: what is recorded of exactly this name or address.
async function recorded(text: string): Promise<Hit[]> {
  const [last] = await lastOfClient(text, when.value?.at ?? null);
  if (!last) return [];
  return [{ kind: "client", name: text, about: last.text, opens: { kind: "client", name: text }, key: "story" }];
}

function useHits(text: string): Found & { problem: string; asking: boolean } {
  const [asked, setAsked] = useState({ text: "", ...all([]), problem: "" });
  const wanted = text.trim();
  useEffect(() => {
    const timer = window.setTimeout(async () => {
      let found = all([]);
      let problem = "";
      try {
        found = await elsewhere(wanted);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        problem = error.message;
      }
      const answer = { text: wanted, ...found, problem };
      setAsked((before) => (wanted === last.current ? answer : before));
    }, WAIT_MS);
    return () => clearTimeout(timer);
  }, [wanted]);
  const last = useRef(wanted);
  last.current = wanted;
  if (!wanted) return { ...all([]), problem: "", asking: false };
  const answered = asked.text === wanted;
  const brokers = brokerHits(wanted);
  const first = brokers.slice(0, BROKERS_FIRST);
  const found = [...first, ...(answered ? asked.hits : []), ...brokers, ...here(wanted)];
  const names = new Set<string>();
  const hits = found.filter(({ kind, name, key: more }) => {
    const key = `${kind} ${name} ${more ?? ""}`;
    return !names.has(key) && names.add(key);
  });
  const more = hits.slice(SHOWN).length + (answered ? asked.more : 0);
  const problem = answered ? asked.problem : "";
  return { hits: hits.slice(0, SHOWN), more, problem, asking: !answered };
}

export function Find(): JSX.Element | null {
  return use(finding) ? <Box /> : null;
}

function Box(): JSX.Element {
  const box = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const { hits, more, problem, asking } = useHits(text);
  const at = Math.min(chosen, Math.max(0, hits.length - 1));
  const [eager, setEager] = useState(false); // Enter came before the answer
  useLayoutEffect(() => {
    box.current?.showModal();
    return giveBackFocus;
  }, []);
  useEffect(() => {
    if (eager && hits.length) open(hits[at]);
  });
  const close = (): void => finding.set(false);
  const open = (hit: Hit | undefined): void => {
    if (!hit) return;
    setEager(false);
    if (hit.within) {
      setText(hit.within);
      setChosen(0);
      return;
    }
    close();
    if (hit.change) chosenChange.set(hit.change);
    else panel.set(hit.opens);
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
          aria-label="Broker, bundle, namespace, topic or client; id of a decision, move or change"
          aria-controls="found"
          aria-activedescendant={hits.length ? `found-${at}` : undefined}
          placeholder="Broker, bundle, namespace, topic, client; id of a decision, move or change"
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
          {more > 0 && `and ${count(more)} more: write more of the name.`}
        </p>
      </form>
    </dialog>
  );
}
