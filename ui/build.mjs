// Writes the page into the package. What it wrote is committed, with a digest of the sources that a
// test compares, so that nobody needs Node to install or to run a broker.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";

const OUT = "../loadmanager/leader/http/ui";
const SOURCES = ["build.mjs", "openapi.json", "package-lock.json", "package.json", "tsconfig.json"];

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
const { metafile } = await build({
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  entryNames: "[name]-[hash]",
  outdir: OUT,
  bundle: true,
  minify: true,
  metafile: true,
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  legalComments: "inline",
});
const names = Object.keys(metafile.outputs).map((path) => basename(path));
const one = (end) => names.find((name) => name.endsWith(end));
const index = readFileSync("src/index.html", "utf8")
  .replace("app.js", `/ui/${one(".js")}`)
  .replace("style.css", `/ui/${one(".css")}`);
writeFileSync(join(OUT, "index.html"), index);
writeFileSync(join(OUT, "icon.svg"), readFileSync("src/icon.svg"));

const digest = createHash("sha256");
const sources = [...SOURCES, ...readdirSync("src").map((name) => `src/${name}`)].sort();
for (const path of sources) digest.update(`${path}\n`).update(readFileSync(path));
writeFileSync(join(OUT, "sources.sha256"), `${digest.digest("hex")}\n`);
console.log(names.join(" "));
