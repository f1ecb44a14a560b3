// What every session in JavaScript needs: its arguments, its lines, and a word with the harness.

import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

/** How long a session waits for heads and logs that the harness announced. */
const FOLLOW_LIMIT_MS = 60_000;

/** The arguments that ../README.md lists. */
export function settings() {
    const { positionals, values } = parseArgs({
        allowPositionals: true,
        options: {
            logs: { type: "boolean", default: false },
            raw: { type: "boolean", default: false },
            reconnect: { type: "boolean", default: false },
        },
    });
    const [http, ws] = positionals;
    if (!http) throw new Error("usage: HTTP_URL [WS_URL] [--logs] [--raw] [--reconnect]");
    return { http, ws, ...values };
}

/** Sorted keys, bigints as decimals: two equal answers make two equal lines. */
function canonical(value) {
    if (typeof value === "bigint") return value.toString();
    if (Array.isArray(value)) return value.map(canonical);
    if (value === null || typeof value !== "object") return value;
    const shown = typeof value.toJSON === "function" ? value.toJSON() : value;
    const keys = Object.keys(shown).sort();
    return Object.fromEntries(keys.map((key) => [key, canonical(shown[key])]));
}

export function print(line) {
    console.log(JSON.stringify(canonical(line)));
}

/** Ends the session once all lines are out: what a pipe has no room for waits, and an exit drops it. */
export function end() {
    process.stdout.write("", () => process.exit(0));
}

/** Does one step and prints what came of it; `explain` makes data of the library's errors. */
export async function step(name, ask, explain) {
    let value;
    try {
        value = (await ask()) ?? null;
    } catch (error) {
        print({ error: explain(error), step: name });
        return null;
    }
    print({ step: name, value });
    return value;
}

const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The next `until HEIGHT LOGS` of the harness; `cut` is for libraries that hide a cut. */
async function announced() {
    let { value } = await stdin.next();
    if (value === "cut") ({ value } = await stdin.next());
    const [word, height, logs] = (value ?? "").split(" ");
    if (word !== "until") throw new Error(`expected «until HEIGHT LOGS», got «${value}»`);
    return { height: Number(height), logs: Number(logs) };
}

/** Heads and logs of a subscription, in the order in which they came. */
export class Following {
    heads = [];
    logs = [];

    /** Waits until all that the harness announces is here, prints and forgets it. */
    async report() {
        const { height, logs } = await announced();
        // A head is here when what is read on seeing it is: until then its value is null.
        const done = () =>
            this.heads.some(([number]) => number >= height)
            && this.heads.every(([, value]) => value !== null)
            && this.logs.length >= logs;
        await until(`head ${height} and ${logs} logs`, done, () => ({
            heads: this.heads.map(([number]) => number),
            logs: this.logs.length,
        }));
        for (const [number, value] of this.heads) print({ step: `head ${number}`, value });
        for (const [number, value] of this.logs) print({ step: `log of ${number}`, value });
        this.heads = [];
        this.logs = [];
    }
}

/** Looks again and again until `done`. */
export async function until(what, done, seen = () => "nothing") {
    const start = Date.now();
    while (!(await done())) {
        if (Date.now() - start > FOLLOW_LIMIT_MS) {
            throw new Error(`${what}: not in time; seen: ${JSON.stringify(seen())}`);
        }
        await new Promise((next) => setTimeout(next, 50));
    }
}
