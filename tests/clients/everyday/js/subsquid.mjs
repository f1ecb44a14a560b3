// Everyday steps with subsquid's EVM processor: blocks and logs of a range, and state in the handler.

import processors from "@subsquid/evm-processor";
import { facts, step, url } from "./steps.mjs";

const LIMIT_MS = 20_000;
const last = facts.height - 1;
const found = { blocks: [], logs: [], transactions: 0 };
const processor = new processors.EvmBatchProcessor()
    .setRpcEndpoint({ url, retryAttempts: 1, maxBatchCallSize: 10 })
    .setFinalityConfirmation(1)
    .setBlockRange({ from: 0, to: last })
    .includeAllBlocks({ from: 0, to: last })
    .setFields({ log: { topics: true, data: true }, transaction: { hash: true, gasUsed: true } })
    .addLog({}).addTransaction({});

/** A store that keeps nothing but where it is. */
const database = {
    supportsHotBlocks: false,
    at: { height: -1, hash: "0x" },
    async connect() { return this.at; },
    async transact({ nextHead }, work) {
        await work({});
        this.at = nextHead;
    },
};

const soon = (ask) => Promise.race([ask, new Promise((_, fail) => setTimeout(() => fail(new Error("no answer")), LIMIT_MS))]);

async function report(client) {
    const at = "0x" + last.toString(16);
    const state = (method, ...params) => () => soon(client.call(method, params));
    await step("blocks", () => found.blocks, (hashes) => hashes.join());
    await step("logs", () => found.logs, (topics) => topics.join());
    await step("transactions and receipts", () => found.transactions);
    await step("balance in a handler", state("eth_getBalance", facts.address, at));
    await step("call in a handler", state("eth_call", { to: facts.contract }, at));
    process.stdout.write("", () => process.exit(0));
}

processor.run(database, async ({ blocks, _chain }) => {
    for (const block of blocks) {
        found.blocks.push(block.header.hash);
        found.logs.push(...block.logs.map((log) => log.topics[0]));
        found.transactions += block.transactions.reduce((sum, { gasUsed }) => sum + Number(gasUsed), 0);
    }
    if (blocks.at(-1).header.height >= last) await report(_chain.client);
});
