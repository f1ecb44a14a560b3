// Runs packaging/fronts/worker/worker.js in workerd: node miniflare.mjs PORT WORKER NEVE NODE.
import { createRequire } from "node:module";

const [port, scriptPath, NEVE, NODE] = process.argv.slice(2);
const { Miniflare } = createRequire(process.env.MINIFLARE)("miniflare");
const worker = new Miniflare({
  host: "127.0.0.1",
  port: Number(port),
  modules: true,
  scriptPath,
  compatibilityDate: "2025-11-01",
  bindings: { NEVE, NODE },
});
await worker.ready;
const end = () => worker.dispose().then(() => process.exit(0));
process.on("SIGTERM", end);
process.on("SIGINT", end);
