// The script of ../README.md with ethers.

import { JsonRpcProvider, WebSocketProvider } from "ethers";
import { end, Following, print, settings, step as run, until } from "./lines.mjs";

const ALL_LOGS = { topics: [] };
const UNKNOWN = "0x" + "7e".repeat(32);

/** What an ethers error says, without the addresses and versions in its message. */
function explain(error) {
    const rpc = error.error ?? error.info?.error;
    return { code: error.code ?? null, message: error.shortMessage ?? error.message, rpc: rpc ?? null };
}

const step = (name, ask) => run(name, ask, explain);
const hex = (number) => "0x" + number.toString(16);

/** A block with the transactions that came with it. */
const full = (block) => block && { block, transactions: block.prefetchedTransactions };

async function readBlock(provider, number) {
    await step(`block ${number}`, () => provider.getBlock(number));
    const block = await step(`block ${number} full`, async () => full(await provider.getBlock(number, true)));
    const { hash } = block.block;
    await step(`block ${number} by hash`, () => provider.getBlock(hash));
    await step(`block ${number} by hash full`, async () => full(await provider.getBlock(hash, true)));
    await step(`header ${number}`, () => provider.send("eth_getHeaderByNumber", [hex(number)]));
    await step(`header ${number} by hash`, () => provider.send("eth_getHeaderByHash", [hash]));
    await step(`count ${number}`, () => provider.send("eth_getBlockTransactionCountByNumber", [hex(number)]));
    await step(`count ${number} by hash`, () => provider.send("eth_getBlockTransactionCountByHash", [hash]));
    await step(`receipts ${number}`, () => provider.send("eth_getBlockReceipts", [hex(number)]));
    return block;
}

async function readTransactions(provider, number, block, raw) {
    const receipts = [];
    for (const [index, { hash }] of block.transactions.entries()) {
        const name = `${number}/${index}`;
        await step(`transaction ${name}`, () => provider.getTransaction(hash));
        receipts.push(await step(`receipt ${name}`, () => provider.getTransactionReceipt(hash)));
        const at = [hex(number), hex(index)];
        await step(`transaction ${name} by index`, () =>
            provider.send("eth_getTransactionByBlockNumberAndIndex", at));
        if (raw) {
            await step(`raw transaction ${name}`, () => provider.send("eth_getRawTransactionByHash", [hash]));
        }
    }
    const beyond = [block.block.hash, hex(block.transactions.length)];
    await step(`transaction ${number} beyond`, () =>
        provider.send("eth_getTransactionByBlockHashAndIndex", beyond));
    return receipts;
}

async function readTags(provider) {
    for (const tag of ["latest", "safe", "finalized", "pending", "earliest"]) {
        await step(`block ${tag}`, () => provider.getBlock(tag));
        await step(`block ${tag} full`, async () => full(await provider.getBlock(tag, true)));
    }
}

/** Calls made at once are one batch: ethers gathers them. */
async function batch(provider, head) {
    await step("batch", () =>
        Promise.all([
            provider.send("eth_chainId", []),
            provider.getBlock(head, true).then(full),
            provider.send("eth_getBlockReceipts", [hex(head)]),
            provider.send("eth_getBlockByNumber", ["nonsense", true]).catch(explain),
            provider.getBlockNumber(),
        ]));
}

async function errors(provider) {
    await step("error: nonsense number", () => provider.send("eth_getBlockByNumber", ["nonsense", false]));
    await step("error: missing argument", () => provider.send("eth_getBlockByNumber", ["0x0"]));
    await step("error: short hash", () => provider.send("eth_getTransactionByHash", ["0x12"]));
}

