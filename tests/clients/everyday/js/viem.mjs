// Everyday steps with viem; with "fallback" over viem's fallback of URL and the node.

import { createPublicClient, createWalletClient, defineChain, fallback, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { facts, positive, reached, step, url } from "./steps.mjs";

const chain = defineChain({
    id: facts.chain, name: "local", rpcUrls: { default: { http: [url] } },
    nativeCurrency: { name: "AVAX", symbol: "AVAX", decimals: 18 },
});
const transport = process.argv.includes("fallback") ? fallback([http(url), http(facts.node)]) : http(url);
const client = createPublicClient({ chain, transport, cacheTime: 0 });
const { address, contract, transaction: hash } = facts;
const blockNumber = BigInt(facts.height);

await step("chain id", () => client.getChainId());
await step("head", () => client.getBlockNumber(), reached);
await step("block", () => client.getBlock({ blockNumber }), (block) => block.hash);
await step("transaction", () => client.getTransaction({ hash }), (found) => found.from);
await step("receipt", () => client.getTransactionReceipt({ hash }), (receipt) => String(receipt.gasUsed));
await step("logs", () => client.getLogs({ address: contract, fromBlock: 0n, toBlock: blockNumber }), (logs) => logs.length);
await step("balance", () => client.getBalance({ address, blockNumber }));
await step("nonce", () => client.getTransactionCount({ address, blockNumber }));
await step("code", () => client.getCode({ address: contract, blockNumber }));
await step("storage", () => client.getStorageAt({ address: contract, slot: "0x0", blockNumber }));
await step("call", () => client.call({ to: contract, blockNumber }), (result) => result.data);
await step("estimate", () => client.estimateGas({ account: address, to: contract }));
await step("prices", async () => (await client.estimateFeesPerGas()).maxFeePerGas, positive);
await step("send and wait", async () => {
    const wallet = createWalletClient({ chain, transport, account: privateKeyToAccount(facts.key) });
    return client.waitForTransactionReceipt({ hash: await wallet.sendTransaction({ to: address, value: 1n }) });
}, (receipt) => receipt.status);
process.stdout.write("", () => process.exit(0));
