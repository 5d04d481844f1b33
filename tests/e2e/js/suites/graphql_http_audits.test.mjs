// The audits of the GraphQL over HTTP specification, by the authors of the reference implementation.
import { after, before, describe, it } from "node:test";
import { serverAudits } from "graphql-http";
import { memorySupergraph } from "../board.mjs";
import { startServe } from "../router.mjs";

describe("GraphQL over HTTP audits", () => {
  let router;
  before(async () => {
    router = await startServe({ supergraph: memorySupergraph() });
  });
  after(() => router?.stop());

  for (const audit of serverAudits({ url: () => router.graphql })) {
    // MUST and SHOULD are required; MAY is optional, and the audit reports it as a notice.
    const required = !audit.name.startsWith("MAY");
    it(`${audit.id} ${audit.name}`, async (test) => {
      const result = await audit.fn();
      if (result.status === "ok") return;
      const reason = `${result.status}: ${result.reason}`;
      if (required) throw new Error(reason);
      test.diagnostic(reason);
    });
  }
});
