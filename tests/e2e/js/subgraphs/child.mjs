// A subgraph in a process of its own, which a test can stop as a whole (SIGSTOP): its sockets then stay open and take
// bytes, and nothing responds. `node child.mjs PORT` serves `createReviews()` by graphql-ws; see `process.mjs`.
import process from "node:process";
import { createReviews } from "./reviews.mjs";
import { startGraphqlWs } from "./web_sockets.mjs";

const reviews = createReviews();
await startGraphqlWs(reviews, { port: Number(process.argv[2]) });
process.on("message", ({ number, publish }) => {
  if (publish) reviews.publish(publish);
  process.send({ number, operations: reviews.operations() });
});
process.once("disconnect", () => process.exit());
process.send({ isReady: true });
