import { readFileSync } from "node:fs";
import { createConfig } from "ponder";

const facts = JSON.parse(readFileSync(process.env.EVERYDAY_FACTS!, "utf8"));

export default createConfig({
    chains: { local: { id: facts.chain, rpc: process.env.EVERYDAY_URL!, disableCache: true } },
    contracts: {
        Logger: {
            chain: "local",
            address: facts.contract,
            startBlock: 1,
            endBlock: facts.height,
            abi: [{
                type: "event", name: "Transfer", inputs: [
                    { indexed: true, name: "from", type: "address" },
                    { indexed: true, name: "to", type: "address" },
                    { indexed: false, name: "value", type: "uint256" },
                ],
            }],
        },
    },
});