async function logs(provider, head, receipts) {
    const all = receipts.flatMap((receipt) => receipt.logs);
    const log = all.find((log) => log.topics.length > 1);
    const range = { fromBlock: 0, toBlock: head };
    await step("logs of a block", () => provider.getLogs({ blockHash: log.blockHash }));
    await step("logs of the chain", () => provider.getLogs(range));
    await step("logs by address", () => provider.getLogs({ ...range, address: log.address }));
    await step("logs by addresses", () => provider.getLogs({ ...range, address: all.map((log) => log.address) }));
    await step("logs by topic", () => provider.getLogs({ ...range, topics: [log.topics[0]] }));
    await step("logs by topics", () => provider.getLogs({ ...range, topics: [null, [log.topics[1], UNKNOWN]] }));
    await step("logs of nobody", () => provider.getLogs({ ...range, address: "0x" + "00".repeat(20) }));
}

/** What a cache does not have and a node behind it does. */
async function misses(provider, head) {
    await step("miss: future block", () => provider.getBlock(head + 1000));
    await step("miss: unknown block", () => provider.getBlock(UNKNOWN));
    await step("miss: unknown transaction", () => provider.getTransaction(UNKNOWN));
    await step("miss: unknown receipt", () => provider.getTransactionReceipt(UNKNOWN));
    await step("miss: balance", () => provider.getBalance("0x8db97C7cEcE249c2b98bDC0226Cc4C2A57BF52FC", head));
    await step("miss: batch", () =>
        Promise.all([provider.getBlock(head), provider.getCode("0x" + "01".repeat(20), head)]));
}

async function reads(options) {
    const provider = new JsonRpcProvider(options.http);
    await step("chain id", async () => (await provider.getNetwork()).chainId);
    const head = await step("head", () => provider.getBlockNumber());
    const receipts = [];
    for (let number = 0; number <= head; number += 1) {
        const block = await readBlock(provider, number);
        receipts.push(...(await readTransactions(provider, number, block, options.raw)));
    }
    await readTags(provider);
    await batch(provider, head);
    await errors(provider);
    if (options.logs) await logs(provider, head, receipts);
    await misses(provider, head);
    provider.destroy();
}

/** A provider of ethers does not reconnect: its users make another one. */
async function connect(url, following) {
    for (;;) {
        const provider = new WebSocketProvider(url);
        const lost = new Promise((resolve) => {
            provider.websocket.onerror = resolve;
            provider.websocket.onclose = resolve;
        });
        const up = await Promise.race([provider.getNetwork(), lost.then(() => null)]);
        if (up) return { lost, provider, ...(await subscribe(provider, following)) };
        await new Promise((next) => setTimeout(next, 100));
    }
}

async function subscribe(provider, following) {
    // What is read on seeing a head must be there.
    const onBlock = async (number) => {
        const entry = [number, null];
        following.heads.push(entry);
        const block = await provider.getBlock(number, true);
        const receipts = await provider.send("eth_getBlockReceipts", [hex(number)]);
        entry[1] = { block: full(block), receipts };
    };
    const onLog = (log) => following.logs.push([log.blockNumber, log]);
    await provider.on("block", onBlock);
    await provider.on(ALL_LOGS, onLog);
    // The subscriptions are sent before this and answered before it.
    await provider.send("eth_chainId", []);
    return { onBlock, onLog };
}

async function follow(options) {
    const following = new Following();
    let socket = await connect(options.ws, following);
    await step("socket: chain id", async () => (await socket.provider.getNetwork()).chainId);
    await step("socket: block", async () => full(await socket.provider.getBlock("latest", true)));
    await step("socket: error", () => socket.provider.send("eth_getBlockByNumber", ["nonsense", false]));
    print({ step: "subscribed" });
    await following.report();
    if (options.reconnect) {
        print({ step: "waiting for the cut" });
        await socket.lost;
        socket = await connect(options.ws, following);
        print({ step: "reconnected" });
        await following.report();
    }
    await socket.provider.off("block", socket.onBlock);
    await socket.provider.off(ALL_LOGS, socket.onLog);
    await step("unsubscribed", () => socket.provider.listenerCount());
    // The answers to unsubscribing, for which nobody waits, come before this one. Destroyed without
    // them, the provider would reject them, and that ends the session.
    await socket.provider.send("eth_chainId", []);
    await socket.provider.destroy();
}

const options = settings();
await reads(options);
if (options.ws) await follow(options);
end();
