// A part of the page: its title, what may be done, and why there is nothing to see, if so.
import type { ComponentChildren, JSX } from "preact";
import { problems } from "./state";
import { use } from "./store";
import { Told } from "./time";

interface Props {
  id: string;
  title: string;
  about?: ComponentChildren;
  tools?: ComponentChildren;
  empty?: string | null;
  children?: ComponentChildren;
}

export function Section(props: Props): JSX.Element {
  const problem = use(problems)[props.id];
  return (
    <section class={`part ${props.id} ${props.empty ? "bare" : ""}`} id={props.id} aria-labelledby={`${props.id}-title`}>
      <header>
        <h2 id={`${props.id}-title`}>{props.title}</h2>
        <span class="about">{props.about}</span>
        <span class="tools">{props.tools}</span>
      </header>
      {problem && <p class="problem">Not current: {problem}.</p>}
      {props.empty ? <p class="empty">
          <Told text={props.empty} />
        </p> : props.children}
    </section>
  );
}
