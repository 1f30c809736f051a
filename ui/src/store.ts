// A value that components follow.
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private readonly followers = new Set<() => void>();

  constructor(private kept: T) {}

  get value(): T {
    return this.kept;
  }

  set(value: T): void {
    if (value === this.kept) return;
    this.kept = value;
    for (const follower of [...this.followers]) follower();
  }

  follow(follower: () => void): () => void {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

export function use<T>(store: Store<T>): T {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    setValue(store.value);
    return store.follow(() => setValue(store.value));
  }, [store]);
  return value;
}
