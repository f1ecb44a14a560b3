// Arguments and steps of a session in JavaScript: URL and facts in, a line of JSON for each step out.

import { readFileSync } from "node:fs";

const [, , url, file] = process.argv;
export { url };
export const facts = JSON.parse(readFileSync(file));

/** Does a step. `show` makes plain data of its value. */
export async function step(name, ask, show = String) {
    let line;
    try {
        line = { step: name, value: show(await ask()) };
    } catch (error) {
        line = { step: name, error: String(error.shortMessage ?? error.message).slice(0, 200) };
    }
    console.log(JSON.stringify(line));
}

/** A price depends on the moment: two servers need not agree on it. */
export const positive = (value) => BigInt(value) > 0n;
export const reached = (value) => BigInt(value) >= BigInt(facts.height);
