// ethers 6: neve first, the node for calls that neve refuses.
//
// Copy the class. `new NeveFirst(NEVE, NODE)` takes the place of `new JsonRpcProvider(NODE)`. The
// FallbackProvider of ethers does not do this: it takes the error of a miss as the answer.
//
//     node ethers.mjs http://127.0.0.1:8545 http://127.0.0.1:9650/ext/bc/C/rpc

import { JsonRpcProvider } from "ethers";

class NeveFirst extends JsonRpcProvider {
    constructor(neve, node, network, options) {
        // Without staticNetwork ethers adds eth_chainId to each batch.
        options = { staticNetwork: true, ...options };
        super(neve, network, options);
        this.node = new JsonRpcProvider(node, network, options);
    }

    // A miss is HTTP 421, and ethers rejects every status but 2xx. A neve that is down rejects too.
    // To ask twice is harmless: neve sends no transaction. ethers gathers calls to a batch, and neve
    // refuses a batch with a miss whole, so the node gets all of it.
    async _send(payload) {
        return super._send(payload).catch(() => this.node._send(payload));
    }

    destroy() {
        this.node.destroy();
        super.destroy();
    }
}

const [neve, node] = process.argv.slice(2);
const provider = new NeveFirst(neve, node);
const head = await provider.getBlockNumber();
const block = await provider.getBlock(head);
const address = "0x0000000000000000000000000000000000000001";
// Calls that are made at the same time are one batch.
const [earlier, balance] = await Promise.all([provider.getBlock(head - 1), provider.getBalance(address, head)]);
console.log(JSON.stringify({
    chain: String((await provider.getNetwork()).chainId),
    hash: block.hash,
    parent: earlier.hash,
    balance: String(balance),
    code: await provider.getCode(address, head),
}));
provider.destroy();
