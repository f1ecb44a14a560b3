// The script of ../README.md with viem.

import { createPublicClient, http, webSocket } from "viem";
import { end, Following, print, settings, step as run, until } from "./lines.mjs";

const UNKNOWN = "0x" + "7e".repeat(32);

/** The names of a viem error and its causes, and what the server said. */
function explain(error) {
    const names = [];
    let innermost = error;
    for (let cause = error; cause; cause = cause.cause) {
        names.push(cause.name ?? "error");
        innermost = cause;
    }
    const code = innermost.code ?? error.code;
    return { code: code ?? null, details: error.details ?? innermost.message ?? null, names };
}

const step = (name, ask) => run(name, ask, explain);
const hex = (number) => "0x" + number.toString(16);

async function readBlock(client, number) {
    const blockNumber = BigInt(number);
    await step(`block ${number}`, () => client.getBlock({ blockNumber }));
    const ask = { blockNumber, includeTransactions: true };
    const block = await step(`block ${number} full`, () => client.getBlock(ask));
    const blockHash = block.hash;
    await step(`block ${number} by hash`, () => client.getBlock({ blockHash }));
    await step(`block ${number} by hash full`, () =>
        client.getBlock({ blockHash, includeTransactions: true }));
    await step(`header ${number}`, () => client.request({ method: "eth_getHeaderByNumber", params: [hex(number)] }));
    await step(`header ${number} by hash`, () => client.request({ method: "eth_getHeaderByHash", params: [blockHash] }));
    await step(`count ${number}`, () => client.getBlockTransactionCount({ blockNumber }));
    await step(`count ${number} by hash`, () => client.getBlockTransactionCount({ blockHash }));
    await step(`receipts ${number}`, () => client.getBlockReceipts({ blockNumber }));
    await step(`receipts ${number} by hash`, () => client.getBlockReceipts({ blockHash }));
    return block;
}

async function readTransactions(client, block, raw) {
    const receipts = [];
    const { hash: blockHash, number: blockNumber, transactions } = block;
    for (const [index, { hash }] of transactions.entries()) {
        const name = `${blockNumber}/${index}`;
        await step(`transaction ${name}`, () => client.getTransaction({ hash }));
        await step(`transaction ${name} by index`, () => client.getTransaction({ blockNumber, index }));
        await step(`transaction ${name} by hash and index`, () => client.getTransaction({ blockHash, index }));
        receipts.push(await step(`receipt ${name}`, () => client.getTransactionReceipt({ hash })));
        if (raw) await step(`raw transaction ${name}`, () => client.getRawTransaction({ hash }));
    }
    await step(`transaction ${blockNumber} beyond`, () =>
        client.getTransaction({ blockHash, index: transactions.length }));
    return receipts;
}

async function readTags(client) {
    for (const blockTag of ["latest", "safe", "finalized", "pending", "earliest"]) {
        await step(`block ${blockTag}`, () => client.getBlock({ blockTag }));
        await step(`block ${blockTag} full`, () => client.getBlock({ blockTag, includeTransactions: true }));
        await step(`count ${blockTag}`, () => client.getBlockTransactionCount({ blockTag }));
    }
}

/** Calls made at once are one batch of this client. */
async function batch(url, head) {
    const client = createPublicClient({ transport: http(url, { batch: true }) });
    const ask = { blockNumber: BigInt(head) };
    await step("batch", () =>
        Promise.all([
            client.getChainId(),
            client.getBlock({ ...ask, includeTransactions: true }),
            client.getBlockReceipts(ask),
            client.request({ method: "eth_getBlockByNumber", params: ["nonsense", true] }).catch(explain),
            client.getBlockNumber(),
        ]));
    await step("miss: batch", () =>
        Promise.all([client.getBlock(ask), client.getCode({ ...ask, address: "0x" + "01".repeat(20) })]));
}

async function errors(client) {
    const ask = (method, params) => () => client.request({ method, params });
    await step("error: nonsense number", ask("eth_getBlockByNumber", ["nonsense", false]));
    await step("error: missing argument", ask("eth_getBlockByNumber", ["0x0"]));
    await step("error: short hash", ask("eth_getTransactionByHash", ["0x12"]));
}

