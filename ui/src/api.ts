// Asks the broker that served the page. It follows redirects to the leader and to owners for us.

export type Kind = "unreachable" | "unauthorised" | "forbidden" | "unavailable" | "refused";

export class Failure extends Error {
  constructor(
    readonly kind: Kind,
    message: string,
    readonly body: unknown = null,
  ) {
    super(message);
  }
}

const TOKEN = "loadmanager-token";
const TIMEOUT_MS = 65_000;
const PASSED_ON_S = "5";
export const V1 = "/loadmanager/v1";

export const token = {
  get: (): string => sessionStorage.getItem(TOKEN) ?? "",
  set: (text: string): void =>
    text ? sessionStorage.setItem(TOKEN, text) : sessionStorage.removeItem(TOKEN),
};

export function credentials(): Record<string, string> {
  const headers: Record<string, string> = { "Loadmanager-Follow": "true" };
  if (token.get()) headers["Authorization"] = `Bearer ${token.get()}`;
  return headers;
}

export async function call<T>(
  method: string,
  path: string,
  body?: unknown,
  broker?: string,
  withinMs = TIMEOUT_MS,
): Promise<T> {
  const headers = credentials();
  if (broker) {
    headers["Loadmanager-Broker"] = broker; // the one that is asked passes it on
    headers["Loadmanager-Within"] = PASSED_ON_S; // that broker may be frozen
  }
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      cache: "no-store",
      signal: AbortSignal.timeout(withinMs),
    });
    text = await answer.text();
  } catch {
    throw new Failure("unreachable", `${location.host} does not answer`);
  }
  const document = parsed(text);
  if (answer.ok) return document as T;
  throw new Failure(kindOf(answer.status), reasonOf(document) ?? `status ${answer.status}`, document);
}

function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

function reasonOf(document: unknown): string | null {
  if (typeof document === "object" && document !== null && "reason" in document)
    return String(document.reason);
  return typeof document === "string" && document ? document : null;
}

function kindOf(status: number): Kind {
  if (status === 401) return "unauthorised";
  if (status === 403) return "forbidden";
  return status >= 500 ? "unavailable" : "refused";
}

export const get = <T>(path: string, broker?: string, withinMs?: number): Promise<T> =>
  call<T>("GET", path, undefined, broker, withinMs);
