// Ends what a test has started, also if the test fails.
import { afterEach } from "node:test";

/**
 * Returns a function that keeps a server, client, router or process of a test and returns it. After each test of the
 * `describe` that calls this, they are ended, the latest first.
 */
export function closeAfterEach() {
  const opened = [];
  afterEach(async () => {
    for (const { stop, dispose, kill, remove } of opened.splice(0).reverse()) await (stop ?? dispose ?? kill ?? remove)();
  });
  return (it) => {
    opened.push(it);
    return it;
  };
}
