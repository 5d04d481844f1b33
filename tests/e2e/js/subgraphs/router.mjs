// A router in front of the subgraphs of this folder.
import { compose } from "../composition.mjs";
import { freePort, startServe } from "../router.mjs";
import { callbackConfiguration } from "./servers.mjs";

/** Reconnections that are fast enough for a test. */
export const FAST_RETRY = { initial: "20ms", max: "100ms", attempts: 50 };

/**
 * Starts a router for `subgraphs`: name → `{sdl, url, subscription}`, as the servers of this folder have them, with the
 * SDL of their subgraph. `config` is further configuration of the router.
 */
export async function startRouter(subgraphs, config = {}) {
  const ports = { graphql: await freePort(), admin: await freePort() };
  const settings = {};
  for (const [name, { url, subscription, more }] of Object.entries(subgraphs)) {
    settings[name] = { url, ...(subscription && { subscription: { retry: FAST_RETRY, ...subscription } }), ...more };
  }
  const hasCallback = Object.values(subgraphs).some(({ subscription }) => subscription?.protocol === "callback");
  const callback = hasCallback && { callback: callbackConfiguration(ports.graphql) };
  const subscriptions = { ...config.subscriptions, ...callback };
  const plain = Object.fromEntries(Object.entries(subgraphs).map(([name, { sdl, url }]) => [name, { sdl, url }]));
  return startServe({
    supergraph: await compose(plain), ports,
    config: { ...config, subscriptions, subgraphs: settings },
  });
}

/** The sum of the values of a metric over all of its labels that contain `labels`. */
export async function readMetric(router, name, labels = "") {
  const text = await (await fetch(`${router.admin}/metrics`)).text();
  const isOfMetric = (line) => line.startsWith(name) && /^[ {]/.test(line.slice(name.length));
  const lines = text.split("\n").filter((line) => isOfMetric(line) && line.includes(labels));
  return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}
