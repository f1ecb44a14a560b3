// viem 2: neve first, the node for calls that neve refuses.
//
// Copy `neveFirst`. `fallback` asks the next transport after a miss by itself.
//
//     node viem.mjs http://127.0.0.1:8545 http://127.0.0.1:9650/ext/bc/C/rpc

import { createPublicClient, fallback, http, RpcRequestError } from "viem";

// A miss is HTTP 421. An error with status 200 is the node's own, such as a wrong argument: the node
// would repeat it. `rank` must stay off, because it reorders by speed and stability.
const isOwnError = ({ cause }) => cause instanceof RpcRequestError && cause.status === undefined;
const neveFirst = (neve, node) =>
    fallback([http(neve, { retryCount: 0 }), http(node)], { shouldThrow: isOwnError });

const [neve, node] = process.argv.slice(2);
const client = createPublicClient({ transport: neveFirst(neve, node) });
const blockNumber = await client.getBlockNumber();
const address = "0x0000000000000000000000000000000000000001";
const wrong = { method: "eth_getBlockByNumber", params: ["nonsense", false] };
console.log(JSON.stringify({
    // neve answers it with the node's words, and the node is not asked.
    error: await client.request(wrong).catch(({ details }) => details),
    chain: String(await client.getChainId()),
    hash: (await client.getBlock({ blockNumber })).hash,
    parent: (await client.getBlock({ blockNumber: blockNumber - 1n })).hash,
    balance: String(await client.getBalance({ address, blockNumber })),
    code: (await client.getCode({ address, blockNumber })) ?? "0x",
}));
