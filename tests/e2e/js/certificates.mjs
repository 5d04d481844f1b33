// A certificate for servers of a test, signed by itself.
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";

/**
 * Creates a certificate for 127.0.0.1: `{file, cert, keyFile, key}`, with their paths
 * as `file` and `keyFile`. `remove()` deletes it.
 */
export async function createCertificate() {
  const folder = await mkdtemp(path.join(tmpdir(), "starling-certificate-"));
  const [keyFile, file] = ["key.pem", "certificate.pem"].map((name) => path.join(folder, name));
  await promisify(execFile)("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
    // The certificate of an authority is not accepted as that of a server.
    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
    "-keyout", keyFile, "-out", file,
  ]);
  const [key, cert] = await Promise.all([keyFile, file].map((name) => readFile(name)));
  return { file, cert, keyFile, key, remove: () => rm(folder, { recursive: true, force: true }) };
}
