#!/usr/bin/env node
// Checks the dashboard against Grafana's own types, without Grafana: the compiler of TypeScript reads it as a literal of
// the type that Grafana loads, and refuses an unknown field, a missing one and a wrong value.
//
//     packaging/grafana/test.mjs MODULES       # MODULES: a node_modules with @grafana/schema and typescript
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const place = dirname(fileURLToPath(import.meta.url));
const fail = (why) => {
  console.error(`packaging/grafana/test.mjs: ${why}`);
  process.exit(1);
};

// Targets and options are of any form in the type of a dashboard: each panel's own are checked apart.
const program = (dashboard) => `
import type { Dashboard, RowPanel, Panel } from "@grafana/schema";
import type { Options } from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
import type { Dataquery } from "./query";
type Variables = NonNullable<NonNullable<Dashboard["templating"]>["list"]>;
type Plain<T> = T extends string ? \`\${T}\` : T extends number ? T : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Chart = Omit<Panel, "type" | "options" | "targets"> & { type: "timeseries"; options: Partial<Options>; targets: Dataquery[] };
type Shown = Omit<Dashboard, "panels" | "templating"> & { panels: (Plain<Chart> | Plain<RowPanel>)[]; templating: { list: Plain<Variables> } };
export const dashboard: Shown = ${dashboard};
`;
// A query to Prometheus: the package types it for the editor, which adds fields of its own.
const QUERY = `
export interface Dataquery {
  datasource: { type: "prometheus"; uid: string };
  expr: string;
  legendFormat?: string;
  refId: string;
  format?: "time_series" | "table" | "heatmap";
  instant?: boolean;
  range?: boolean;
  interval?: string;
}
`;

function compiled(modules, text) {
  const here = mkdtempSync(join(resolve(modules, ".."), "dashboard-"));
  try {
    symlinkSync(resolve(modules), join(here, "node_modules"));
    writeFileSync(join(here, "query.ts"), QUERY);
    writeFileSync(join(here, "dashboard.ts"), program(text));
    const compiler = [join(modules, "typescript/bin/tsc"), "--noEmit", "--strict", "--skipLibCheck", "--module", "esnext"];
    execFileSync("node", [...compiler, "--moduleResolution", "bundler", "--target", "es2022", join(here, "dashboard.ts")], { stdio: "pipe" });
    return "";
  } catch (error) {
    return `${error.stdout ?? error}`;
  } finally {
    rmSync(here, { recursive: true });
  }
}

const modules = resolve(process.argv[2] ?? fail("name the folder node_modules"));
const text = readFileSync(join(place, "neve.json"), "utf8");
const found = compiled(modules, text);
if (found !== "") fail(found.split("\n").slice(0, 5).join("\n"));
// The check finds what it is for.
for (const [right, wrong] of [['"refId"', '"refID"'], ['"gridPos"', '"gridPosition"'], ['"list"', '"lists"'], ['"uid"', '"uuid"']]) {
  if (!text.includes(right)) fail(`the dashboard has no ${right}`);
  if (compiled(modules, text.replace(right, wrong)) === "") fail(`${wrong} is not found`);
}
const version = JSON.parse(readFileSync(join(modules, "@grafana/schema/package.json"), "utf8")).version;
console.log(`packaging/grafana/test.mjs: ${JSON.parse(text).panels.length} panels fit the types of Grafana ${version}; Grafana did not run`);
