// The answers of the broker, as this page uses them.

interface Resource {
  usage: number;
  limit: number;
  fraction: number | null;
}

export interface Cordon {
  note: string;
  state: "cordoned" | "draining" | "drained" | "stopped";
  left?: number | null;
  total?: number;
  failed?: number;
  secondsLeft?: number | null;
  problem?: string;
}

export interface Broker {
  broker: string;
  url: string | null;
  leader: boolean;
  state: "active" | "unreadable" | "gone" | "cordoned" | "draining" | "drained" | "stopped";
  cordon: Cordon | null;
  version: string | null;
  startedAt: number | null;
  usage: number | null;
  resources: Record<string, Resource> | null;
  bundles: number | null;
  topics: number | null;
  producers: number | null;
  consumers: number | null;
  rate: number | null;
  throughput: number | null;
  reportAgeMs: number | null;
  // Added here: when this page saw last that a broker is no longer there.
  goneSince?: number;
}

export interface Pause {
  until: number;
  note: string;
}

export interface Cluster {
  at: number;
  leader: { broker: string; url: string; epoch: number; since: number };
  manager: "modular" | "extensible";
  shedder: string;
  placement: string;
  balancing: boolean;
  cycles: number;
  paused: Pause | null;
  moves: { waiting: number; running: number };
  bundles: number;
  total: number;
  brokers: Broker[];
}

export interface Outcome {
  text: string;
  children?: string[];
  owner?: string | null;
  clientsClosed?: number | null;
  clientsBack?: number | null;
  pauseMs?: number | null;
}

export interface Move {
  id: string;
  bundle: string;
  source: string;
  destination: string | null;
  reason: string;
  why: Record<string, number | string>;
  author: string;
  swap: string | null;
  state: "queued" | "running" | "done" | "failed" | "cancelled" | "expired";
  createdAt: number;
  startedAt: number | null;
  endedAt: number | null;
  outcome: Outcome | null;
}

export interface Moves {
  paused: Pause | null;
  waiting: number;
  running: number;
  moves: Move[];
}

export type Pins = Record<string, { broker: string; until: number; note: string }>;

export interface Unload {
  bundle: string;
  source: string;
  destination: string | null;
  reason: string;
  why: Record<string, number | string>;
  move?: { id: string; state: string; outcome: string | null } | null;
}

export interface Skip {
  what: string;
  reason: string;
}

export interface Plan {
  strategy: string;
  unloads: Unload[];
  skipped: Skip[];
}

export interface Decision extends Partial<Plan> {
  id: string;
  ts: number;
  kind: string;
  epoch: number;
  cycle: number;
  times?: number;
  firstAt?: number;
  inputs?: { brokers: number; averageUsage: number | null };
  unloadsCount?: number;
  skippedCount?: number;
  bundle?: string;
  broker?: string | null;
  candidates?: string[];
  rejected?: Record<string, string>;
  rejectedCount?: number;
  parts?: string[];
  reason?: string;
  source?: string;
  destination?: string | null;
  why?: Record<string, number | string>;
  author?: string;
  state?: string;
  outcome?: Outcome | null;
  step?: string;
  error?: string;
}

export interface Bundle {
  bundle: string;
  owner: string | null;
  ownedSince: number | null;
  ownedSinceExact: boolean;
  moving: boolean;
  movingTo: string | null;
  pinnedTo: string | null;
  topics: number | null;
  producers: number | null;
  consumers: number | null;
  rate: number | null;
  throughput: number | null;
  msgRateIn: number | null;
  msgRateOut: number | null;
}

export interface Story extends Bundle {
  at: number;
  replacedBy: string[];
  pin: { broker: string; until: number; note: string } | null;
  move: Move | null;
  history: Decision[];
}

export interface SealedPlan {
  id: string;
  state: "ready" | "expired" | "executed";
  expiresAt: number;
  shedder: string;
  placement: string;
  plan: Plan;
  moves: Move[];
}

export interface Series {
  bundle: string;
  owner: string | null;
  rate: number | null;
  throughput: (number | null)[];
  owners: [number, string][];
  exists: boolean;
}

export interface Heat {
  intervalSeconds: number;
  times: number[];
  total: number;
  kept: number;
  bundles: Series[];
}

export interface Limit {
  name: string;
  level: string;
  configuredMessagesPerS: number;
  configuredBytesPerS: number;
  deliveredMessagesPerS: number;
  deliveredBytesPerS: number;
  queueLength: number;
  topics: string[];
  waiters: {
    kind: "producer" | "subscription";
    topic: string;
    name: string;
    client: string | null;
    waits: boolean;
    heldAgoMs: number;
  }[];
  waitersTotal: number;
}

export interface Change {
  ts: number;
  broker: string;
  role: string;
  proxied: string | null;
  address: string;
  over: string;
  what: string;
  path: string | null;
  before: string | null;
  after: string | null;
  note: string | null;
}

export interface Changes {
  changes: Change[];
  notAsked: number;
  noAnswer: Record<string, string>;
}

export interface Throttled {
  brokers: Record<
    string,
    {
      pausedConnections: number;
      causes: Record<string, number>;
      limits: Limit[];
      limitsTotal: number;
    }
  >;
  notAsked: number;
  noAnswer: Record<string, string>;
}