async function logs(client, head, receipts) {
    const all = receipts.flatMap((receipt) => receipt.logs);
    const log = all.find((log) => log.topics.length > 1);
    const range = { fromBlock: 0n, toBlock: BigInt(head) };
    const ask = (params) => () => client.request({ method: "eth_getLogs", params: [params] });
    const wire = { fromBlock: "0x0", toBlock: hex(head) };
    await step("logs of a block", () => client.getLogs({ blockHash: log.blockHash }));
    await step("logs of the chain", () => client.getLogs(range));
    await step("logs by address", () => client.getLogs({ ...range, address: log.address }));
    await step("logs by addresses", () => client.getLogs({ ...range, address: all.map((log) => log.address) }));
    await step("logs by topic", ask({ ...wire, topics: [log.topics[0]] }));
    await step("logs by topics", ask({ ...wire, topics: [null, [log.topics[1], UNKNOWN]] }));
    await step("logs of nobody", () => client.getLogs({ ...range, address: "0x" + "00".repeat(20) }));
}

/** What a cache does not have and a node behind it does. */
async function misses(client, head) {
    const address = "0x8db97C7cEcE249c2b98bDC0226Cc4C2A57BF52FC";
    await step("miss: future block", () => client.getBlock({ blockNumber: BigInt(head + 1000) }));
    await step("miss: unknown block", () => client.getBlock({ blockHash: UNKNOWN }));
    await step("miss: unknown transaction", () => client.getTransaction({ hash: UNKNOWN }));
    await step("miss: unknown receipt", () => client.getTransactionReceipt({ hash: UNKNOWN }));
    await step("miss: balance", () => client.getBalance({ address, blockNumber: BigInt(head) }));
}

async function reads(options) {
    const client = createPublicClient({ transport: http(options.http) });
    await step("chain id", () => client.getChainId());
    const head = Number(await step("head", () => client.getBlockNumber()));
    const receipts = [];
    for (let number = 0; number <= head; number += 1) {
        const block = await readBlock(client, number);
        receipts.push(...(await readTransactions(client, block, options.raw)));
    }
    await readTags(client);
    await batch(options.http, head);
    await errors(client);
    if (options.logs) await logs(client, head, receipts);
    await misses(client, head);
}

async function subscribe(client, following) {
    const heads = await client.transport.subscribe({
        params: ["newHeads"],
        onData: ({ result }) => following.heads.push([Number(result.number), result]),
        onError: () => {}, // viem reconnects by itself
    });
    const stopLogs = client.watchEvent({
        onLogs: (logs) => following.logs.push(...logs.map((log) => [Number(log.blockNumber), log])),
        onError: () => {},
    });
    // Answered after the subscriptions, which were sent before.
    await client.getChainId();
    return { heads, stopLogs };
}

async function follow(options) {
    const client = createPublicClient({ transport: webSocket(options.ws) });
    const following = new Following();
    await step("socket: chain id", () => client.getChainId());
    await step("socket: block", () => client.getBlock({ includeTransactions: true }));
    await step("socket: error", () =>
        client.request({ method: "eth_getBlockByNumber", params: ["nonsense", false] }));
    const subscribed = await subscribe(client, following);
    print({ step: "subscribed" });
    await following.report();
    if (options.reconnect) {
        const rpc = await client.transport.getRpcClient();
        const lost = new Promise((resolve) => rpc.socket.addEventListener("close", resolve));
        print({ step: "waiting for the cut" });
        await lost;
        // viem connects and subscribes again by itself, after two seconds.
        await until("an answer", () => client.getChainId().then(() => true, () => false));
        print({ step: "reconnected" });
        await following.report();
    }
    subscribed.stopLogs();
    await step("unsubscribed", async () => (await subscribed.heads.unsubscribe()).result);
    (await client.transport.getRpcClient()).close();
}

const options = settings();
await reads(options);
if (options.ws) await follow(options);
end();
