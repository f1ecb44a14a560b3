// Everyday steps with ethers: JsonRpcProvider, or with "fallback" its FallbackProvider of URL and the node.

import { FallbackProvider, JsonRpcProvider, Wallet } from "ethers";
import { facts, positive, reached, step, url } from "./steps.mjs";

const options = { cacheTimeout: -1 };
const one = (address) => new JsonRpcProvider(address, undefined, options);
const both = () => new FallbackProvider(
    [[url, 1], [facts.node, 2]].map(([address, priority]) => ({ provider: one(address), priority, stallTimeout: 5000 })),
    undefined, { quorum: 1 });
const provider = process.argv.includes("fallback") ? both() : one(url);
const { address, contract, height, transaction } = facts;

await step("chain id", async () => (await provider.getNetwork()).chainId);
await step("head", () => provider.getBlockNumber(), reached);
await step("block", () => provider.getBlock(height), (block) => block.hash);
await step("transaction", () => provider.getTransaction(transaction), (found) => found.from);
await step("receipt", () => provider.getTransactionReceipt(transaction), (receipt) => String(receipt.gasUsed));
await step("logs", () => provider.getLogs({ address: contract, fromBlock: 0, toBlock: height }), (logs) => logs.length);
await step("balance", () => provider.getBalance(address, height));
await step("nonce", () => provider.getTransactionCount(address, height));
await step("code", () => provider.getCode(contract, height));
await step("storage", () => provider.getStorage(contract, 0, height));
await step("call", () => provider.call({ to: contract, blockTag: height }));
await step("estimate", () => provider.estimateGas({ from: address, to: contract }));
await step("prices", async () => (await provider.getFeeData()).gasPrice, positive);
await step("send and wait", async () => {
    const wallet = new Wallet(facts.key, provider);
    return (await wallet.sendTransaction({ to: address, value: 1n })).wait(1, 150_000);
}, (receipt) => receipt.status);
process.stdout.write("", () => process.exit(0));
