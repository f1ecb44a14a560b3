// Everyday steps with web3.js 4.

import { Web3 } from "web3";
import { facts, positive, reached, step, url } from "./steps.mjs";

const { eth } = new Web3(url);
const { address, contract, height, transaction } = facts;

await step("chain id", () => eth.getChainId());
await step("head", () => eth.getBlockNumber(), reached);
await step("block", () => eth.getBlock(height), (block) => block.hash);
await step("transaction", () => eth.getTransaction(transaction), (found) => found.from);
await step("receipt", () => eth.getTransactionReceipt(transaction), (receipt) => String(receipt.gasUsed));
await step("logs", () => eth.getPastLogs({ address: contract, fromBlock: 0, toBlock: height }), (logs) => logs.length);
await step("balance", () => eth.getBalance(address, height));
await step("nonce", () => eth.getTransactionCount(address, height));
await step("code", () => eth.getCode(contract, height));
await step("storage", () => eth.getStorageAt(contract, 0, height));
await step("call", () => eth.call({ to: contract }, height));
await step("estimate", () => eth.estimateGas({ from: address, to: contract }));
await step("prices", () => eth.getGasPrice(), positive);
await step("send and wait", async () => {
    const account = eth.accounts.wallet.add(facts.key)[0];
    return eth.sendTransaction({ from: account.address, to: address, value: 1, gas: 21000 });
}, (receipt) => String(receipt.status));
process.stdout.write("", () => process.exit(0));
