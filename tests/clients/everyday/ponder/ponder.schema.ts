import { onchainTable } from "ponder";

export const seen = onchainTable("seen", (t) => ({ id: t.text().primaryKey() }));
