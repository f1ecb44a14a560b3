import { appendFileSync } from "node:fs";
import { ponder } from "ponder:registry";

const say = (step: string, value: unknown) =>
    appendFileSync(process.env.EVERYDAY_LINES!, JSON.stringify({ step, value: String(value) }) + "\n");

// The first log brings both steps: a handler that ponder repeats would say them again.
ponder.on("Logger:Transfer", async ({ event, context }) => {
    say("log in a handler", event.log.id);
    say("balance in a handler", await context.client.getBalance({ address: event.args.from }));
});
