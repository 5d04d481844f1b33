// A router with the board's subgraphs, for all tests of one `describe`.
import { after, before } from "node:test";
import { memorySupergraph, startSubgraphs } from "./board.mjs";
import { startServe } from "./router.mjs";

/**
 * Starts the subgraphs and a router before the tests and ends them afterwards. `config` is additional configuration of
 * the router, which is available as `router` of the returned object from the first test on.
 */
export function serveBoard(config = {}) {
  const board = { router: undefined };
  let subgraphs;
  before(async () => {
    subgraphs = await startSubgraphs();
    board.router = await startServe({
      supergraph: memorySupergraph(),
      config: { subgraphs: subgraphs.configuration, ...config },
    });
  });
  after(async () => {
    await board.router?.stop();
    await subgraphs?.stop();
  });
  return board;
}
