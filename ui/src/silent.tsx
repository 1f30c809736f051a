// The open topics to which nothing is published: the brokers say which, as `loadmanager admin topics
// silent` has them.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, V1, get } from "./api";
import { duration, plural } from "./format";
import type { ClusterShown, SilentTopic, SilentTopicsShown } from "../generated/openapi";
import { panel } from "./state";
import { use } from "./store";
import { More, brokerLink } from "./story";
import { Time } from "./time";
import { when } from "./when";

const AGAIN_MS = 60_000; // each broker looks at all its topics
const FEW = 20;
const OF_EACH = 200; // so many a broker tells

interface Counted {
  topics: SilentTopicsShown;
  lost: string[]; // whose topics nobody counted, in sentences
}

// Each minute in the present; of a time gone by once. Null: there is no answer yet, or never.
function useSilent(): Counted | null {
  const at = use(when)?.at ?? null;
  const [answer, setAnswer] = useState<(Counted & { of: number | null }) | null>(null);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const look = async (): Promise<void> => {
      try {
        const topics = await get<SilentTopicsShown>(`${V1}/silent-topics${at === null ? "" : `?at=${at}`}`);
        const lost = await unservedNow(topics.noAnswer ?? {});
        if (!over) setAnswer({ of: at, topics, lost });
      } catch (error) {
        if (!(error instanceof Failure)) throw error; // a broker of an earlier version has no answer
      }
      if (!over && at === null) timer = window.setTimeout(look, AGAIN_MS);
    };
    void look();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [at]);
  return answer?.of === at ? answer : null;
}

// Brokers that left, and whose bundles have no owner, as `uncounted` of the command line has them: but
// for bundles that nobody asks for.
async function unservedNow(noAnswer: Record<string, string>): Promise<string[]> {
  try {
    const { absent } = await get<ClusterShown>(`${V1}/cluster?limit=1`);
    return absent.flatMap(({ broker, how, bundles = 0, placed = 0, clients, clientsBack = 0, backAt }) => {
      const areBack = typeof backAt === "number" && typeof clients === "number" && clientsBack >= clients;
      if (bundles <= placed || areBack || broker in noAnswer) return [];
      const left = plural(bundles - placed, "bundle");
      return [`${broker} ${LEFT[how] ?? how}, and ${left} of it without an owner: its topics are not counted.`];
    });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return [`Whether bundles of lost brokers have no owner is not known: ${error.message}.`];
  }
}

const LEFT: Record<string, string> = {
  stopped: "stopped in order",
  drained: "was drained and stopped",
  lost: "was lost",
};

const shortTopic = (topic: string): string => topic.replace("persistent://", "");

function Row({ of, broker, at }: { of: SilentTopic; broker: string; at: number }): JSX.Element {
  const { topic, bundle, published, producers, consumers } = of;
  return (
    <li>
      <button class="link" title={topic} onClick={() => panel.set({ kind: "bundle", name: bundle })}>
        {shortTopic(topic)}
      </button>
      <span class="small">
        {published === null ? (
          "no message since it was opened there"
        ) : (
          <>
            since <Time at={published} /> ({duration(at - published)})
          </>
        )}
        , {plural(producers, "producer")}, {plural(consumers, "consumer")}, at {brokerLink(broker)}
      </span>
    </li>
  );
}

// How many there are, and which fell silent last.
function headText(topics: SilentTopic[], atLeast: boolean, isPast: boolean): string {
  const number = `${atLeast ? "At least " : ""}${plural(topics.length, "open topic")}`;
  const single = topics.length === 1;
  if (isPast) return `${number} ${single ? "was silent then and is" : "were silent then and are"} still`;
  return `${number} ${single ? "is" : "are"} silent`;
}

const THEN =
  "Producers and consumers are those of now. Topics that were silent then and had a message since, " +
  "or are open no more, are not known.";

export function Silent(): JSX.Element | null {
  const counted = useSilent();
  const then = use(when);
  const [isAll, setAll] = useState(false);
  if (!counted) return null;
  const { at, brokers = {}, noAnswer = {}, notAsked = 0, young = {} } = counted.topics;
  const topics = Object.entries(brokers).flatMap(([broker, own]) => own.map((of) => ({ broker, of })));
  topics.sort((a, b) => (b.of.published ?? 0) - (a.of.published ?? 0) || a.of.topic.localeCompare(b.of.topic));
  const atLeast = Object.values(brokers).some((own) => own.length >= OF_EACH);
  const uncounted = Object.entries(noAnswer).map(([broker, why]) => `${broker} ${why}: its topics are not counted.`);
  uncounted.push(...counted.lost);
  for (const [broker, age] of Object.entries(young))
    uncounted.push(
      `${broker} was started ${duration(age)} ago: topics that were open before may not be open again, ` +
        "and are not counted then.",
    );
  if (notAsked) uncounted.push(`${plural(notAsked, "broker")} not asked for silent topics.`);
  const shown = isAll ? topics : topics.slice(0, FEW);
  const last = topics[0]?.of;
  return (
    <section class="silent" id="silent" aria-label="Silent topics">
      {last ? (
        <details>
          <summary>
            {headText(topics.map(({ of }) => of), atLeast, then !== null)}
            {last.published !== null && (
              <span class="small">
                , {topics.length > 1 && "the last one "}since <Time at={last.published} />: {shortTopic(last.topic)}
              </span>
            )}
          </summary>
          <div class="scroll" tabIndex={0} role="group" aria-label="List of silent topics">
            <ul class="list">
              {shown.map(({ broker, of }) => (
                <Row key={of.topic} of={of} broker={broker} at={at} />
              ))}
            </ul>
            <More of={topics.length - shown.length} show={() => setAll(true)} />
            {then && <p class="small">{THEN}</p>}
          </div>
        </details>
      ) : (
        <p class="small">
          {uncounted.length ? "No topic that was counted" : "No open topic"}{" "}
          {then ? "was silent then and is still." : "is silent."}
        </p>
      )}
      {uncounted.map((line) => (
        <p key={line} class="small problem">
          {line}
        </p>
      ))}
    </section>
  );
}
